package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/launcher"
	"github.com/sharness/sharness/manifest"
)

// broken builds a sharness that leaves out what SHARNESS_BREAK names, with its programs beside it.
func broken(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/lib", "sharness-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sharness-bash", "sharness-box", "sharness-init", "sharness-bashd", "sharness-relay", "sharness-agent", "sharness-watch", "sharness-probe"} {
		data, err := os.ReadFile(helper(t, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "sharness")
	if out, err := exec.Command("go", "build", "-tags", "sharness_broken", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// TestBrokenLayerIsNoticed leaves out one layer at a time behind the plan's back, as a defect of ours would: enforce must
// refuse to start and prove must fail. With the self-probe left out as well, the attempts must find what hangs on that layer.
func TestBrokenLayerIsNoticed(t *testing.T) {
	requireBait(t)
	sharness, tried := broken(t), map[string]bool{}
	for _, c := range []struct{ layer, refused, door, open string }{
		{"landlock", "door pid1 is open", "file-fifo", "file-fifo/mkfifo is OPEN"},
		{"view", "door exec-inject is open", "exec-inject", "exec-inject/map-workspace is OPEN"},
		{"seccomp", "door ns is open", "ns", "ns/unshare-user is OPEN"},
		{"memfd", "door exec-memfd is open", "exec-memfd", ""}, // seccomp closes it too
		{"net", "door net-udp is open", "net-udp", "net-udp/sendto is OPEN"},
		{"mount", "door file-proc is open", "file-secret", ""},
		{"uid", "door sig is open", "file-secret", ""},
		{"cgroup", "door orch-bomb is open", "orch-bomb", "orch-bomb/memory is OPEN"},
		{"rlimit", "door core-helper is open", "core-helper", "core-helper/limit is OPEN"},
		{"env", "door inherit-env is open", "inherit-env", "inherit-env/secret is OPEN"},
		{"protect", "door file-git is open", "file-git", "file-git/write-config is OPEN"},
	} {
		tried[c.layer] = true
		t.Run(c.layer, func(t *testing.T) {
			s := newSiege(t, "sharness-probe", manifest.AccessWrite)
			s.sharness = sharness
			cmd := s.command(t.Context(), "--list")
			cmd.Env = append(cmd.Env, "SHARNESS_BREAK="+c.layer)
			out, err := cmd.CombinedOutput()
			if status(err) < 125 || !strings.Contains(string(out), c.refused) || strings.Contains(string(out), "exec-direct/") {
				t.Errorf("enforce: %v, want it refused for %q\n%.500s", err, c.refused, out)
			}
			code, said := proveBroken(t, sharness, c.layer, c.door)
			if code != 1 || !strings.Contains(said, c.refused) {
				t.Errorf("prove: status %d, want 1 and %q\n%s", code, c.refused, said)
			}
			if c.open == "" {
				return
			}
			if code, said := proveBroken(t, sharness, c.layer+",self-probe", c.door); code != 1 || !strings.Contains(said, c.open) {
				t.Errorf("prove without self-probe: status %d, want 1 and %q\n%s", code, c.open, said)
			}
		})
	}
	if code, said := proveBroken(t, sharness, "", "exec-memfd"); code != 0 {
		t.Errorf("nothing broken: status %d\n%s", code, said)
	}
	for _, l := range launcher.Removable() {
		if !tried[string(l)] {
			t.Errorf("%s: not tried", l)
		}
	}
}

func proveBroken(t *testing.T, sharness, layers, door string) (code int, said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, sharness, "prove", "--door", door)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "SHARNESS_BREAK=" + layers}
	out, err := cmd.CombinedOutput()
	return status(err), string(out)
}

func status(err error) int {
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

// TestProveFromASandbox attacks from commands what an orchestrator attacks from its domain, and the doors that only a
// command has: the session around it, limits, what later commands trust, daemons, output.
func TestProveFromASandbox(t *testing.T) {
	requireBait(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, helper(t, "sharness"), "prove", "--sandbox", "--all").CombinedOutput()
	if err != nil {
		t.Fatalf("sharness prove --sandbox: %v\n%s", err, out)
	}
	for _, d := range sidedoor.Doors() {
		if d.Group == sidedoor.Command && !strings.Contains(string(out), "\n"+d.ID+" ") {
			t.Errorf("%s: no line\n", d.ID)
		}
	}
}
