package sessiontest

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inside makes a running process call the kernel as if its own code did: what a hole in its parser would give away.
type inside struct {
	t    *testing.T
	pid  int
	at   uint64 // of a syscall instruction
	regs unix.PtraceRegs
	mem  *os.File
}

// take stops one thread of a process. The caller's thread is locked, as ptrace wants it.
func take(t *testing.T, pid int) *inside {
	t.Helper()
	in := &inside{t: t, pid: pid}
	if err := ptrace(unix.PTRACE_SEIZE, pid, 0, 0); err != nil {
		t.Fatalf("ptrace: seize %d: %v", pid, err)
	}
	if err := unix.PtraceInterrupt(pid); err != nil {
		t.Fatalf("ptrace: interrupt: %v", err)
	}
	in.wait()
	var err error
	if in.mem, err = os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.PtraceGetRegs(pid, &in.regs); err != nil {
		t.Fatal(err)
	}
	in.at = syscallInstruction(t, fmt.Sprintf("/proc/%d/exe", pid))
	return in
}

func ptrace(request int, pid int, addr, data uintptr) error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, uintptr(request), uintptr(pid), addr, data, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (in *inside) wait() {
	in.t.Helper()
	var ws unix.WaitStatus
	if _, err := unix.Wait4(in.pid, &ws, unix.WALL, nil); err != nil || !ws.Stopped() {
		in.t.Fatalf("wait for %d: %v, %#x", in.pid, err, ws)
	}
}

// syscallInstruction finds one in the text of a static program, which lies where the file says.
func syscallInstruction(t *testing.T, path string) uint64 {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := f.Section(".text")
	data, err := text.Data()
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(data, []byte{0x0f, 0x05})
	if f.Type != elf.ET_EXEC || at < 0 {
		t.Fatalf("%s is no static program with a system call", path)
	}
	return text.Addr + uint64(at)
}

// call makes one system call there. Text arguments are put below its stack.
func (in *inside) call(nr uint64, args ...any) syscall.Errno {
	in.t.Helper()
	regs := in.regs
	free := (regs.Rsp - 4096) &^ 15
	var word [6]uint64
	for i, a := range args {
		switch a := a.(type) {
		case int:
			word[i] = uint64(a)
		case []byte:
			if _, err := in.mem.WriteAt(append(a, 0), int64(free)); err != nil {
				in.t.Fatal(err)
			}
			word[i] = free
			free += 512
		}
	}
	regs.Rip, regs.Rax, regs.Orig_rax = in.at, nr, ^uint64(0)
	regs.Rdi, regs.Rsi, regs.Rdx, regs.R10, regs.R8, regs.R9 = word[0], word[1], word[2], word[3], word[4], word[5]
	if err := unix.PtraceSetRegs(in.pid, &regs); err != nil {
		in.t.Fatal(err)
	}
	if err := unix.PtraceSingleStep(in.pid); err != nil {
		in.t.Fatal(err)
	}
	in.wait()
	if err := unix.PtraceGetRegs(in.pid, &regs); err != nil {
		in.t.Fatal(err)
	}
	if n := int64(regs.Rax); n < 0 && n > -4096 {
		return syscall.Errno(-n)
	}
	return 0
}

// leave lets the process go on as if nothing had been.
func (in *inside) leave() {
	in.mem.Close()
	if err := unix.PtraceSetRegs(in.pid, &in.regs); err != nil {
		in.t.Error(err)
	}
	if err := unix.PtraceDetach(in.pid); err != nil {
		in.t.Error(err)
	}
}

// Whoever takes sharness-bashd over through what it parses has its pipes, and nothing to reach anything else with.
func TestTakenOverBashServerReachesNothing(t *testing.T) {
	s := newSite(t, nil)
	x := s.serve()
	x.run("", "true")
	pid := x.find("sharness-bashd", anyUID(0))
	wantBare(t, pid)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	in := take(t, pid)
	address := (*[unsafe.Sizeof(unix.RawSockaddrUnix{})]byte)(unsafe.Pointer(&unix.RawSockaddrUnix{Family: unix.AF_UNIX}))[:16]
	parent := x.cmd.Process.Pid
	for _, c := range []struct {
		name string
		nr   uint64
		args []any
	}{
		{"open a file", unix.SYS_OPENAT, []any{unix.AT_FDCWD, []byte("/etc/passwd"), 0, 0}},
		{"open by open", unix.SYS_OPEN, []any{[]byte("/etc/passwd"), 0, 0}},
		{"open beneath", unix.SYS_OPENAT2, []any{unix.AT_FDCWD, []byte("/etc/passwd"), make([]byte, 24), 24}},
		{"open its own /proc", unix.SYS_OPENAT, []any{unix.AT_FDCWD, []byte("/proc/self/mem"), unix.O_RDWR, 0}},
		{"make a file", unix.SYS_OPENAT, []any{unix.AT_FDCWD, []byte("/var/tmp/sharness-inside"), unix.O_CREAT | unix.O_WRONLY, 0o600}},
		{"look at a file", unix.SYS_NEWFSTATAT, []any{unix.AT_FDCWD, []byte("/etc/passwd"), make([]byte, 400), 0}},
		{"list a folder", unix.SYS_GETDENTS64, []any{0, make([]byte, 400), 400}},
		{"remove", unix.SYS_UNLINK, []any{[]byte("/etc/passwd")}},
		{"execute", unix.SYS_EXECVE, []any{[]byte("/bin/true"), 0, 0}},
		{"execute a descriptor", unix.SYS_EXECVEAT, []any{3, []byte(""), 0, 0, unix.AT_EMPTY_PATH}},
		{"fork", unix.SYS_FORK, nil},
		{"vfork", unix.SYS_VFORK, nil},
		{"clone a process", unix.SYS_CLONE, []any{int(unix.SIGCHLD), 0, 0, 0, 0}},
		{"clone3", unix.SYS_CLONE3, []any{make([]byte, 88), 88}},
		{"internet socket", unix.SYS_SOCKET, []any{unix.AF_INET, unix.SOCK_STREAM, 0}},
		{"unix socket", unix.SYS_SOCKET, []any{unix.AF_UNIX, unix.SOCK_STREAM, 0}},
		{"netlink socket", unix.SYS_SOCKET, []any{unix.AF_NETLINK, unix.SOCK_RAW, 0}},
		{"socket pair", unix.SYS_SOCKETPAIR, []any{unix.AF_UNIX, unix.SOCK_STREAM, 0, make([]byte, 8)}},
		{"connect", unix.SYS_CONNECT, []any{3, address, 16}},
		{"bind", unix.SYS_BIND, []any{3, address, 16}},
		{"listen", unix.SYS_LISTEN, []any{3, 1}},
		{"signal the supervisor", unix.SYS_KILL, []any{parent, int(unix.SIGKILL)}},
		{"signal everybody", unix.SYS_KILL, []any{-1, 0}},
		{"trace the supervisor", unix.SYS_PTRACE, []any{unix.PTRACE_SEIZE, parent, 0, 0}},
		{"read the supervisor", unix.SYS_PROCESS_VM_READV, []any{parent, 0, 0, 0, 0, 0}},
		{"pidfd", unix.SYS_PIDFD_OPEN, []any{parent, 0}},
		{"steal a descriptor", unix.SYS_PIDFD_GETFD, []any{3, 0, 0}},
		{"become root", unix.SYS_SETUID, []any{0}},
		{"become root by setresuid", unix.SYS_SETRESUID, []any{0, 0, 0}},
		{"take capabilities", unix.SYS_CAPSET, []any{make([]byte, 8), make([]byte, 24)}},
		{"become dumpable", unix.SYS_PRCTL, []any{unix.PR_SET_DUMPABLE, 1, 0, 0, 0}},
		{"new namespaces", unix.SYS_UNSHARE, []any{unix.CLONE_NEWUSER}},
		{"join namespaces", unix.SYS_SETNS, []any{3, 0}},
		{"mount", unix.SYS_MOUNT, []any{[]byte("x"), []byte("/tmp"), []byte("tmpfs"), 0, 0}},
		{"chroot", unix.SYS_CHROOT, []any{[]byte("/tmp")}},
		{"bpf", unix.SYS_BPF, []any{0, make([]byte, 64), 64}},
		{"io_uring", unix.SYS_IO_URING_SETUP, []any{1, make([]byte, 120)}},
		{"keys", unix.SYS_KEYCTL, []any{0, -3, 0}},
		{"perf", unix.SYS_PERF_EVENT_OPEN, []any{make([]byte, 128), 0, -1, -1, 0}},
		{"userfaultfd", unix.SYS_USERFAULTFD, []any{0}},
		{"type into a terminal", unix.SYS_IOCTL, []any{0, unix.TIOCSTI, []byte("x")}},
		{"raise a limit", unix.SYS_SETRLIMIT, []any{unix.RLIMIT_NOFILE, make([]byte, 16)}},
		{"another's limit", unix.SYS_PRLIMIT64, []any{parent, unix.RLIMIT_NOFILE, make([]byte, 16), 0}},
		{"shared memory", unix.SYS_SHMGET, []any{1234, 4096, unix.IPC_CREAT | 0o600}},
	} {
		if got := in.call(c.nr, c.args...); !slices.Contains([]syscall.Errno{unix.EPERM, unix.EACCES, unix.ENOSYS}, got) {
			t.Errorf("%s: got %v (%d), want it refused", c.name, got, int(got))
		}
	}
	// The way in works: what it may do, it does.
	if got := in.call(unix.SYS_GETPID); got != 0 {
		t.Errorf("getpid: %v", got)
	}
	in.leave()
	if now := x.find("sharness-bashd", anyUID(0)); now != pid {
		t.Errorf("sharness-bashd was started again: %d, then %d", pid, now)
	}
	if r := x.run("", "echo next"); r.Stdout != "next\n" {
		t.Errorf("the next command: %+v", r)
	}
}

// wantBare looks at a helper from outside: ids of its own, no capability, a filter, and no descriptor but sockets, pipes and
// what a Go program polls with.
func wantBare(t *testing.T, pid int) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(tasks) == 0 {
		t.Fatalf("no threads of %d: %v", pid, err)
	}
	for _, task := range tasks {
		data, err := os.ReadFile(task)
		if err != nil {
			continue // it ended
		}
		for _, want := range []string{"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "Groups:\t \n"} {
			if !strings.Contains(string(data), want) {
				t.Errorf("%s: want %q in it:\n%s", task, want, data)
			}
		}
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
		kind, _, _ := strings.Cut(to, ":[")
		if err == nil && !slices.Contains([]string{"socket", "pipe", "anon_inode", "/dev/null"}, kind) && !strings.HasPrefix(to, "anon_inode:") {
			t.Errorf("descriptor %s is %s", fd.Name(), to)
		}
	}
}
