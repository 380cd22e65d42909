package launcher

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
)

// One group from its making to its end, on whichever layout the host has: pure cgroup2, or version 1 with a twin.
func TestGroupHoldsAndKillsItsMembers(t *testing.T) {
	c := testGroup(t, "life", cgroupLimits{pids: 8, memory: 64 << 20})
	cmd := exec.Command("/bin/sleep", "60")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := startIn(c, cmd); err != nil {
		t.Fatal(err)
	}
	if in, err := c.contains(cmd.Process.Pid); err != nil || !in {
		t.Errorf("born inside: %v, %v", in, err)
	}
	if in, err := c.contains(os.Getpid()); err != nil || in {
		t.Errorf("the supervisor is a member: %v, %v", in, err)
	}
	if err := c.kill(); err != nil {
		t.Error(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the member ended with %v, want SIGKILL", err)
	}
	if err := c.delete(); err != nil {
		t.Error(err)
	}
	for _, dir := range c.dirs {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", dir, err)
		}
	}
	// The cleanup ends and removes it again, as two sides of a session may do.
}

func TestGroupSaysWhichLimitWasMet(t *testing.T) {
	c := testGroup(t, "hits", cgroupLimits{pids: 8, memory: 16 << 20})
	for _, x := range []struct {
		script       string
		pids, memory bool
	}{
		{"exit 0", false, false},
		{"head -c 200m /dev/zero | tail", false, true},
		{"for i in 1 2 3 4 5 6 7 8 9; do sleep 0.2 & done; wait", true, true},
	} {
		out, err := runIn(c, "/bin/sh", "-c", x.script)
		if pids, memory := c.hits(); pids != x.pids || memory != x.memory {
			t.Errorf("%s: met pids %v, memory %v; want %v, %v; %v %s", x.script, pids, memory, x.pids, x.memory, err, out)
		}
	}
}

func TestGroupIsUsedAgainOnlyIfItReadsLikeANewOne(t *testing.T) {
	dir, err := os.MkdirTemp("/var/lib", "sharness-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for name, x := range map[string]struct {
		script string
		again  bool
	}{
		"nothing":             {"exit 0", true},
		"some processes":      {"true; true | true", true},
		"its pids":            {"for i in 1 2 3 4 5 6 7 8 9; do sleep 0.2 & done; wait", false},
		"its memory":          {"head -c 200m /dev/zero | tail", false},
		"nearly all of it":    {"head -c 200m /dev/zero >" + dir + "/big", false}, // reclaimed, and nobody was killed
		"a file that stays":   {"head -c 8m /dev/zero >" + dir + "/some", false},
		"somebody runs still": {"exit 0", false},
	} {
		t.Run(name, func(t *testing.T) {
			var r retired
			c := testGroup(t, "again", cgroupLimits{pids: 8, memory: 16 << 20})
			c.retired, c.slot, c.files = &r, 3, map[string]*os.File{}
			defer func() {
				c.retired = nil
				if err := r.finish(); err != nil {
					t.Error(err)
				}
			}()
			_, _ = runIn(c, "/bin/sh", "-c", x.script) // how it ends says nothing
			if name == "somebody runs still" {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				cmd := exec.Command("/bin/sleep", "60")
				if err := startIn(c, cmd); err != nil {
					t.Fatal(err)
				}
				defer cmd.Wait()
				defer cmd.Process.Kill()
			}
			if err := c.delete(); err != nil {
				t.Fatal(err)
			}
			if other := r.again(4); other != nil {
				t.Error("another slot gets it")
			}
			if got := r.again(3); (got == c) != x.again || got != nil && r.again(3) != nil {
				t.Errorf("used again: %v, want %v", got == c, x.again)
			}
		})
	}
}

func TestGroupsOfManyCommandsGoInALull(t *testing.T) {
	var r retired
	c := testGroup(t, "cold", cgroupLimits{pids: 8, memory: 16 << 20})
	for slot, want := range map[int]bool{warmSlots - 1: true, warmSlots: false} {
		c.retired, c.slot, c.files = &r, slot, map[string]*os.File{}
		if err := c.delete(); err != nil {
			t.Fatal(err)
		}
		r.trim()
		if got := r.again(slot); (got == c) != want {
			t.Errorf("of slot %d: waits %v, want %v", slot, got == c, want)
		}
	}
	c.retired = nil
	if err := r.finish(); err != nil {
		t.Error(err)
	}
}
