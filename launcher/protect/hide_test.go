package protect

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// laterSession is what the next session finds: before is the set of the one in which the script ran.
func laterSession(t *testing.T, root string, before *Set, script string) *Set {
	t.Helper()
	host(t, root, script)
	return discover(t, Options{Root: root, Before: before.Repos})
}

// inMemory puts the workspace of a test that makes many names where that is quick.
func inMemory(t *testing.T) { t.Setenv("TMPDIR", "/dev/shm") }

// fill makes n names in dir as the user: files, or folders.
func fill(t *testing.T, dir, kind string, n int) {
	t.Helper()
	host(t, dir, fmt.Sprintf(`python3 -c '
import os
for i in range(%d):
    os.mkdir("x%%d"%%i) if "%s" == "dir" else os.mknod("x%%d"%%i)'`, n, kind))
}

const guarded = `git init -q . && git init -q sub && git init -q --bare store.git && git commit -q --allow-empty -m x && git worktree add -q wt -b side`

// What a command can do to the files that make a directory a repository, in a session that protects it, must not take the
// protection away from the next one. Each script is first tried in a view, where it must work: otherwise the row is void.
func TestSideDoor_FileGit_NoRepositoryIsHiddenFromTheNextSession(t *testing.T) {
	for name, c := range map[string]struct{ script, rel, want string }{
		"looks bare":               {`mkdir objects refs && : > HEAD`, ".git/config", "ro file"},
		"looks bare, hooks":        {`mkdir objects refs && : > HEAD`, ".git/hooks", "ro dir"},
		"bare without HEAD":        {`mv store.git/HEAD store.git/H`, "store.git/config", "ro file"},
		"bare without objects":     {`mv store.git/objects store.git/o; mv store.git/refs store.git/r`, "store.git/hooks", "ro dir"},
		"git directory gutted":     {`mv .git/HEAD .git/H; mv .git/objects .git/o; mv .git/refs .git/r`, ".git/config", "ro file"},
		"worktree without HEAD":    {`mv .git/worktrees/wt/HEAD .git/worktrees/wt/H`, ".git/worktrees/wt/commondir", "ro file"},
		"folder unreadable":        {`chmod 0300 sub`, "sub/.git/config", "ro file"},
		"folder closed":            {`chmod 0 sub`, "sub/.git/config", "ro file"},
		"git directory closed":     {`chmod 0 .git`, ".git/config", "ro file"},
		"worktrees closed":         {`chmod 0 .git/worktrees`, ".git/worktrees/wt/commondir", "ro file"},
		"file for a folder":        {`: > .claude`, ".claude", "pin file"},
		"file for a folder, below": {`: > .claude`, ".claude/settings.json", "absent"},
		"fifo for a folder":        {`mkfifo .config`, ".config", "pin file"},
	} {
		t.Run(name, func(t *testing.T) {
			root := workspace(t, guarded)
			before := discover(t, Options{Root: root})
			if got := view(t, root, before, c.script); got.Exit != 0 {
				t.Fatalf("a command cannot do that: %s", got.Output)
			}
			after := discover(t, Options{Root: root, Before: before.Repos})
			wantModes(t, after, map[string]string{c.rel: c.want})
		})
	}
}

func TestSideDoor_FileGit_SubmoduleWithoutHeadIsProtected(t *testing.T) {
	root := workspace(t, repository)
	before := discover(t, Options{Root: root})
	got := view(t, root, before, `mv .git/modules/sub/HEAD .git/modules/sub/H; mv .git/modules/sub/objects .git/modules/sub/o; mv .git/modules/sub/refs .git/modules/sub/r`)
	if got.Exit != 0 {
		t.Fatal(got.Output)
	}
	wantModes(t, discover(t, Options{Root: root}), map[string]string{".git/modules/sub/config": "ro file"}) // and without a record
}

// The order of names in a folder is the filesystem's; where it is by hash, files before the names that matter are made
// until those are past every bound.
func TestSideDoor_FileGit_ManyNamesHideNothing(t *testing.T) {
	inMemory(t)
	root := workspace(t, `git init -q . && mkdir a && git init -q a/sub && git init -q --bare z.git && git commit -q --allow-empty -m x && git worktree add -q wt -b side`)
	for _, dir := range []string{"", "a", "z.git", ".git", ".git/worktrees"} {
		fill(t, filepath.Join(root, dir), "file", maxPerDir+500)
	}
	wantModes(t, discover(t, Options{Root: root}), map[string]string{".git/config": "ro file", "a/sub/.git/config": "ro file",
		"z.git/config": "ro file", ".git/worktrees/wt/commondir": "ro file"})
}

func TestSideDoor_FileGit_RepositoryBeyondTheBoundsOfTheSearchStaysProtected(t *testing.T) {
	inMemory(t)
	root := workspace(t, `mkdir -p a/b/c && git init -q a/b/c`)
	before := discover(t, Options{Root: root})
	fill(t, filepath.Join(root, "a"), "dir", maxPerDir+500) // more than maxDirs, nearer than the repository
	after := laterSession(t, root, before, `true`)
	wantModes(t, after, map[string]string{"a/b/c/.git/config": "ro file"})
	if !strings.Contains(strings.Join(after.Notes, "\n"), "met its bound") {
		t.Errorf("notes: got %q, want the bound", after.Notes)
	}
}

func TestDiscoverRefusesWhatItCannotDecide(t *testing.T) {
	inMemory(t)
	for dir, text := range map[string]string{".": "at its top", ".git/modules": "modules"} {
		root := workspace(t, `git init -q . && mkdir .git/modules .git/worktrees`)
		fill(t, filepath.Join(root, dir), "dir", maxPerDir+1)
		fd, err := os.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		defer fd.Close()
		if _, err := Discover(fd, Options{Root: root}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: got %v, want an error with %q", dir, err, text)
		}
	}
}

// Within every bound of number the names alone can be too long.
func TestDiscoverRefusesPathsThatAreTooLongAndNamesTheirFolder(t *testing.T) {
	inMemory(t)
	root := workspace(t, `python3 -c '
import os
for i in range(5): os.mkdir("d" * 250); os.chdir("d" * 250)
for i in range(600): os.makedirs("%03d" % i + "e" * 240 + "/.git/objects")'; git init -q other`)
	fd, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	if _, err := Discover(fd, Options{Root: root}); err == nil || !strings.Contains(err.Error(), "the bound is 8; ") || !strings.Contains(err.Error(), ` lie in "./dddd`) ||
		!strings.Contains(err.Error(), "smaller workspace") || len(err.Error()) > 600 {
		t.Errorf("got %v", err)
	}
	if dir, n := mostIn([]string{"a/b/1", "a/b/2", "a/b/3/x", "a/c", "d"}); dir != "a/b" || n != 3 {
		t.Errorf("got %q, %d", dir, n)
	}
}

func TestDiscoverForgetsWhatThePersonRemoved(t *testing.T) {
	root := workspace(t, guarded)
	before := discover(t, Options{Root: root})
	after := laterSession(t, root, before, `rm -rf sub store.git`)
	for _, r := range after.Repos {
		if r.Rel == "sub" || r.Rel == "store.git" {
			t.Errorf("%+v is still listed", r)
		}
	}
	if notes := strings.Join(after.Notes, "\n"); strings.Count(notes, "is gone") != 2 {
		t.Errorf("notes: got %q, want one for each", notes)
	}
}

func TestDiscoverUnlocksAndSaysSo(t *testing.T) {
	root := workspace(t, `git init -q é && chmod 0 é`)
	s := discover(t, Options{Root: root})
	wantModes(t, s, map[string]string{"é/.git/config": "ro file"})
	if len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "unlocked") {
		t.Errorf("notes: got %q", s.Notes)
	}
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(root, "é"), &st); err != nil || st.Mode&0o777 != 0o500 {
		t.Errorf("mode: got %o, %v, want no more than it takes", st.Mode&0o777, err)
	}
}

// A pinned file stays a file in the view, whatever a command tries.
func TestSideDoor_FileConfig_FileInPlaceOfAFolderIsPinned(t *testing.T) {
	root := workspace(t, `: > .claude && mkdir .config && : > .config/git`)
	s := discover(t, Options{Root: root})
	for _, script := range []string{`rm -f .claude`, `mv .claude x`, `mkdir d && mv -T d .claude`, `ln -sfn d .claude`, `mv .config c`} {
		if got := view(t, root, s, script); got.Exit == 0 {
			t.Errorf("%s works", script)
		}
	}
	if got := view(t, root, s, `echo more >> .claude`); got.Exit != 0 {
		t.Errorf("the file cannot be written: %s", got.Output)
	}
}
