package confine

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
)

// Descriptors that the tests below give to their children, after those of kerneltest.
const (
	keptFD   = 5
	closedFD = 6
)

func withFiles(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	for range 2 {
		f, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
}

func closeChild(input json.RawMessage) (any, error) {
	time.Sleep(time.Microsecond) // a timer starts the runtime's poller, whose descriptors must survive
	how, err := decode[string](input)
	if err != nil {
		return nil, err
	}
	if how == "cloexec" {
		err = CloexecAbove(4, keptFD, 4, 0)
	} else {
		err = CloseAbove(4, keptFD)
	}
	if err != nil {
		return nil, err
	}
	time.Sleep(time.Microsecond)
	flags := map[int]string{}
	for fd := range 10 {
		got, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		switch {
		case err != nil:
			flags[fd] = "closed"
		case got&unix.FD_CLOEXEC != 0:
			flags[fd] = "cloexec"
		default:
			flags[fd] = "open"
		}
	}
	return flags, nil
}

func TestCloseAboveClosesWhatWasInherited(t *testing.T) {
	var got map[int]string
	kerneltest.Child{Name: "close", Input: "close", Reply: &got, Setup: func(c *exec.Cmd) { withFiles(t, c) }}.Run(t)
	if got[0] != "open" || got[4] != "open" || got[keptFD] != "open" || got[closedFD] != "closed" {
		t.Errorf("want 0, 4 and %d open and %d closed, got %v", keptFD, closedFD, got)
	}
}

func TestCloexecAboveMarksAllButTheKept(t *testing.T) {
	var got map[int]string
	kerneltest.Child{Name: "close", Input: "cloexec", Reply: &got, Setup: func(c *exec.Cmd) { withFiles(t, c) }}.Run(t)
	if got[2] != "open" || got[4] != "open" || got[keptFD] != "open" || got[closedFD] != "cloexec" {
		t.Errorf("want 2, 4 and %d open and %d marked, got %v", keptFD, closedFD, got)
	}
	for fd, state := range got {
		if fd > 2 && state == "open" && !slices.Contains([]int{4, keptFD}, fd) {
			t.Errorf("descriptor %d: want it marked or closed, got %s", fd, state)
		}
	}
}

func selfChild(json.RawMessage) (any, error) {
	w := startWitnesses(2)
	abi, err := LandlockABI()
	if err != nil {
		return nil, err
	}
	layer := Landlock{ABI: min(abi, MaxLandlockABI), FS: true, Net: abi >= 4, Scoped: abi >= 6}
	if err := Self(Drop{Keep: []int{4}, Landlock: layer, Seccomp: [][]byte{denyPPID()}}); err != nil {
		return nil, err
	}
	tries := map[string][]string{}
	for name, try := range map[string]func() error{
		"getppid":  getppid,
		"open":     func() error { return open("/etc/passwd") },
		"inherit":  func() error { return raw(unix.SYS_FCNTL, closedFD, unix.F_GETFD, 0) },
		"setuid":   func() error { return raw(unix.SYS_SETUID, 0, 0, 0) },
		"dumpable": func() error { return open("/proc/self/mem") },
	} {
		tries[name] = w.each(func() string { return text(try()) })
	}
	return tries, nil
}

func TestSelfConfinesAHelper(t *testing.T) {
	kerneltest.RequireRoot(t)
	kerneltest.RequireLandlock(t, 1)
	for name, setup := range map[string]func(*exec.Cmd){
		"started by root": func(c *exec.Cmd) { withFiles(t, c) },
		"started with an id": func(c *exec.Cmd) {
			withFiles(t, c)
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testUID, Gid: testUID}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got map[string][]string
			kerneltest.Child{Name: "self", Reply: &got, Setup: setup}.Run(t)
			wantAll(t, "getppid", unix.EXDEV.Error(), got["getppid"])
			wantAll(t, "open", unix.EACCES.Error(), got["open"])
			wantAll(t, "inherited descriptor", unix.EBADF.Error(), got["inherit"])
			wantAll(t, "own memory", unix.EACCES.Error(), got["dumpable"])
			if name == "started with an id" {
				wantAll(t, "setuid 0", unix.EPERM.Error(), got["setuid"])
			}
		})
	}
}

func TestSelfRefusesToSkipALayer(t *testing.T) {
	for name, d := range map[string]Drop{
		"no landlock": {Seccomp: [][]byte{denyPPID()}},
		"no seccomp":  {Landlock: Landlock{ABI: 1, FS: true}},
	} {
		if err := Self(d); err == nil || !strings.Contains(err.Error(), "not confined") {
			t.Errorf("%s: want it refused, got %v", name, err)
		}
	}
}
