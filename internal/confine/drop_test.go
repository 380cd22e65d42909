package confine

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
)

// dropReply has the status of every thread after the drop, and what happened to each attempt to use what was given up.
type dropReply struct {
	Threads []map[string]string
	Tries   map[string][]string
}

// The order of the stage.
func dropChild(json.RawMessage) (any, error) {
	w := startWitnesses(3)
	err := errors.Join(DropBounding(), LockSecurebits(), SetIDs(testUID, testUID), ClearCaps(), NoNewPrivs(), NotDumpable())
	if err != nil {
		return nil, err
	}
	reply := dropReply{Tries: map[string][]string{}}
	for name, try := range dropTries {
		reply.Tries[name] = w.each(func() string { return text(try()) })
	}
	paths, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		status, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		reply.Threads = append(reply.Threads, parseStatus(string(status)))
	}
	return reply, nil
}

func parseStatus(status string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.Join(strings.Fields(value), " ")
	}
	return fields
}

var dropTries = map[string]func() error{
	"setuid 0":    func() error { return raw(unix.SYS_SETUID, 0, 0, 0) },
	"setgid 0":    func() error { return raw(unix.SYS_SETGID, 0, 0, 0) },
	"setgroups 0": func() error { return raw(unix.SYS_SETGROUPS, 0, 0, 0) },
	"chroot":      func() error { return unix.Chroot("/") },
	"mount":       func() error { return unix.Mount("none", "/mnt", "tmpfs", 0, "") },
	"raise caps":  raiseCaps,
	"raise ambient": func() error {
		return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SYS_ADMIN, 0, 0)
	},
	"securebits":    func() error { return unix.Prctl(unix.PR_SET_SECUREBITS, 0, 0, 0, 0) },
	"keep caps":     func() error { return unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0) },
	"signal pid 1":  func() error { return unix.Kill(1, 0) },
	"nnp off":       func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0) },
	"own memory":    func() error { return open("/proc/self/mem") },
	"others' files": func() error { return open("/etc/shadow") },
}

var dropWant = map[string]unix.Errno{
	"setuid 0": unix.EPERM, "setgid 0": unix.EPERM, "setgroups 0": unix.EPERM, "chroot": unix.EPERM, "mount": unix.EPERM,
	"raise caps": unix.EPERM, "raise ambient": unix.EPERM, "securebits": unix.EPERM, "keep caps": unix.EPERM,
	"signal pid 1": unix.EPERM, "nnp off": unix.EINVAL, "own memory": unix.EACCES, "others' files": unix.EACCES,
}

func raw(nr, a, b, c uintptr) error {
	if _, _, errno := unix.RawSyscall(nr, a, b, c); errno != 0 {
		return errno
	}
	return nil
}

func raiseCaps() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	all := [2]unix.CapUserData{{Effective: 1, Permitted: 1}, {}}
	return raw(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&all[0])), 0)
}

func open(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func TestDropReachesEveryThread(t *testing.T) {
	kerneltest.RequireRoot(t)
	var got dropReply
	kerneltest.Child{Name: "drop", Reply: &got}.Run(t)
	if len(got.Threads) < 4 {
		t.Fatalf("want the status of at least 4 threads, got %d", len(got.Threads))
	}
	const none, id = "0000000000000000", "1900190001 1900190001 1900190001 1900190001"
	for field, want := range map[string]string{
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
		"Uid": id, "Gid": id, "Groups": "", "NoNewPrivs": "1",
	} {
		for _, thread := range got.Threads {
			if thread[field] != want {
				t.Errorf("%s of thread %s: want %q, got %q", field, thread["Pid"], want, thread[field])
			}
		}
	}
}

func TestDropCannotBeTakenBack(t *testing.T) {
	kerneltest.RequireRoot(t)
	var got dropReply
	kerneltest.Child{Name: "drop", Reply: &got}.Run(t)
	for name := range dropTries {
		wantAll(t, name, dropWant[name].Error(), got.Tries[name])
	}
}

func TestSetIDsRefusesRootAndUnchanged(t *testing.T) {
	for _, id := range []int{0, -1, 1<<32 - 1} {
		if SetIDs(id, testUID) == nil || SetIDs(testUID, id) == nil {
			t.Fatalf("want id %d refused", id)
		}
	}
	if os.Getuid() == testUID || os.Getgid() == testUID {
		t.Error("want nothing changed by a refused call")
	}
}
