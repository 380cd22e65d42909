package launcher

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sharness/sharness/internal/kerneltest"
)

// What a repository outside names in the workspace is known to who protects it: of a linked worktree, of a folder, and of a
// worktree with a configuration of its own. A repository that lies inside is the watcher's.
func TestConfigurationAroundTheWorkspaceIsRead(t *testing.T) {
	kerneltest.RequireRoot(t)
	const user = 4244
	base, err := os.MkdirTemp("/var/tmp", "sharness-around-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	if err := os.Chown(base, user, user); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-ec", `export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
		git init -q main; cd main; mkdir -p pkg/deep; echo >f; git add .; git commit -qm x; git config core.hooksPath tools/hooks; git config include.path ../pkg/more
		git worktree add -q ../linked; git config extensions.worktreeConfig true; git -C ../linked config --worktree core.hooksPath own
		cd ..; git init -q plain; mkdir none; ln -s ../main/.git none/.git; mkdir -p broken big/.git in; echo gitdir: gone >broken/.git; echo nothing >in/.git
		mkdir -p big/sub main/empty/.git main/nested; git init -q main/nested; git init -q main/nested/own; git -C main/nested config core.hooksPath own; mkdir -p 1/2/3/4/5/6; for d in 1 1/2 1/2/3 1/2/3/4 1/2/3/4/5; do git init -q $d; done; head -c 70000 /dev/zero >big/.git/config`)
	cmd.Dir, cmd.SysProcAttr = base, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for dir, want := range map[string]string{
		"linked":          base + "/linked: tools/hooks | " + base + "/linked: own",
		"main/pkg":        base + "/main: tools/hooks",
		"main/pkg/deep":   base + "/main: tools/hooks",
		"main/empty":      base + "/main: tools/hooks",
		"main/nested/own": base + "/main/nested: own | " + base + "/main: tools/hooks",
		"none":            base + "/none: tools/hooks",
		"main":            "", "plain": "", "broken": "", "in": "",
		"1/2/3/4/5": "", "1/2/3/4/5/6": "the workspace lies in more than 4 repositories",
		"big/sub": "is no regular file of at most 65536 bytes",
	} {
		ws, err := os.Open(filepath.Join(base, dir))
		if err != nil {
			t.Fatal(err)
		}
		list, err := (&Session{Workspace: ws, User: User{UID: user, GID: user}}).around()
		ws.Close()
		var got []string
		for _, a := range list {
			for _, hooks := range []string{"tools/hooks", "own"} {
				if strings.Contains(string(a.Text), "hooksPath = "+hooks+"\n") {
					got = append(got, a.Top+": "+hooks)
				}
			}
		}
		said := strings.Join(got, " | ")
		if err != nil {
			said = err.Error()
		}
		if said != want && (err == nil || !strings.Contains(said, want)) {
			t.Errorf("%s: got %q, want %q", dir, said, want)
		}
	}
	// Not what root may read and the user may not.
	if err := os.Chown(base+"/main/.git", 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(base+"/main/.git", 0o700); err != nil {
		t.Fatal(err)
	}
	ws, err := os.Open(base + "/main/pkg")
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	if list, err := (&Session{Workspace: ws, User: User{UID: user, GID: user}}).around(); err != nil || len(list) != 0 {
		t.Errorf("got %d configurations, %v, want nothing of what the user may not read", len(list), err)
	}
}
