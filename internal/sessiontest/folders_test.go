package sessiontest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sharness/sharness/manifest"
)

// A Landlock layer that does not handle REFER denies it: renames across folders failed with EXDEV in every domain.
func TestFilesMoveBetweenFoldersInEveryDomain(t *testing.T) {
	s := newSite(t, nil)
	const move = `mkdir -p a b && echo x > a/f && mv a/f b/f && ln b/f a/g && mkdir /tmp/a /tmp/b && echo x > /tmp/a/f && ` +
		`python3 -c "import os; os.rename('/tmp/a/f', '/tmp/b/f')" && git init -q . && git add b/f && git mv b/f a/h && echo moved; rm -rf a b .git`
	x, out := s.enforce(`/run/sharness/bin/sharness-bash -c '` + strings.ReplaceAll(move, "'", `'\''`) + `'`)
	if out != "moved\n" {
		t.Errorf("got %q, want it moved\n%s", out, x.stderr)
	}
}

// A name that is not text, and one that is gone by the time it is frozen, must not cost anybody a command.
func TestFrozenFolderMayHoldAnyName(t *testing.T) {
	s := newSite(t, func(m *manifest.Manifest) {
		m.State = &manifest.State{Path: "/var/lib/sharness/" + name, Seed: []manifest.Seed{{Path: "snap/"}}}
		m.Sandbox.Share, m.Sandbox.Freeze = []string{"snap"}, []string{"snap"}
	})
	t.Cleanup(func() { os.RemoveAll("/var/lib/sharness/" + name) })
	script := `S=$HOME/snap
/run/sharness/bin/sharness-bash -c "echo first > $S/kept; touch $S/\$'\xff\xfe'"
/run/sharness/bin/sharness-bash -c "echo second > $S/kept; cat $S/kept; ls $S | wc -l"
/run/sharness/bin/sharness-bash -c "while :; do touch $S/r1 $S/r2 $S/r3; rm -f $S/r1 $S/r2 $S/r3; done" & racer=$!
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do /run/sharness/bin/sharness-bash -c 'echo ran'; done
kill $racer; wait`
	x, out := s.enforce(script)
	if !strings.HasPrefix(out, "first\n2\n") || strings.Count(out, "ran\n") != 12 {
		t.Errorf("got %q, want first, 2 and 12 times ran\n%s", out, x.stderr)
	}
}

// Sharness runs as root: a workspace behind a folder that is closed to the caller would be opened all the same.
func TestWorkspaceIsOpenedWithTheCallersReach(t *testing.T) {
	s := newSite(t, nil)
	closed := filepath.Join(s.base, "closed")
	if err := os.MkdirAll(filepath.Join(closed, "inner"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(s.base, "link")
	if err := os.Symlink(filepath.Join(closed, "inner"), link); err != nil {
		t.Fatal(err)
	}
	s.workspace = link
	s.env = append(s.env, "SUDO_UID=4321", "SUDO_GID=4321")
	x := s.sharness("enforce", "--", "bash", "-c", "echo in")
	x.start()
	x.wait(time.Minute)
	if code := x.cmd.ProcessState.ExitCode(); code != 126 || !strings.Contains(x.stderr.String(), "permission denied") {
		t.Errorf("exit %d, said %q; want 126 and permission denied", code, x.stderr)
	}
}
