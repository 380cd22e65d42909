package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/internal/sidedoor/attempt"
)

var (
	doorRow = regexp.MustCompile(`(?m)^\| \[([a-z0-9-]+)\]\(\.\./side-doors/([a-z0-9-]+)\.md\) \|(.*)$`)
	verdict = regexp.MustCompile(`\| (open|error) \|`)
)

// pages are those that sharness prove wrote.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := read(t, "docs/evidence", ".md")
	delete(found, filepath.Join(root, "docs/evidence/README.md"))
	if len(found) == 0 {
		t.Fatal("docs/evidence has no page")
	}
	return found
}

func TestEvidenceSaysWhereAndHowItWasMade(t *testing.T) {
	for path, text := range pages(t) {
		for _, want := range []string{"# Evidence: Linux ", "Written by `sharness prove ", "\n| date | 20", "\n| kernel | ", "\n| distribution | ", "\n| sharness | ",
			"\n## Doors\n", "\n## What the design had left to be measured\n", "\n## Layers of this host\n", "\n## Attempts without a positive control\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q", path, want)
			}
		}
		if strings.Contains(text, "not in this run") {
			t.Errorf("%s: leaves a question of the design without an answer", path)
		}
	}
}

// Every door that is attacked has a row in every page, every row a door that is attacked, and none of them is open.
func TestEvidenceAndAttacksHaveTheSameDoors(t *testing.T) {
	attacked := map[string]bool{}
	for _, a := range attempt.All() {
		attacked[a.Door] = true
	}
	for path, text := range pages(t) {
		rows := map[string]bool{}
		for _, m := range doorRow.FindAllStringSubmatch(text, -1) {
			door, page, cells := m[1], m[2], m[3]
			d, known := sidedoor.ByID(door)
			switch {
			case !known || door != page:
				t.Errorf("%s: %s is no door", path, door)
			case !attacked[door] && !strings.HasPrefix(door, "cmd-"):
				t.Errorf("%s: %s is in the page, and nothing attacks it", path, door)
			case verdict.MatchString("|"+cells) && len(d.Layers) > 0:
				t.Errorf("%s: %s: %s", path, door, cells)
			}
			rows[door] = true
		}
		for door := range attacked {
			if !rows[door] {
				t.Errorf("%s: %s is attacked, and has no row", path, door)
			}
		}
	}
}

// What --ablate was told to take away has a column, and each door a row there too.
func TestEvidenceHasTheMatrixWhereItWasMade(t *testing.T) {
	for path, text := range pages(t) {
		command, _, _ := strings.Cut(text[strings.Index(text, "Written by"):], "\n")
		_, matrix, found := strings.Cut(text, "\n## Door × layer\n")
		if strings.Contains(command, "--ablate") != found {
			t.Errorf("%s: matrix %v, and it was written by %s", path, found, command)
		}
		if !found {
			continue
		}
		for _, m := range doorRow.FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(m[1], "cmd-") && !strings.Contains(matrix, "\n| "+m[1]+" |") {
				t.Errorf("%s: %s has no row in the matrix", path, m[1])
			}
		}
	}
}
