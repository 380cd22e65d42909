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
	if err := c.with(func(fd int) error {
		if c.v2 != nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
		}
		return cmd.Start()
	}); err != nil {
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
