package protect

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// snapshot is every name of the workspace with kind, mode, link target and content.
const snapshot = `find . -path ./.git/objects -prune -o -printf '%p %y %m %l\n' | sort; find . -path ./.git/objects -prune -o -type f -print0 | sort -z | xargs -0 sha256sum`

func unchanged(t *testing.T, before, after string) {
	t.Helper()
	if mounts, _ := os.ReadFile("/proc/self/mounts"); strings.Contains(string(mounts), t.Name()) {
		t.Errorf("a mount of the view is seen on the host:\n%s", mounts)
	}
	was, is := strings.Split(before, "\n"), strings.Split(after, "\n")
	for _, line := range was {
		if !slices.Contains(is, line) {
			t.Errorf("gone from the workspace: %s", line)
		}
	}
	for _, line := range is {
		if !slices.Contains(was, line) {
			t.Errorf("new in the workspace: %s", line)
		}
	}
}

func TestViewKeepsGitWorking(t *testing.T) {
	for name, script := range map[string]string{
		"commit":          `echo 2 >> a && git commit -qam two && git log --oneline | grep -q two`,
		"status":          `test -z "$(git status --porcelain)"`,
		"stash":           `echo 3 >> a && git stash -q && git stash pop -q && git checkout -q a`,
		"branch, merge":   `git checkout -q -b f && echo f > f && git add f && git commit -qm f && git checkout -q main && git merge -q --no-edit f`,
		"rebase":          `echo p > p && git add p && git commit -qm p && git checkout -q -b r HEAD~1 && echo r > r && git add r && git commit -qm r && git rebase -q main && git checkout -q main`,
		"worktree":        `git worktree add -q ../ws/new -b n && cd new && echo n > n && git add n && git commit -qm n && cd .. && git worktree remove new`,
		"in the worktree": `cd wt && echo w > w && git add w && git commit -qm w && test -z "$(git status --porcelain)"`,
		"in a submodule":  `cd sub && echo s > s && git add s && git commit -qm s && test -z "$(git status --porcelain)"`,
		"gc":              `git gc -q && git fsck`,
		"clone, init":     `git clone -q . c && git init -q d && (cd d && git config a.b c) && rm -rf c d`,
		"fetch":           `git fetch -q ../lib main && git tag v1 && git tag -d v1`,
		"edit beside":     `echo x > .claude/other && rm .claude/other && echo y > wt/z && mv wt/z wt/y && rm wt/y`,
	} {
		t.Run(name, func(t *testing.T) {
			root := workspace(t, repository)
			s := discover(t, Options{Root: root})
			r := view(t, root, s, "set -e\n"+script)
			if r.Exit != 0 || len(r.Missing) > 0 {
				t.Errorf("exit %d, missing %q:\n%s", r.Exit, r.Missing, r.Output)
			}
			// wt is ignored by the fixture, and a commit in sub shows in its parent.
			if got := host(t, root, `git status --porcelain --untracked-files=all --ignored | grep -vxE '!! wt/| M sub' || true`); got != "" {
				t.Errorf("git status on the host: %s", got)
			}
		})
	}
}

func TestViewRefusesGitConfigAndGitRollsBack(t *testing.T) {
	root := workspace(t, repository)
	s := discover(t, Options{Root: root})
	// What else lies in a worktree is removed by "git worktree remove" as far as its folder lists it before .git: file systems differ.
	const files = `cat .git/config .git/modules/sub/config .gitmodules wt/.git; ls -A .git; ls -d wt/.git`
	before := host(t, root, files)
	for _, script := range []string{`git config a.b c`, `git remote add o ../lib`, `git submodule add ../lib sub2`, `git worktree remove wt`,
		`cd sub && git config a.b c`, `cd wt && git config a.b c`} {
		if r := view(t, root, s, script); r.Exit == 0 {
			t.Errorf("%s: worked: %s", script, r.Output)
		} else {
			t.Logf("%s: %s", script, strings.TrimSpace(r.Output))
		}
	}
	unchanged(t, before, host(t, root, files))
}

// Each row must fail, and must leave the tree as it was.
func TestSideDoor_FileGit(t *testing.T) {
	root := workspace(t, repository+"\nmkdir evil && echo evil > evil/config")
	s := discover(t, Options{Root: root})
	before := host(t, root, snapshot)
	for name, script := range map[string]string{
		"write config":             `echo '[core]' >> .git/config`,
		"truncate config":          `: > .git/config`,
		"chmod config":             `chmod 777 .git/config`,
		"touch config":             `touch .git/config`,
		"replace config":           `cp .git/config .git/c && mv -f .git/c .git/config; r=$?; rm -f .git/c; exit $r`,
		"remove config":            `rm -f .git/config`,
		"link over config":         `ln -f evil/config .git/config`,
		"symlink over config":      `ln -sf ../evil/config .git/config`,
		"exchange config":          `python3 -c 'import ctypes,sys; sys.exit(ctypes.CDLL(None).renameat2(-100,b".git/config",-100,b".git/HEAD",2) != 0)'`,
		"second name for config":   `ln .git/config .git/c2`,
		"write a hook":             `echo evil > .git/hooks/pre-commit`,
		"replace hooks":            `mv .git/hooks .git/h`,
		"change a hook":            `echo evil >> .git/hooks/pre-commit.sample`,
		"rename .git":              `mv .git .g`,
		"rename a worktree":        `mv wt wt2`,
		"redirect a worktree":      `echo 'gitdir: /tmp' > wt/.git`,
		"remove a worktree's .git": `rm -f wt/.git`,
		"commondir of a worktree":  `echo ../../../evil > .git/worktrees/wt/commondir`,
		"gitdir of a worktree":     `echo /tmp > .git/worktrees/wt/gitdir`,
		"rename worktrees/wt":      `mv .git/worktrees/wt .git/worktrees/x`,
		"rename worktrees":         `mv .git/worktrees .git/w`,
		"through a worktree":       `cd wt && echo evil > "$(git rev-parse --git-common-dir)/hooks/x"`,
		"modules config":           `echo evil >> .git/modules/sub/config`,
		"modules hooks":            `echo evil > .git/modules/sub/hooks/x`,
		"rename modules":           `mv .git/modules .git/m`,
		"rename modules/sub":       `mv .git/modules/sub .git/modules/x`,
		"redirect a submodule":     `echo 'gitdir: evil' > sub/.git`,
		".gitmodules":              `echo evil >> .gitmodules`,
		"hooksPath":                `echo evil > .husky/_/pre-commit`,
		"what hooksPath runs":      `echo evil > .husky/pre-commit`,
		"rename hooksPath":         `mv .husky .h`,
		"included configuration":   `echo evil > team.gitconfig`,
		"replace the included":     `mv -f evil/config team.gitconfig`,
		"undo a mount":             `umount .git/config`,
		"through /proc":            `echo evil > /proc/self/cwd/.git/config`,
		"keep a descriptor":        `exec 3< .git && echo evil > /proc/self/fd/3/config`,
	} {
		t.Run(name, func(t *testing.T) {
			if r := view(t, root, s, script); r.Exit == 0 {
				t.Errorf("it worked: %s", r.Output)
			}
		})
	}
	unchanged(t, before, host(t, root, snapshot))
}

func TestSideDoor_FileConfig_Existing(t *testing.T) {
	root := workspace(t, `mkdir .claude .vscode conf && echo 1 > .claude/settings.json && echo 1 > .vscode/tasks.json && echo 1 > .envrc && echo 1 > conf/mcp && ln -s conf/mcp .mcp.json`)
	s := discover(t, Options{Root: root})
	before := host(t, root, snapshot)
	for name, script := range map[string]string{
		"write":                     `echo evil > .claude/settings.json`,
		"rename the parent":         `mv .claude .c`,
		"remove the parent":         `rm -rf .claude`,
		"replace":                   `echo evil > .e && mv -f .e .envrc; r=$?; rm -f .e; exit $r`,
		"inside a folder":           `echo evil > .vscode/tasks.json`,
		"add to a folder":           `echo evil > .vscode/launch.json`,
		"swap a folder for a link":  `mv .vscode .v && ln -s conf .vscode`,
		"through a link":            `echo evil > .mcp.json`,
		"replace a link":            `ln -sfn evil .mcp.json`,
		"remove a link":             `rm -f .mcp.json`,
		"rename a link":             `mv .mcp.json x`,
		"replace the link's target": `echo evil > e && mv -f e conf/mcp; r=$?; rm -f e; exit $r`,
		"rename its parent":         `mv conf c`,
		"swap in a loop":            `for i in 1 2 3 4 5 6 7 8 9; do mv -T .claude .c 2>/dev/null && exit 0; ln -sfn conf .mcp.json 2>/dev/null && exit 0; done; exit 1`,
	} {
		t.Run(name, func(t *testing.T) {
			if r := view(t, root, s, script); r.Exit == 0 {
				t.Errorf("it worked: %s", r.Output)
			}
		})
	}
	unchanged(t, before, host(t, root, snapshot))
}

// The kernel detaches a mount when its mount point is replaced in another mount namespace. Nothing inside can do that; the
// user can, and is told (TestWatchReportsWhatIsReplacedFromOutside). This test is here so that a kernel that changes it
// is noticed.
func TestReplacingFromOutsideEndsTheProtectionInAView(t *testing.T) {
	root := workspace(t, repository)
	s := discover(t, Options{Root: root})
	done := make(chan viewReply)
	go func() {
		done <- view(t, root, s, `echo x >> .git/config && exit 9; : > attached; while ! test -e go; do sleep 0.01; done; echo '#' >> .git/config`)
	}()
	host(t, root, `while ! test -e attached; do sleep 0.01; done; git config a.b c; : > go`)
	if r := <-done; r.Exit != 0 {
		t.Errorf("the file is still protected after it was replaced from outside: exit %d: %s", r.Exit, r.Output)
	}
}
