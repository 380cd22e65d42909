package protect

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sharness/sharness/internal/kerneltest"
	"golang.org/x/sys/unix"
)

// user is an id that no machine gives to anybody.
const user = 1899999001

func TestMain(m *testing.M) {
	kerneltest.Main(m, map[string]kerneltest.Func{"discover": discoverChild, "view": viewChild})
}

type discoverInput struct {
	Options Options
}

// discoverChild runs as the user, as the watcher does.
func discoverChild(input json.RawMessage) (any, error) {
	var in discoverInput
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, err
	}
	root, err := os.Open(in.Options.Root)
	if err != nil {
		return nil, err
	}
	s, err := Discover(root, in.Options)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = s.Encode(&b)
	return b.Bytes(), err
}

func discover(t *testing.T, opts Options) *Set {
	t.Helper()
	var encoded []byte
	kerneltest.Child{Name: "discover", Input: discoverInput{opts}, Reply: &encoded, Setup: func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	}}.Run(t)
	s, err := Decode(bytes.NewReader(encoded))
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.Open(opts.Root)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := Verify(int(root.Fd()), s); err != nil {
		t.Fatal(err)
	}
	return s
}

type viewInput struct {
	Root   string
	Set    []byte
	Script string
}

type viewReply struct {
	Missing []string
	Output  string
	Exit    int
}

// viewChild is in a mount namespace of its own: it attaches the set as root and runs the script as the user.
func viewChild(input json.RawMessage) (any, error) {
	var in viewInput
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, err
	}
	s, err := Decode(bytes.NewReader(in.Set))
	if err != nil {
		return nil, err
	}
	root, err := os.Open(in.Root)
	if err != nil {
		return nil, err
	}
	missing, err := Attach(int(root.Fd()), Mounts(s, ""))
	if err != nil {
		return nil, err
	}
	cmd := userCommand(in.Root, "/bin/sh", "-c", in.Script)
	out, err := cmd.CombinedOutput()
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		return nil, err
	}
	return viewReply{missing, string(out), cmd.ProcessState.ExitCode()}, nil
}

// view runs a script as the user in a view of root in which the set is protected.
func view(t *testing.T, root string, s *Set, script string) viewReply {
	t.Helper()
	var b bytes.Buffer
	if err := s.Encode(&b); err != nil {
		t.Fatal(err)
	}
	var reply viewReply
	kerneltest.Child{Name: "view", Input: viewInput{Root: root, Set: b.Bytes(), Script: script}, Reply: &reply, Setup: func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	}}.Run(t)
	return reply
}

func userCommand(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C", "GIT_EDITOR=true",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=protocol.file.allow", "GIT_CONFIG_VALUE_0=always",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	return cmd
}

// host runs a script as the user, outside of every view.
func host(t *testing.T, dir, script string) string {
	t.Helper()
	out, err := userCommand(dir, "/bin/sh", "-ec", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

// workspace makes a folder of the user and runs a script in it.
func workspace(t *testing.T, script string) string {
	t.Helper()
	kerneltest.RequireRoot(t)
	kerneltest.RequireProgram(t, "/usr/bin/git")
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // the user has to get there
		t.Fatal(err)
	}
	root := filepath.Join(dir, "ws")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{root, dir} {
		if err := os.Chown(d, user, user); err != nil {
			t.Fatal(err)
		}
	}
	host(t, root, script)
	return root
}

// repository is a workspace with what people have: hooks, a worktree, a submodule, husky, an included configuration.
const repository = `
git init -q -b main . && echo one > a && git add a && git commit -q -m one
git init -q -b main ../lib && (cd ../lib && echo lib > l && git add l && git commit -q -m lib)
git submodule --quiet add ../lib sub && git commit -q -m sub
git worktree add -q wt -b side && echo wt >> .git/info/exclude
mkdir -p .husky/_ .claude && echo true > .husky/pre-commit && echo true > .husky/_/h && echo '{}' > .claude/settings.json
git config core.hooksPath .husky/_ && git config include.path ../team.gitconfig && echo > team.gitconfig
git add .husky .claude team.gitconfig && git commit -q -m settings --no-verify`
