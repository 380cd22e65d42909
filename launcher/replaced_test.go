package launcher

import (
	"errors"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/launcher/protect"
)

// A command may end in the moment in which somebody replaces a protected file: that is no failure to protect it.
func TestProcessThatIsEndingHasNoViewToProtect(t *testing.T) {
	cmd := exec.Command("/bin/true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if err := rebind(cmd.Process.Pid, t.TempDir(), protect.Mount{}); !errors.Is(err, errNoView) {
		t.Errorf("a zombie: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := rebind(cmd.Process.Pid, t.TempDir(), protect.Mount{}); !errors.Is(err, errNoView) {
		t.Errorf("a process that is gone: %v", err)
	}
}
