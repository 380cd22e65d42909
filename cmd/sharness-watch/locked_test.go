package main

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/launcher/protect"
)

func (s *session) mode() os.FileMode {
	s.t.Helper()
	fi, err := os.Stat(s.root)
	if err != nil {
		s.t.Fatal(err)
	}
	return fi.Mode().Perm()
}

// No mode of the workspace keeps a name in it, and none stays.
func TestSideDoor_FileConfig_LockedWorkspaceHidesNothing(t *testing.T) {
	locked := map[string]string{"0555": "folder", "0000": "symlink", "0300": "in a new folder", "0111": "config.worktree", "0400": "link in a git directory"}
	for mode, name := range locked {
		for _, a := range appearances {
			if a.name != name {
				continue
			}
			t.Run(mode+" "+a.name, func(t *testing.T) {
				s := start(t, `git init -q . && rm -rf .git/hooks`, "")
				s.sh(a.script + "; chmod " + mode + " .")
				s.await(a.rel+" to go", func() bool { return s.gone(a.rel) })
				if err := os.Chmod(s.root, 0); err != nil {
					t.Fatal(err)
				}
				if r := s.sweep(); r.A == 0 || r.C != 0 {
					t.Errorf("sweep: got %+v, want something taken and nothing failed", r)
				}
				if got := s.mode(); got != 0o755 {
					t.Errorf("mode of the workspace: got %o, want what it was", got)
				}
				s.await("the event", func() bool { return s.saw(event.FileQuarantined, "file-config", "/ws") })
			})
		}
	}
}

const modeLoop = `cat > loop.py <<'E'
import os, time
top, end, n = os.open(".", os.O_RDONLY | os.O_DIRECTORY), time.time() + 2, 0
while time.time() < end:
    n += 1
    for m in (0o555, 0, 0o300, 0o755):
        try:
            os.fchmod(top, 0o755)
            os.makedirs("x%d" % n, exist_ok=True)
            os.rename("x%d" % n, (".mise", ".vscode", ".kiro")[n % 3])
            os.symlink("/etc/passwd", ".git/config.worktree")
        except OSError:
            pass
        os.fchmod(top, m)
os.fchmod(top, 0o755)
for f in (lambda: os.makedirs(".mise/a"), lambda: os.symlink("/etc/passwd", ".git/config.worktree"), lambda: os.chmod(".git", 0)):
    try: f()
    except OSError: pass
os.fchmod(top, 0)
E
python3 loop.py`

// What the watcher cannot win a race for it finds at the end, when nothing races any more.
func TestSideDoor_FileConfig_LoopOfModesEndsWithNothingLeft(t *testing.T) {
	s := start(t, `git init -q .`, "")
	s.sh(modeLoop)
	if r := s.sweep(); r.C != 0 {
		t.Errorf("sweep: got %+v, want nothing failed", r)
	}
	for _, rel := range []string{".mise", ".vscode", ".kiro", ".git/config.worktree"} {
		if !s.gone(rel) {
			t.Errorf("%s is still there", rel)
		}
	}
	if s.count() > 200 {
		t.Errorf("a loop made %d events", s.count())
	}
}

func TestSideDoor_FileGit_LockedWorkspaceIsProtectedInTheNextSession(t *testing.T) {
	s := start(t, `git init -q . && git init -q --bare store.git && mv store.git/HEAD store.git/H && chmod 0 .`, "")
	if got := find(s.set, ".git/config"); got != "ro" {
		t.Errorf(".git/config: got %q", got)
	}
}

// A watch takes the right to read a folder, which a command may have taken from it.
func TestWatchWatchesAFolderThatCannotBeRead(t *testing.T) {
	s := start(t, `git init -q . && mkdir .claude && chmod 0300 .claude .git`, "")
	s.sh(`echo > .claude/settings.json; ln -s x .git/MERGE_MSG`)
	s.await("both to go", func() bool { return s.gone(".claude/settings.json") && s.gone(".git/MERGE_MSG") })
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Type == event.LayerOpen {
			t.Errorf("open: %+v", e)
		}
	}
}

// What the supervisor kept of an earlier session reaches the search.
func TestWatchProtectsWhatAnEarlierSessionFound(t *testing.T) {
	s := prepared(t, `git init -q --bare store.git && mv store.git/HEAD store.git/H`, "")
	var before bytes.Buffer
	if err := (&protect.Set{Repos: []protect.Repo{{Rel: "store.git", GitDir: "store.git"}}}).Encode(&before); err != nil {
		t.Fatal(err)
	}
	s.watch(protect.Config{Before: before.Bytes()})
	if got := find(s.set, "store.git/config"); got != "ro" {
		t.Errorf("store.git/config: got %q", got)
	}
}

func find(set *protect.Set, rel string) string {
	for _, e := range set.Existing {
		if e.Rel == rel {
			return string(e.Mode)
		}
	}
	return ""
}

// A session fills the workspace and makes a link deep in the git directory, which the user's next commit would follow.
func TestSideDoor_FileLink_ManyNamesHideNoLink(t *testing.T) {
	t.Setenv("TMPDIR", shm)
	s := start(t, `git init -q . && git commit -q --allow-empty -m x`, "")
	fill := `python3 -c 'import os; [os.mknod("%s/f%%d" %% i) for i in range(%d)]'; `
	s.sh(fmt.Sprintf(fill, ".", 200500) + fmt.Sprintf(fill, ".git", 20500) + `ln -sf /tmp/target .git/logs/HEAD; ln -sf /tmp/target .git/MERGE_MSG`)
	r := s.sweep()
	if !s.gone(".git/logs/HEAD") || !s.gone(".git/MERGE_MSG") {
		t.Errorf("a link stays; sweep %+v", r)
	}
	if r.C == 0 {
		t.Error("a workspace with more names than the bound of the last look counts as seen whole")
	}
}

// A repository that a command makes in a folder with many names is reported all the same.
func TestWatchReportsARepositoryAmongManyNames(t *testing.T) {
	t.Setenv("TMPDIR", shm)
	s := start(t, `mkdir d`, "")
	s.sh(`git init -q d && python3 -c 'import os; [os.mknod("d/f%d" % i) for i in range(200500)]'`)
	if r := s.sweep(); r.B != 1 {
		t.Errorf("got %+v, want one repository", r)
	}
}

// A loop at the lock of git's configuration keeps nobody busy.
func TestWatchLimitsHints(t *testing.T) {
	s := start(t, `git init -q .`, "")
	s.sh(`python3 -c '
import os
for i in range(5000):
    os.mknod(".git/config.lock"); os.unlink(".git/config.lock")'`)
	if err := (protect.Record{Type: protect.Sweep}).Send(s.control); err != nil {
		t.Fatal(err)
	}
	hints := 0
	for {
		r, err := protect.Receive(s.control)
		if err != nil {
			t.Fatal(err)
		}
		if r.Type == protect.Swept {
			break
		}
		hints++
	}
	if hints == 0 || hints > 10 {
		t.Errorf("5000 locks made %d hints", hints)
	}
	if s.count() > 30 {
		t.Errorf("5000 locks made %d events", s.count())
	}
}
