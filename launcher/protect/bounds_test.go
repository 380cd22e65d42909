package protect

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestReadingAConfigurationTakesNoMoreThanItsLength(t *testing.T) {
	for _, text := range []string{"[" + strings.Repeat("a", 1<<16) + "]\nx = y", "[a]\n" + strings.Repeat("b", 1<<16), strings.Repeat("[a]", 1<<14)} {
		// Text that grows by a byte at a time is copied as often.
		if allocs := testing.AllocsPerRun(1, func() { readConfig(text) }); allocs > float64(len(text))/2 {
			t.Errorf("%.20q…: %.0f allocations for %d bytes", text, allocs, len(text))
		}
	}
}

func TestSafeConfigKeepsNoLongName(t *testing.T) {
	long := strings.Repeat("a", 65)
	for _, text := range []string{"[" + long + "]", "[" + long + " \"x\"]", "[core]\n" + long + " = x"} {
		if safe, found := safeConfig(text, nowhere); found == "" || len(found) > 128 || strings.Contains(safe, long) {
			t.Errorf("%q is left, %q was found", safe, found)
		}
	}
}

// A name more of the same file, or another worktree, is no reason to read it again.
func TestConfigurationsAreReadOnceByInode(t *testing.T) {
	dir := workspace(t, `git init -q . && ln .git/config other`)
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	c := configs{}
	for _, rel := range []string{".git/config", "other", ".git/config"} {
		if _, err := c.read(tree{root: int(root.Fd())}, rel); err != nil || len(c) != 1 {
			t.Errorf("%s: %v, %d were read", rel, err, len(c))
		}
	}
	if err := os.WriteFile(dir+"/other", []byte("[core]\nhooksPath = new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := c.read(tree{root: int(root.Fd())}, ".git/config"); err != nil || len(got.hooks) != 1 {
		t.Errorf("what was changed since: got %+v, %v", got, err)
	}
}

func TestDiscoverThatTakesTooLongSaysWhereItWas(t *testing.T) {
	dir := workspace(t, `git init -q sub/r`)
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, before := range [][]Repo{nil, {{Rel: "sub/r", GitDir: "sub/r/.git"}}} {
		_, err := discoverUntil(root, Options{Root: dir, Before: before}, time.Now())
		want := dir
		if before != nil {
			want = dir + "/sub/r"
		}
		if err == nil || !strings.Contains(err.Error(), `at "`+want+`"`) || !strings.Contains(err.Error(), "start in a smaller workspace") {
			t.Errorf("got %v", err)
		}
	}
}
