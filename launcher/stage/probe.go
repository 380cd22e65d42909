package stage

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What the self-probe can try. Each one is an attempt that the finished domain must refuse; it runs in the process
// that executes the target next, under the very domain the target gets.
const (
	TryExec      Try = "exec"     // execute Path, which is not pinned
	TryWrite     Try = "write"    // open Path for writing
	TryMemfd     Try = "memfd"    // memfd_create
	TryNewUser   Try = "new-user" // unshare(CLONE_NEWUSER)
	TryMount     Try = "mount"    // mount a tmpfs on /
	TryPtrace    Try = "ptrace"   // ptrace(PTRACE_TRACEME)
	TrySignalOne Try = "signal"   // kill(1, 0): pid 1 has the same uid, only a Landlock scope refuses it
	TryIOUring   Try = "io-uring" // io_uring_setup
	TryBPF       Try = "bpf"      // bpf(BPF_MAP_CREATE)
	TryVsock     Try = "vsock"    // socket(AF_VSOCK)
	TryMPTCP     Try = "mptcp"    // socket(…, IPPROTO_MPTCP)
	TryCaps      Try = "caps"     // all five capability sets empty, no_new_privs set, seccomp on
	TryConnect   Try = "connect"  // TCP to a port that no rule grants
	TryMapExec   Try = "map-exec" // map Path executable, which is not pinned
	TrySetID     Try = "set-id"   // chmod with a set-uid bit, which only the second filter refuses
	TryMFDExec   Try = "mfd-exec" // find vm.memfd_noexec of this pid namespace below 2
	TryNoexec    Try = "noexec"   // find the mount that Path is on executable
	TryReadOnly  Try = "readonly" // find the mount that Path is on writable
	TryFifo      Try = "fifo"     // make a FIFO in the folder Path, which only Landlock refuses
	TryCore      Try = "core"     // find a limit of core files at which a piped handler is started
	TryUID       Try = "uid"      // find itself with the uid that Path is outside, the user's
	TryNetNS     Try = "net-ns"   // find itself in the network namespace that Path names (net:[NUMBER]), the host's
)

// run makes the attempt and returns an error when it was not refused.
func (c Check) run() error {
	err := c.attempt()
	if err != nil {
		return fmt.Errorf("self-probe: door %s is open (%s %s): %w; refusing to start", c.Door, c.Try, c.Path, err)
	}
	return nil
}

var errOpened = errors.New("the attempt was not refused")

// attempt returns nil when the door held. Only a refusal counts: any other errno could hide a broken attempt.
func (c Check) attempt() error {
	switch c.Try {
	case TryExec:
		_, err := syscall.ForkExec(c.Path, []string{c.Path}, &syscall.ProcAttr{Env: []string{}, Files: []uintptr{}})
		return refused(err, unix.EACCES)
	case TryWrite:
		fd, err := unix.Open(c.Path, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
		if err == nil {
			unix.Close(fd)
		}
		return refused(err, unix.EACCES, unix.EROFS, unix.EPERM)
	case TryMemfd:
		fd, err := unix.MemfdCreate("probe", unix.MFD_CLOEXEC)
		if err == nil {
			unix.Close(fd)
		}
		return refused(err, unix.ENOSYS)
	case TryNewUser:
		return refused(unix.Unshare(unix.CLONE_NEWUSER), unix.EPERM)
	case TryMount:
		return refused(unix.Mount("none", "/", "tmpfs", 0, ""), unix.EPERM)
	case TryPtrace:
		return refused(errnoOf(unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0), unix.EPERM)
	case TrySignalOne:
		return refused(unix.Kill(1, 0), unix.EPERM)
	case TryIOUring:
		var params [120]byte
		return refused(errnoOf(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params[0])), 0), unix.ENOSYS, unix.EPERM)
	case TryBPF:
		return refused(errnoOf(unix.SYS_BPF, 0, 0, 0), unix.EPERM)
	case TryVsock:
		return refused(socketErr(unix.AF_VSOCK, unix.SOCK_STREAM, 0), unix.EPERM, unix.EAFNOSUPPORT)
	case TryMPTCP:
		return refused(socketErr(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP), unix.EPERM, unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT)
	case TryCaps:
		return checkStatus()
	case TryConnect:
		return tryConnect()
	case TryMapExec:
		return tryMapExec(c.Path)
	case TrySetID:
		// No such descriptor: behind the filter the answer would be EBADF.
		return refused(unix.Fchmod(-1, unix.S_ISUID|0o755), unix.EPERM)
	case TryMFDExec:
		return fileSays("/proc/sys/vm/memfd_noexec", "2")
	case TryNoexec:
		return mountHas(c.Path, unix.ST_NOEXEC)
	case TryReadOnly:
		return mountHas(c.Path, unix.ST_RDONLY)
	case TryFifo:
		return tryFifo(c.Path)
	case TryCore:
		return tryCore()
	case TryUID:
		return tryUID(c.Path)
	case TryNetNS:
		return tryNetNS(c.Path)
	}
	return fmt.Errorf("unknown attempt %q", c.Try)
}

// tryUID asks what the process's uid is outside: inside it may look like the user's.
func tryUID(user string) error {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		var inside, outside, n int
		if _, err := fmt.Sscan(line, &inside, &outside, &n); err != nil {
			return fmt.Errorf("/proc/self/uid_map: %w", err)
		}
		if d := unix.Getuid() - inside; d >= 0 && d < n {
			if got := strconv.Itoa(outside + d); got == user {
				return fmt.Errorf("the uid is %s outside", got)
			}
			return nil
		}
	}
	return errors.New("the uid is in no line of /proc/self/uid_map")
}

func refused(err error, want ...syscall.Errno) error {
	if err == nil {
		return errOpened
	}
	for _, w := range want {
		if errors.Is(err, w) {
			return nil
		}
	}
	return fmt.Errorf("not refused as it should be: %w", err)
}

func errnoOf(nr, a, b, c uintptr) error {
	if _, _, e := unix.Syscall(nr, a, b, c); e != 0 {
		return e
	}
	return nil
}

func socketErr(family, typ, proto int) error {
	fd, err := unix.Socket(family, typ|unix.SOCK_CLOEXEC, proto)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// tryConnect connects to a port of loopback that no rule grants: Landlock answers EACCES before the connection is tried.
func tryConnect() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	return refused(unix.Connect(fd, &unix.SockaddrInet4{Port: 1, Addr: [4]byte{127, 0, 0, 1}}), unix.EACCES)
}

func tryMapExec(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return refused(err, unix.EACCES)
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err == nil {
		_ = unix.Munmap(m)
	}
	return refused(err, unix.EPERM, unix.EACCES)
}

// fileSays reads back a setting that cannot be tried.
func fileSays(path, want string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if got := strings.TrimSpace(string(data)); got != want {
		return fmt.Errorf("it says %q, not %q", got, want)
	}
	return nil
}

// mountHas asks for a flag of the mount that path is on: where Landlock refuses too, an attempt would not tell whether
// the mount holds (statfs(2)).
func mountHas(path string, flag int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	if st.Flags&flag == 0 {
		return fmt.Errorf("mount flags %#x lack %#x", st.Flags, flag)
	}
	return nil
}

// tryFifo takes a name that nobody can have put there: EEXIST would come before the answer looked for.
func tryFifo(dir string) error {
	path := filepath.Join(dir, ".sharness-probe-"+rand.Text())
	err := unix.Mkfifo(path, 0o600)
	if err == nil {
		_ = os.Remove(path) // the start is refused anyway
	}
	return refused(err, unix.EACCES, unix.EROFS)
}

// tryCore: at 1 the kernel starts no piped handler, and nobody may raise it (core(5)).
func tryCore() error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &l); err != nil {
		return fmt.Errorf("getrlimit: %w", err)
	}
	if l.Max > 1 {
		return fmt.Errorf("RLIMIT_CORE may be raised to %d", l.Max)
	}
	return nil
}

func tryNetNS(host string) error {
	got, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return fmt.Errorf("readlink: %w", err)
	}
	if got == host || !strings.HasPrefix(host, "net:[") {
		return fmt.Errorf("the network namespace is %s", got)
	}
	return nil
}

// checkStatus reads what the kernel says of this process: it is the read-back of the drop.
func checkStatus() error {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Errorf("read /proc/self/status: %w", err)
	}
	want := map[string]string{"NoNewPrivs": "1", "Seccomp": "2", "Groups": ""}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		want[set] = "0000000000000000"
	}
	for line := range bytes.Lines(data) {
		name, value, _ := strings.Cut(string(line), ":")
		if w, ok := want[name]; ok && strings.TrimSpace(value) != w {
			return fmt.Errorf("%s is %q, not %q", name, strings.TrimSpace(value), w)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		return fmt.Errorf("/proc/self/status lacks %d of the lines looked for", len(want))
	}
	return nil
}
