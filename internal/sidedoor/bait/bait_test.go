package bait

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sharness/sharness/internal/kerneltest"
	"github.com/sharness/sharness/internal/sidedoor/probe"
)

const loader = "/lib64/ld-linux-x86-64.so.2"

// A payload that nothing would run makes every attempt with it look closed.
func TestPayloadsRunWhereNothingIsInTheWay(t *testing.T) {
	dir := t.TempDir()
	object, program := filepath.Join(dir, "object"), filepath.Join(dir, "program")
	if err := errors.Join(os.WriteFile(object, image(""), 0o755), os.WriteFile(program, image(loader), 0o755)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		env  string
		argv []string
	}{
		"executed":          {"", []string{program}},
		"by the loader":     {"", []string{loader, program}},
		"preloaded":         {"LD_PRELOAD=" + object, []string{"/usr/bin/env"}},
		"as audit module":   {"LD_AUDIT=" + object, []string{"/usr/bin/env"}},
		"by loader options": {"", []string{loader, "--preload", object, "/usr/bin/env"}},
	} {
		cmd := exec.Command(c.argv[0], c.argv[1:]...)
		cmd.Env = []string{c.env}
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != probe.PayloadStatus {
			t.Errorf("%s: %v, want exit status %d\n%s", name, err, probe.PayloadStatus, out)
		}
	}
}

func TestRepositoryIsOneToGit(t *testing.T) {
	kerneltest.RequireProgram(t, "/usr/bin/git")
	dir := filepath.Join(t.TempDir(), "ws")
	if err := Repository(dir, os.Getuid(), os.Getgid()); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-C", dir, "status"}, {"-C", filepath.Join(dir, "worktree"), "status"}, {"--git-dir", filepath.Join(dir, ".git/modules/sub"), "rev-parse", "--git-dir"}} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Errorf("git %v: %v\n%s", args, err, out)
		}
	}
}
