package sidedoor_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/internal/sidedoor/attempt"
)

const pages = "../../docs/side-doors"

func TestEveryDoorHasAPageAndEveryPageADoor(t *testing.T) {
	entries, err := os.ReadDir(pages)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		id, isPage := strings.CutSuffix(e.Name(), ".md")
		if _, ok := sidedoor.ByID(id); !isPage || (!ok && id != "README") {
			t.Errorf("%s: no such door in the table", e.Name())
		}
	}
	for _, d := range sidedoor.Doors() {
		text, err := os.ReadFile(filepath.Join(pages, d.ID+".md"))
		if err != nil {
			t.Errorf("%s: %v", d.ID, err)
			continue
		}
		checkPage(t, d, string(text))
	}
}

func checkPage(t *testing.T, d sidedoor.Door, text string) {
	t.Helper()
	if !strings.HasPrefix(text, "# "+d.ID+": ") {
		t.Errorf("%s: the page has another title", d.ID)
	}
	for _, heading := range []string{"## How it works", "## What closes it", "## What attacks it", "## What stays open"} {
		if !strings.Contains(text, heading+"\n\n") {
			t.Errorf("%s: no %q", d.ID, heading)
		}
	}
	closes := section(text, "## What closes it")
	for _, l := range d.Layers {
		if !strings.Contains(closes, "**"+string(l)+"**") {
			t.Errorf("%s: the table says %s closes it, the page does not", d.ID, l)
		}
	}
	for _, m := range regexp.MustCompile(`\*\*([a-z]+)\*\*`).FindAllStringSubmatch(closes, -1) {
		if !has(d.Layers, sidedoor.Layer(m[1])) {
			t.Errorf("%s: the page says %s closes it, the table does not", d.ID, m[1])
		}
	}
}

func section(text, heading string) string {
	_, text, _ = strings.Cut(text, heading)
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

func has(layers []sidedoor.Layer, want sidedoor.Layer) bool {
	for _, l := range layers {
		if l == want {
			return true
		}
	}
	return false
}

// A page may only name tests that exist, and names the attack when there is one.
func TestPagesNameTheTestsThatAttackThem(t *testing.T) {
	exist := tests(t)
	attacked := map[string]bool{}
	for _, a := range attempt.All() {
		attacked[a.Door] = true
	}
	for _, d := range sidedoor.Doors() {
		text, err := os.ReadFile(filepath.Join(pages, d.ID+".md"))
		if err != nil {
			continue // the other test says so
		}
		attacks := section(string(text), "## What attacks it")
		if got := strings.Contains(attacks, "`TestSideDoor_"+d.ID+"`"); got != attacked[d.ID] {
			t.Errorf("%s: names the probe's attack: %v, want %v", d.ID, got, attacked[d.ID])
		}
		names := regexp.MustCompile("`(Test[A-Za-z0-9_]+)`").FindAllStringSubmatch(attacks, -1)
		if len(names) == 0 && len(d.Layers) > 0 {
			t.Errorf("%s: names no test", d.ID)
		}
		for _, n := range names {
			if !exist[n[1]] {
				t.Errorf("%s: there is no %s", d.ID, n[1])
			}
		}
	}
}

// tests are the names of all test functions of the module, and of the attacks that subtests make.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range function.FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range attempt.All() {
		found["TestSideDoor_"+a.Door] = true
	}
	return found
}
