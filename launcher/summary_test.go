package launcher

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sharness/sharness/launcher/protect"
	"github.com/sharness/sharness/manifest"
)

func TestSummaryNamesTheQuarantineOnlyWhenSomethingIsInIt(t *testing.T) {
	w := &watcher{quarantine: quarantine{kept: t.TempDir()}}
	if got := w.summary(); len(got) != 0 {
		t.Errorf("got %q of a quiet session", got)
	}
	if err := os.WriteFile(filepath.Join(w.kept, "1-.envrc"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.last = protect.Record{Type: protect.Swept, A: 1, B: 2}
	want := []string{
		"protected names were taken out of the workspace (1 in all: .envrc): " + w.kept,
		"repositories made during the session: 2; look at their hooks and configuration before git runs there",
	}
	if got := w.summary(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSummaryNamesOnlyTheFirstOfMany(t *testing.T) {
	w := &watcher{quarantine: quarantine{kept: t.TempDir()}}
	for _, name := range []string{"1-.envrc", "2-a\x1bb", "3-c.tar", "4-d", "5-e", "6-f.tar"} {
		if err := os.WriteFile(filepath.Join(w.kept, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{`protected names were taken out of the workspace (6 in all: .envrc, a\x1bb, c, d, e, …): ` + w.kept + " (read an archive with tar -tvf and tar -xOf)"}
	if got := w.summary(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMissingTreesAreThoseThatAreNotThere(t *testing.T) {
	m := &manifest.Manifest{Read: []string{"/usr", "/no/such/tree"}}
	if got := MissingTrees(m); !slices.Equal(got, []string{"/no/such/tree"}) {
		t.Errorf("got %q", got)
	}
}
