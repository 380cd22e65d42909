package main

import (
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/launcher/protect"
)

// shm is another filesystem than the temporary folder, so that a rename into a quarantine there is EXDEV.
const shm = "/dev/shm"

// appearances are the ways in which a protected name comes to be.
var appearances = []struct{ name, script, rel, door string }{
	{"create", `echo EVIL > .mcp.json`, ".mcp.json", "file-config"},
	{"rename", `echo EVIL > x && mv x .envrc`, ".envrc", "file-config"},
	{"link", `echo EVIL > x && ln x .bashrc`, ".bashrc", "file-config"},
	{"symlink", `echo EVIL > x && ln -s x opencode.json`, "opencode.json", "file-config"},
	{"dangling symlink", `ln -s /nonexistent .gitconfig`, ".gitconfig", "file-config"},
	{"folder", `mkdir .y && echo EVIL > .y/tasks.json && mv .y .vscode`, ".vscode", "file-config"},
	{"locked folder", `mkdir .y && echo EVIL > .y/x && chmod 0 .y && mv .y .idea`, ".idea", "file-config"},
	{"unreadable file", `echo EVIL > x && chmod 0 x && mv x .zshrc`, ".zshrc", "file-config"},
	{"in a new folder", `mkdir -p .claude && echo EVIL > .claude/settings.json`, ".claude/settings.json", "file-config"},
	{"in a renamed folder", `mkdir z && echo EVIL > z/settings.json && mv z .claude`, ".claude/settings.json", "file-config"},
	{"folder by a link", `mkdir z && echo EVIL > z/settings.json && ln -s z .claude`, ".claude", "file-config"},
	{"in a locked folder", `mkdir -p .claude && echo EVIL > .claude/settings.local.json && chmod 0 .claude`, ".claude/settings.local.json", "file-config"},
	{"commondir", `echo ../evil > .git/commondir`, ".git/commondir", "file-git"},
	{"config.worktree", `echo EVIL > .git/config.worktree`, ".git/config.worktree", "file-git"},
	{"hooks", `mkdir .git/h && echo EVIL > .git/h/pre-commit && mv .git/h .git/hooks`, ".git/hooks", "file-git"},
	{"FIFO", `mkfifo .exrc`, ".exrc", "file-config"},
	{"link in a git directory", `ln -s ../../target .git/COMMIT_EDITMSG`, ".git/COMMIT_EDITMSG", "file-link"},
}

func testAppearances(t *testing.T, quarantineIn string) {
	for _, a := range appearances {
		t.Run(a.name, func(t *testing.T) {
			s := start(t, `git init -q . && rm -rf .git/hooks`, quarantineIn)
			s.sh(a.script)
			s.await(a.rel+" to go", func() bool { return s.gone(a.rel) })
			s.await("the event", func() bool { return s.saw(event.FileQuarantined, a.door, a.rel) })
			swept := s.sweep()
			if strings.Contains(a.script, "EVIL") && !strings.Contains(a.name, "link") && !strings.Contains(s.keptContents(), "EVIL") {
				if !(a.name == "unreadable file" && quarantineIn != "") { // there is nothing to copy from
					t.Error("the quarantine does not hold what was taken")
				}
			}
			if swept.A == 0 || swept.C != 0 {
				t.Errorf("sweep: got %+v, want something taken and nothing failed", swept)
			}
			if left := s.sh(`find . -name '.sharness*'`); left != "" {
				t.Errorf("left in the workspace: %s", left)
			}
		})
	}
}

func TestSideDoor_FileConfig_AbsentNameIsTakenAway(t *testing.T) {
	testAppearances(t, "")
}

func TestSideDoor_FileConfig_AbsentNameIsTakenAwayToAnotherFilesystem(t *testing.T) {
	testAppearances(t, shm)
}

// A hostile loop makes every kind of thing at a protected name and swaps its parent for a link meanwhile.
func TestSideDoor_FileConfig_LoopEndsWithNothingLeft(t *testing.T) {
	for name, in := range map[string]string{"same filesystem": "", "other filesystem": shm} {
		t.Run(name, func(t *testing.T) {
			s := start(t, `git init -q . && git add -A && git commit -q --allow-empty -m x && mkdir ../outside && echo keep > ../outside/settings.json`, in)
			s.sh(`set +e; end=$(($(date +%s) + 2)); i=0
while [ $(date +%s) -lt $end ]; do i=$((i+1))
  mkdir -p .claude 2>/dev/null && echo EVIL > .claude/settings.json
  mv .claude .c$i 2>/dev/null; ln -sfn ../outside .claude 2>/dev/null
  rm -rf .claude 2>/dev/null; mv .c$i .claude 2>/dev/null
  ln -sfn /etc/passwd .mcp.json; mkdir -p .vscode/a/b; ln -s ../ws .vscode/up 2>/dev/null; echo x > .git/commondir
done 2>/dev/null; chmod -R u+rwx . ; true`)
			r := s.sweep()
			t.Logf("taken %d, repositories %d, failed %d; events %d", r.A, r.B, r.C, s.count())
			for _, rel := range []string{".claude/settings.json", ".mcp.json", ".vscode", ".git/commondir"} {
				if !s.gone(rel) {
					t.Errorf("%s is still there", rel)
				}
			}
			if fi, err := os.Lstat(filepath.Join(s.root, ".claude")); err == nil && fi.Mode()&os.ModeSymlink != 0 {
				t.Error(".claude is still a link")
			}
			if got, _ := os.ReadFile(filepath.Join(s.root, "../outside/settings.json")); string(got) != "keep\n" {
				t.Errorf("a file outside of the workspace was touched: %q", got)
			}
			if s.count() > 200 {
				t.Errorf("a loop made %d events", s.count())
			}
			kept, _ := os.ReadDir(s.kept)
			if len(kept) > 256 {
				t.Errorf("the quarantine grew to %d", len(kept))
			}
			s.sh(`rm -rf .c[0-9]*`)
			if got := s.sh(`git status --porcelain --untracked-files=all`); got != "" {
				t.Errorf("git status on the host: %s", got)
			}
		})
	}
}

func TestSideDoor_FileFifo_SweepLeavesNoSpecialFileAndNoSetID(t *testing.T) {
	for name, in := range map[string]string{"same filesystem": "", "other filesystem": shm} {
		t.Run(name, func(t *testing.T) {
			s := start(t, `mkfifo old && echo > oldsuid && chmod 4755 oldsuid && sleep 0.1`, in)
			s.sh(`mkdir -p a/node_modules/b && mkfifo a/f && echo > a/node_modules/b/s && chmod 6755 a/node_modules/b/s
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("a/sock")'; mknod a/whiteout c 0 0`)
			if r := s.sweep(); r.A != 4 || r.C != 0 {
				t.Errorf("got %+v, want 4 taken and nothing failed", r)
			}
			if got := s.sh(`find . -type p -o -type s -o -type c -o -perm /6000 | sort | tr '\n' ' '`); got != "./old ./oldsuid" {
				t.Errorf("left: %s, want what was there before the session", got)
			}
			s.await("the event", func() bool { return s.saw(event.FileQuarantined, "file-suid", "a/node_modules/b/s") })
		})
	}
}

func TestSideDoor_FileLink_SweepTakesLinksDeepInAGitDirectory(t *testing.T) {
	s := start(t, `git init -q . && git commit -q --allow-empty -m x && ln -s HEAD .git/mine && sleep 0.1`, "")
	s.sh(`ln -sf /tmp/target .git/logs/HEAD; ln -s x ordinary-link`)
	s.sweep()
	if !s.gone(".git/logs/HEAD") || s.gone(".git/mine") || s.gone("ordinary-link") {
		t.Error("want the new link in .git gone, the old one and the one in the worktree kept")
	}
}

// What lies in a worktree inside of a bare repository is no part of that, and what only looks like one is.
func TestSideDoor_FileLink_FolderOfGitsThatLooksLikeAWorktree(t *testing.T) {
	s := start(t, `git init -q -b main l && git -C l commit -q --allow-empty -m l && git clone -q --bare l b && git -C b config core.logAllRefUpdates true && git -C b worktree add -q main && sleep 0.1`, "")
	s.sh(`cp -r b/worktrees/main b/worktrees/x; mkdir b/logs; echo "gitdir: $PWD/b/worktrees/x" > b/logs/.git; ln -s /tmp/target b/logs/HEAD; ln -s /tmp/target b/main/mine`)
	s.sweep()
	if !s.gone("b/logs/HEAD") || s.gone("b/main/mine") {
		t.Error("want the link in logs gone, and the one in the worktree kept")
	}
}

// A link that one session makes elsewhere comes to a git directory with its folder, which is renamed in the next.
func TestSideDoor_FileLink_LinkInARenamedFolderIsTaken(t *testing.T) {
	const first, second = `mkdir p; ln -s "$PWD/../target" p/HEAD`, `mv .git/logs .git/l; mv p .git/logs`
	const commit = `git commit -q --allow-empty -m "what the agent chose"`
	written := func(s *session) bool { _, err := os.Stat(filepath.Join(s.root, "../target")); return err == nil }
	s := prepared(t, `git init -q . && git commit -q --allow-empty -m x`, "")
	if s.sh(first + "; " + second + "; touch ../target; " + commit + "; test -s ../target"); !written(s) {
		t.Error("this git does not write there")
	}
	s = start(t, `git init -q . && git commit -q --allow-empty -m x && mkdir .git/objects/d && ln -s ../pack .git/objects/d/mine && sleep 0.1`, "")
	s.sh(first)
	s.sweep()
	s.next()
	s.sh(second + `; mkdir .git/objects/d/new`)
	s.sweep()
	if !s.gone(".git/logs/HEAD") || s.gone(".git/objects/d/mine") {
		t.Error("want the link in the renamed folder gone, and the user's own kept")
	}
	if s.sh(commit); written(s) {
		t.Error("git wrote through the link")
	}
}

// Git writes to what a link in a git directory names with bytes of the commit, in a repository that a session made too.
func TestSideDoor_FileLink_LinkInANewRepositoryIsTaken(t *testing.T) {
	const agent = `git init -q r; cd r; git commit -q --allow-empty -m x; rm -f .git/COMMIT_EDITMSG; ln -s "$PWD/../../target" .git/COMMIT_EDITMSG; mkdir d; ln -s .git/HEAD d/mine`
	const commit = `cd r; GIT_EDITOR=true git commit -q --allow-empty -e -m "what the agent chose"`
	written := func(s *session) bool { _, err := os.Stat(filepath.Join(s.root, "../target")); return err == nil }
	s := prepared(t, `true`, "")
	if s.sh(agent + `; cd ..; ` + commit); !written(s) {
		t.Error("this git does not write there")
	}
	s = start(t, `true`, "")
	s.sh(agent)
	if r := s.sweep(); r.C != 0 {
		t.Errorf("got %+v, want nothing failed", r)
	}
	if s.sh(commit); written(s) || s.gone("r/d/mine") {
		t.Error("want nothing written, and the link in the worktree kept")
	}
}

func TestWatchReportsNewRepositories(t *testing.T) {
	s := start(t, `mkdir old && git init -q old/repo && sleep 0.1`, "")
	s.sh(`git init -q .`)
	s.await("repo.created", func() bool { return s.saw(event.RepoCreated, "file-git", "/ws/.git") })
	s.sh(`git init -q deep/er/repo && git init -q --bare bare`)
	if r := s.sweep(); r.A != 0 || r.B != 3 {
		t.Errorf("got %+v, want 3 repositories and nothing taken", r)
	}
}

func TestWatchHintsAtARefusedGitConfig(t *testing.T) {
	s := start(t, `git init -q .`, "")
	s.sh(`: > .git/config.lock; rm .git/config.lock`) // what git does when the rename over config is refused
	if r := s.receive(protect.Hint); r.A != protect.HintGitConfig {
		t.Errorf("hint: got %d", r.A)
	}
	s.await("the event", func() bool { return s.saw(event.FileDenied, "file-git", ".git/config") })
}

func TestWatchReportsWhatIsReplacedFromOutside(t *testing.T) {
	s := start(t, `git init -q .`, "")
	s.sh(`git config a.b c`)
	r := s.receive(protect.Replaced)
	if got := s.set.Existing[r.A].Rel; got != ".git/config" {
		t.Errorf("replaced: got %s", got)
	}
	s.await("the event", func() bool { return s.saw(event.LayerOpen, "file-git", ".git/config") })
	if s.gone(".git/config") {
		t.Error("the user's configuration was taken away")
	}
}

func TestWatchTakesAwayWithinMilliseconds(t *testing.T) {
	s := start(t, `true`, "")
	var times []time.Duration
	for range 50 {
		p := filepath.Join(s.root, ".mcp.json")
		if err := os.WriteFile(p, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for !s.gone(".mcp.json") {
			if time.Since(begin) > 5*time.Second {
				t.Fatal("it stays")
			}
		}
		times = append(times, time.Since(begin))
	}
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	t.Logf("window: median %v, worst of 50 %v", times[25], times[49])
	if times[25] > 50*time.Millisecond {
		t.Errorf("median %v", times[25])
	}
}
