package protect

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharness/sharness/manifest"
)

func modeOf(s *Set, rel string) string {
	for _, e := range s.Existing {
		if e.Rel == rel {
			return string(e.Mode) + " " + string(e.Kind)
		}
	}
	if slices.Contains(s.Absent, rel) {
		return "absent"
	}
	return ""
}

func wantModes(t *testing.T, s *Set, want map[string]string) {
	t.Helper()
	for rel, mode := range want {
		if got := modeOf(s, rel); got != mode {
			t.Errorf("%s: got %q, want %q", rel, got, mode)
		}
	}
}

func TestDiscoverFindsEveryFileThatGitObeys(t *testing.T) {
	root := workspace(t, repository)
	s := discover(t, Options{Root: root})
	wantModes(t, s, map[string]string{
		".git": "pin dir", ".git/config": "ro file", ".git/hooks": "ro dir", ".git/commondir": "absent", ".git/config.worktree": "absent",
		".git/modules": "pin dir", ".git/modules/sub": "pin dir", ".git/modules/sub/config": "ro file", ".git/modules/sub/hooks": "ro dir",
		".git/worktrees/wt": "pin dir", ".git/worktrees/wt/gitdir": "ro file", ".git/worktrees/wt/commondir": "ro file",
		".git/worktrees/wt/config.worktree": "absent", ".git/worktrees/wt/config": "absent", ".git/worktrees/wt/hooks": "absent",
		"wt": "pin dir", "wt/.git": "ro file", "sub": "pin dir", "sub/.git": "ro file", ".gitmodules": "ro file",
		".husky": "ro dir", ".husky/_": "", "team.gitconfig": "ro file",
		".claude": "pin dir", ".claude/settings.json": "ro file", ".claude/settings.local.json": "absent", ".vscode": "absent",
	})
	var tops []string
	for _, r := range s.Repos {
		tops = append(tops, r.Rel+"→"+r.GitDir)
	}
	if want := []string{"→.git", "sub→.git/modules/sub", "wt→.git/worktrees/wt"}; !slices.Equal(tops, want) {
		t.Errorf("repositories: got %q, want %q", tops, want)
	}
}

func TestDiscoverPinsLinksAndProtectsTheirTargets(t *testing.T) {
	root := workspace(t, `git init -q real && mkdir conf && echo '{}' > conf/mcp && ln -s conf/mcp .mcp.json && ln -s later/vscode .vscode
ln -s real/.git .git && rm -r real/.git/hooks && mkdir hooks && ln -s ../../hooks real/.git/hooks && ln -s "$PWD/conf" .cursor && ln -s /etc .idea`)
	s := discover(t, Options{Root: root})
	wantModes(t, s, map[string]string{
		".mcp.json": "pin link", "conf/mcp": "", "conf": "ro dir", ".cursor": "pin link", // the folder covers the file
		".vscode": "pin link", "later/vscode": "absent",
		".git": "pin link", "real": "pin dir", "real/.git": "pin dir", "real/.git/config": "ro file", "real/.git/hooks": "pin link", "hooks": "ro dir",
		".idea": "pin link",
	})
}

func TestDiscoverReportsARepositoryWhoseConfigurationIsOutside(t *testing.T) {
	root := workspace(t, `git init -q -b main ../main && cd ../main && echo > a && git add a && git commit -q -m a && git worktree add -q ../ws/wt`)
	s := discover(t, Options{Root: root})
	wantModes(t, s, map[string]string{"wt/.git": "ro file"})
	if len(s.Repos) != 1 || !s.Repos[0].Outside || len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "outside the workspace") {
		t.Errorf("got repositories %+v and notes %q", s.Repos, s.Notes)
	}
}

// The repository around is in no view, and the user's git obeys what its configuration names in the workspace.
func TestDiscoverProtectsWhatTheRepositoryAroundNames(t *testing.T) {
	root := workspace(t, `mkdir -p tools/hooks pkg/.husky/_ && touch pkg/more && printf '[core]\n\thooksPath = %s\n' "$PWD/further" >pkg/more && mkdir further`)
	around := func(top, text string) []Around { return []Around{{Dir: top + "/.git", Top: top, Text: []byte(text)}} }
	for name, c := range map[string]struct {
		around []Around
		want   map[string]string
	}{
		"worktree": {around(root, "[core]\nhooksPath = tools/hooks\n"), map[string]string{"tools": "pin dir", "tools/hooks": "ro dir"}},
		"absent":   {around(root, "[core]\nhooksPath = tools/other\n"), map[string]string{"tools": "pin dir", "tools/other": "absent"}},
		"husky":    {around(path.Dir(root), "[core]\nhooksPath = "+path.Base(root)+"/pkg/.husky/_\n"), map[string]string{"pkg": "pin dir", "pkg/.husky": "ro dir"}},
		"include":  {around(path.Dir(root), "[include]\npath = ../"+path.Base(root)+"/pkg/more\n"), map[string]string{"pkg": "pin dir", "pkg/more": "ro file", "further": "ro dir"}},
		"outside":  {around(path.Dir(root), "[core]\nhooksPath = tools/hooks\n"), map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) { wantModes(t, discover(t, Options{Root: root, Around: c.around}), c.want) })
	}
}

func TestDiscoverReachesTheWorkspaceByItsOtherNames(t *testing.T) {
	root := workspace(t, `ln -s ws ../alias && git init -q . && mkdir h i && ln -s "$PWD/../alias/h" .husky
git config core.hooksPath ../ws/h && git config include.path "$(cd .. && pwd)/alias/i/inc" && echo > i/inc`)
	s := discover(t, Options{Root: root})
	wantModes(t, s, map[string]string{"h": "ro dir", "i/inc": "ro file", ".husky": "pin link"})
}

func TestDiscoverHangsOnNothing(t *testing.T) {
	root := workspace(t, `mkdir .git && mkfifo .git/config .mcp.json && ln -s .vscode .vscode && ln -s b a && ln -s a b && mkdir sub && mkfifo sub/.git`)
	s := discover(t, Options{Root: root, Extra: []string{"a"}})
	wantModes(t, s, map[string]string{".git/config": "ro file", ".mcp.json": "ro file", "sub/.git": "ro file", "a": "pin link"})
}

func TestDiscoverNeverMakesAWholeRepositoryReadOnly(t *testing.T) {
	root := workspace(t, `git init -q . && git config core.hooksPath .`)
	s := discover(t, Options{Root: root})
	wantModes(t, s, map[string]string{".git": "pin dir", ".git/config": "ro file"})
	if len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "not made read-only") {
		t.Errorf("notes: got %q", s.Notes)
	}
}

func TestDiscoverProtectNoneLeavesOnlyExtra(t *testing.T) {
	root := workspace(t, repository+"\nmkdir deploy && echo > deploy/key")
	s := discover(t, Options{Root: root, Protect: manifest.ProtectNone, Extra: []string{"deploy/key", "deploy/new"}})
	if len(s.Existing) != 2 || len(s.Absent) != 1 || len(s.Repos) != 0 {
		t.Errorf("got %+v", s)
	}
	wantModes(t, s, map[string]string{"deploy": "pin dir", "deploy/key": "ro file", "deploy/new": "absent"})
}

func TestDiscoverSearchIsBounded(t *testing.T) {
	root := workspace(t, `mkdir -p 1/2/3/4/5/6/7 1/node_modules/x && git init -q 1/2/3/4/5/6/7 && git init -q 1/2/3/4/5/6 && git init -q 1/node_modules/x`)
	s := discover(t, Options{Root: root})
	if len(s.Repos) != 1 || s.Repos[0].Rel != "1/2/3/4/5/6" {
		t.Errorf("repositories: got %+v, want the one at depth 6", s.Repos)
	}
	if len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "met its bound") {
		t.Errorf("notes: got %q", s.Notes)
	}
}

// The names of git's own folders make no directory another kind: git asks what lies in it.
func TestSideDoor_FileGit_DirectoryNamedWorktreesIsProtectedWhole(t *testing.T) {
	root := workspace(t, `git init -q . && git commit -q --allow-empty -m x && mkdir -p .git/worktrees/x worktrees && git init -q --bare worktrees/mine.git
git init -q ../lib && git -C ../lib commit -q --allow-empty -m x && git submodule --quiet add ../lib worktrees/lib`)
	s := discover(t, Options{Root: root})
	for _, rel := range []string{".git/worktrees/x/config", ".git/worktrees/x/hooks"} {
		if !slices.Contains(s.Absent, rel) {
			t.Errorf("%s is not watched", rel)
		}
	}
	for _, rel := range []string{"worktrees/mine.git/config", "worktrees/mine.git/hooks", ".git/modules/worktrees/lib/config", ".git/modules/worktrees/lib/hooks"} {
		if !slices.ContainsFunc(s.Existing, func(e Entry) bool { return e.Rel == rel && e.Mode == ReadOnly }) {
			t.Errorf("%s is not read-only", rel)
		}
	}
}

// A relative core.hooksPath means a folder in each worktree.
func TestSideDoor_FileGit_HooksOfEveryWorktreeAreProtected(t *testing.T) {
	root := workspace(t, `git init -q . && mkdir .githooks && echo true > .githooks/pre-commit && git add . && git commit -q -m x && git config core.hooksPath .githooks && git worktree add -q wt -b a && git worktree add -q wt2 -b b && rm -r wt2/.githooks`)
	s := discover(t, Options{Root: root})
	for _, rel := range []string{".githooks", "wt/.githooks"} {
		if !slices.ContainsFunc(s.Existing, func(e Entry) bool { return e.Rel == rel && e.Mode == ReadOnly }) {
			t.Errorf("%s is not read-only", rel)
		}
	}
	if !slices.Contains(s.Absent, "wt2/.githooks") || !slices.Equal(s.Hooks, []string{".githooks"}) {
		t.Errorf("absent %q, hooks %q", s.Absent, s.Hooks)
	}
}

// Repositories of a session stand before the user's own by their names.
func TestSideDoor_FileGit_ManyRepositoriesHideNoConfiguration(t *testing.T) {
	root := workspace(t, `for i in $(seq 100 640); do d=a$i/.git; mkdir -p $d/objects $d/refs; echo "ref: refs/heads/main" > $d/HEAD; printf '[core]\n\trepositoryformatversion = 0\n' > $d/config; done
git init -q zz && mkdir zz/.githooks && git -C zz config core.hooksPath .githooks`)
	s := discover(t, Options{Root: root})
	if !slices.ContainsFunc(s.Existing, func(e Entry) bool { return e.Rel == "zz/.githooks" && e.Mode == ReadOnly }) {
		t.Error("zz/.githooks is not read-only")
	}
}

// A path is followed as git and the kernel do it: from the folder of the name that was opened, and up from where a link led.
func TestSideDoor_FileGit_PathsOfAConfigurationAreThoseThatGitFollows(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"include beside a link":         {`mkdir cfg; mv .git/config cfg/config; ln -s ../cfg/config .git/config; git config -f cfg/config include.path inc.cfg`, ".git/inc.cfg"},
		"include of an include":         {`mkdir a b; ln -s ../b/two a/two; git config include.path ../a/two; git config -f b/two include.path three`, "a/three"},
		"up from a link":                {`mkdir s; ln -s ws/s ../lnk; git config core.hooksPath "$(dirname $PWD)/lnk/../hk"`, "hk"},
		"up from a link to what is not": {`mkdir s; ln -s ws/s ../lnk; git config core.hooksPath "$(dirname $PWD)/lnk/../no/hk"`, "no/hk"},
		"optional":                      {`git config core.hooksPath ":(optional)hk"`, "hk"},
	} {
		t.Run(name, func(t *testing.T) {
			s := discover(t, Options{Root: workspace(t, `git init -q . && `+c.script)})
			if !slices.Contains(s.Absent, c.want) {
				t.Errorf("%s is not watched: %q", c.want, s.Absent)
			}
		})
	}
}

// What is mounted in the workspace is in no view: there is the folder below it.
func TestSideDoor_FileGit_PlaceOfAMountIsReadOnly(t *testing.T) {
	root := workspace(t, `git init -q . && mkdir -p a/mnt/below`)
	s := discover(t, Options{Root: root, Mounts: []string{"a/mnt", "gone"}})
	wantModes(t, s, map[string]string{"a": "pin dir", "a/mnt": "ro dir", "gone": ""})
	if r := view(t, root, s, `mkdir a/mnt/r || exit 7`); r.Exit != 7 {
		t.Errorf("a folder was made below the mount: %+v", r)
	}
}

// A folder of somebody else's that can be entered and not listed holds what nobody here can look at.
func TestSideDoor_FileGit_FolderThatCannotBeListedIsReadOnly(t *testing.T) {
	root := workspace(t, `git init -q . && mkdir -p d/own`)
	if err := errors.Join(os.Chown(filepath.Join(root, "d"), 0, 0), os.Chmod(filepath.Join(root, "d"), 0o711)); err != nil {
		t.Fatal(err)
	}
	s := discover(t, Options{Root: root})
	wantModes(t, s, map[string]string{"d": "ro dir"})
	if r := view(t, root, s, `git init -q d/own/r || exit 7`); r.Exit != 7 {
		t.Errorf("a repository was made in it: %+v", r)
	}
}

// A session can put a repository into a folder of hooks: that makes it no worktree to be spared.
func TestSideDoor_FileGit_FolderOfHooksIsReadOnlyWithARepositoryInIt(t *testing.T) {
	root := workspace(t, `git init -q . && echo x > f && git add f && git commit -q -m x && git config core.hooksPath .githooks && git worktree add -q --detach z/wt && git init -q --bare z/wt/.githooks/r && mkdir a && echo "gitdir: ../z/wt/.githooks/r" > a/.git`)
	wantModes(t, discover(t, Options{Root: root}), map[string]string{"z/wt/.githooks": "ro dir"})
}

// Git reads one commondir, and no chain of them.
func TestDiscoverFollowsNoChainOfCommonDirectories(t *testing.T) {
	root := workspace(t, `git init -q . && for i in $(seq 1000 1600); do mkdir -p .git/worktrees/$i; echo ../$((i+1)) > .git/worktrees/$i/commondir; done`)
	begin := time.Now()
	s := discover(t, Options{Root: root})
	t.Logf("%d entries in %s", len(s.Existing), time.Since(begin))
	if n := len(s.GitDirs); n != 602 {
		t.Errorf("got %d git directories, want 602", n)
	}
}

// The worktree of a submodule may lie deeper than the search goes: its configuration says where.
func TestSideDoor_FileGit_HooksOfADeepWorktreeAreProtected(t *testing.T) {
	root := workspace(t, `git init -q . && git init -q ../lib && git -C ../lib commit -q --allow-empty -m x && git submodule --quiet add --name n ../lib a/b/c/d/e/f/g/sub && git -C a/b/c/d/e/f/g/sub config core.hooksPath .hk`)
	s := discover(t, Options{Root: root})
	if !slices.Contains(s.Absent, "a/b/c/d/e/f/g/sub/.hk") {
		t.Errorf("the folder of hooks is not watched: %q", s.Absent)
	}
}
