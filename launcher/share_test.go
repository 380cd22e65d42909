package launcher

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sharness/sharness/manifest"
)

func TestProfilesSeedWhatTheyShare(t *testing.T) {
	for _, name := range manifest.Profiles() {
		f, err := manifest.Profile(name)
		if err != nil {
			t.Fatal(err)
		}
		m := f.Manifest.Clone()
		if m.State == nil {
			m.State = &manifest.State{}
		}
		m.State.Path = filepath.Join(t.TempDir(), "none-yet")
		if err := CheckShares(m); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestShareThatNothingMakesIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ share, seed, want string }{
		"nothing":        {"shared", "", "sandbox.share shared: "},
		"a seed":         {"shared", "shared/", ""},
		"a file in it":   {"shared", "shared/deep/file", ""},
		"one beside it":  {"shared", "shared2/", "sandbox.share shared: "},
		"its own folder": {"shared/deep", "shared/", "sandbox.share shared/deep: "},
		"a variable":     {"tmp-{{uid}}", "", ""},
	} {
		m := &manifest.Manifest{State: &manifest.State{Path: t.TempDir()}}
		m.Sandbox.Share = []string{c.share}
		if c.seed != "" {
			m.State.Seed = []manifest.Seed{{Path: c.seed}}
		}
		if err := CheckShares(m); (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
