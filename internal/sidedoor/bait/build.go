package bait

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build compiles the probe twice into dir: static, and linked by the system's linker so that the dynamic loader starts
// it. Some doors exist only for the second.
func Build(dir string) (static, dynamic string, err error) {
	static, dynamic = filepath.Join(dir, "sharness-probe"), filepath.Join(dir, "sharness-probe-dynamic")
	const pkg = "github.com/sharness/sharness/cmd/sharness-probe"
	for _, b := range []struct {
		cgo  string
		args []string
	}{
		{"CGO_ENABLED=0", []string{"build", "-o", static, pkg}},
		{"CGO_ENABLED=1", []string{"build", "-ldflags=-linkmode=external", "-o", dynamic, pkg}},
	} {
		cmd := exec.Command("go", b.args...)
		cmd.Env = append(os.Environ(), b.cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", "", fmt.Errorf("go build %s: %w: %s", pkg, err, out)
		}
	}
	return static, dynamic, nil
}

// Repository makes a workspace with a repository in it, owned by uid and gid: a commit, a linked worktree, and the git
// directory of a submodule, so that each file that git obeys has an instance.
func Repository(dir string, uid, gid int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "README"), []byte("workspace of a test\n"), 0o644); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"init", "-q", "."},
		{"add", "README"},
		{"-c", "user.name=n", "-c", "user.email=n@example.com", "commit", "-q", "-m", "first"},
		{"worktree", "add", "-q", "worktree"},
		{"init", "-q", "--bare", ".git/modules/sub"},
	} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", args[0], err, out)
		}
	}
	return filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, gid)
	})
}
