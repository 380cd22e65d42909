// Package docs holds the documents to the tree: what they tell a person to type exists, links lead somewhere, and the
// tests that they name as proof are there. Whether a sentence is true is not for a test to say.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sharness/sharness/internal/sidedoor"
)

const root = "../.."

// read returns the files below dir with the given suffix, by path.
func read(t *testing.T, dir, suffix string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "bin" || d.Name() == ".git" || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, suffix):
			return nil
		}
		data, err := os.ReadFile(path)
		files[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("no %s below %s", suffix, dir)
	}
	return files
}

var (
	makeWord  = regexp.MustCompile("(?:`|sudo |^ {4})make ((?:[a-z][a-z-]*)(?: [a-z][a-z-]*)*)")
	link      = regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)
	testName  = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*(?:-[\w-]*)?`)
	function  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	command   = regexp.MustCompile(`(?:sudo |^ {4}|` + "`" + `)sharness ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?`)
	cobraName = regexp.MustCompile(`Use:\s+"([a-z-]+)`)
)

func TestMakeTargetsInTheDocumentsExist(t *testing.T) {
	makefile := read(t, "Makefile", "Makefile")[filepath.Join(root, "Makefile")]
	seen := 0
	for path, text := range read(t, ".", ".md") {
		for line := range strings.Lines(text) {
			for _, m := range makeWord.FindAllStringSubmatch(line, -1) {
				for _, target := range strings.Fields(m[1]) {
					seen++
					if !regexp.MustCompile(`(?m)^` + target + `:`).MatchString(makefile) {
						t.Errorf("%s: make %s: the Makefile has no such target", path, target)
					}
				}
			}
		}
	}
	if seen == 0 {
		t.Error("the documents name no target: the pattern no longer fits")
	}
}

func TestLinksInTheDocumentsLeadSomewhere(t *testing.T) {
	for path, text := range read(t, ".", ".md") {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}

func TestTestsNamedAsProofExist(t *testing.T) {
	tests := map[string]bool{}
	for _, text := range read(t, ".", "_test.go") {
		for _, m := range function.FindAllStringSubmatch(text, -1) {
			tests[m[1]] = true
		}
	}
	for path, text := range read(t, ".", ".md") {
		for _, name := range testName.FindAllString(text, -1) {
			if !tests[name] && !several(tests, name) && !sideDoor(name) {
				t.Errorf("%s: %s does not exist", path, name)
			}
		}
	}
}

// several says whether name, cut off after an underscore, is how some tests begin.
func several(tests map[string]bool, name string) bool {
	if !strings.HasSuffix(name, "_") {
		return false
	}
	for test := range tests {
		if strings.HasPrefix(test, name) {
			return true
		}
	}
	return false
}

// sideDoor says whether name is the subtest of a door, or, cut off before a star, of several.
func sideDoor(name string) bool {
	id, ok := strings.CutPrefix(name, "TestSideDoor_")
	return ok && slices.ContainsFunc(sidedoor.Doors(), func(d sidedoor.Door) bool {
		return d.ID == id || strings.HasSuffix(id, "-") && strings.HasPrefix(d.ID, id)
	})
}

func TestSubcommandsInTheDocumentsExist(t *testing.T) {
	commands := map[string]bool{"completion": true, "help": true} // cobra's own
	for _, text := range read(t, "cmd/sharness", ".go") {
		for _, m := range cobraName.FindAllStringSubmatch(text, -1) {
			commands[m[1]] = true
		}
	}
	for path, text := range read(t, ".", ".md") {
		for line := range strings.Lines(text) {
			for _, m := range command.FindAllStringSubmatch(line, -1) {
				if !commands[m[1]] || m[1] == "manifest" && m[2] != "" && !commands[m[2]] {
					t.Errorf("%s: %s: there is no such command", path, strings.TrimSpace(m[0]))
				}
			}
		}
	}
}

func TestOptionsOfTheClientAreInItsHelpItsPageAndTheManual(t *testing.T) {
	options := regexp.MustCompile(`--[a-z][a-z-]+`)
	client := read(t, "cmd/sharness-bash", "client.c")[filepath.Join(root, "cmd/sharness-bash/client.c")]
	server := read(t, "bashserver", "route.go")[filepath.Join(root, "bashserver/route.go")]
	page := read(t, "cmd/sharness-bash", ".1")[filepath.Join(root, "cmd/sharness-bash/sharness-bash.1")]
	manual := read(t, "docs", "manual.md")[filepath.Join(root, "docs/manual.md")]
	taken := options.FindAllString(server, -1)
	if len(taken) == 0 {
		t.Fatal("the server takes no option: the pattern no longer fits")
	}
	for _, o := range taken {
		for name, text := range map[string]string{"--help": client, "man page": page, "manual": manual} {
			if !strings.Contains(text, o) {
				t.Errorf("%s: %s is missing", name, o)
			}
		}
	}
}
