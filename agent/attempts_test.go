package agent

import (
	"encoding/json"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/confine"
)

// attempt is one refused call: how it is made, and what has to be reported.
type attempt struct {
	name    string // of the call
	try     func(outside int) syscall.Errno
	errno   syscall.Errno
	door    string
	kind    string
	target  string        // Asked contains it
	refused syscall.Errno // by the filter of these tests, where nothing else would
}

func raw(nr uintptr, args ...uintptr) syscall.Errno {
	var a [6]uintptr
	copy(a[:], args)
	_, _, e := syscall.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	return e
}

func ptr(s string) uintptr { return uintptr(unsafe.Pointer(cstring(s))) }

var argv = []*byte{cstring("x"), nil}

func execve(path string) syscall.Errno {
	p := cstring(path)
	_, _, e := syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&argv[1])))
	runtime.KeepAlive(p)
	return e
}

func inet(port uint16, a, b, c, d byte) unsafe.Pointer {
	sa := &unix.RawSockaddrInet4{Family: unix.AF_INET, Port: port>>8 | port<<8, Addr: [4]byte{a, b, c, d}}
	return unsafe.Pointer(sa)
}

func socket(kind int) uintptr {
	fd, err := unix.Socket(unix.AF_INET, kind, 0)
	if err != nil {
		panic(err)
	}
	return uintptr(fd)
}

func pidfd(pid int) uintptr {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		panic(err)
	}
	return uintptr(fd)
}

// Descriptors from before the domain: a folder, a program, a file on a mount that is noexec.
var dirfd, filefd, noexecfd uintptr

var attempts = []attempt{
	{name: "execve", door: "exec-direct", kind: "exec.denied", errno: unix.EACCES, target: "/bin/bash",
		try: func(int) syscall.Errno { return execve("/bin/bash") }},
	{name: "execveat", door: "exec-direct", kind: "exec.denied", errno: unix.EACCES, target: "true",
		try: func(int) syscall.Errno {
			return raw(unix.SYS_EXECVEAT, dirfd, ptr("true"), uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&argv[1])), 0)
		}},
	{name: "execveat", door: "exec-direct", kind: "exec.denied", errno: unix.EACCES,
		try: func(int) syscall.Errno {
			return raw(unix.SYS_EXECVEAT, filefd, ptr(""), uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&argv[1])), unix.AT_EMPTY_PATH)
		}},
	{name: "mmap", door: "exec-inject", kind: "exec.denied", errno: unix.EPERM, target: "status",
		try: func(int) syscall.Errno {
			return raw(unix.SYS_MMAP, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE, noexecfd, 0)
		}},
	{name: "memfd_create", door: "exec-memfd", kind: "memfd.denied", errno: unix.ENOSYS, refused: unix.ENOSYS, target: "payload",
		try: func(int) syscall.Errno { return raw(unix.SYS_MEMFD_CREATE, ptr("payload"), 0) }},

	{name: "kill", door: "sig", kind: "signal.denied", errno: unix.EPERM, target: "SIGTERM",
		try: func(pid int) syscall.Errno { return raw(unix.SYS_KILL, uintptr(pid), uintptr(unix.SIGTERM)) }},
	{name: "tkill", door: "sig", kind: "signal.denied", errno: unix.EPERM, target: "SIGUSR1",
		try: func(pid int) syscall.Errno { return raw(unix.SYS_TKILL, uintptr(pid), uintptr(unix.SIGUSR1)) }},
	{name: "tgkill", door: "sig", kind: "signal.denied", errno: unix.EPERM, target: "SIGKILL",
		try: func(pid int) syscall.Errno {
			return raw(unix.SYS_TGKILL, uintptr(pid), uintptr(pid), uintptr(unix.SIGKILL))
		}},
	{name: "rt_sigqueueinfo", door: "sig", kind: "signal.denied", errno: unix.EPERM, target: "SIGHUP",
		try: func(pid int) syscall.Errno {
			return raw(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), uintptr(unix.SIGHUP), queueInfo())
		}},
	{name: "rt_tgsigqueueinfo", door: "sig", kind: "signal.denied", errno: unix.EPERM, target: "SIGHUP",
		try: func(pid int) syscall.Errno {
			return raw(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(pid), uintptr(pid), uintptr(unix.SIGHUP), queueInfo())
		}},
	{name: "pidfd_send_signal", door: "sig", kind: "signal.denied", errno: unix.EPERM, target: "SIGTERM",
		try: func(pid int) syscall.Errno {
			return raw(unix.SYS_PIDFD_SEND_SIGNAL, pidfd(pid), uintptr(unix.SIGTERM), 0, 0)
		}},
	{name: "ptrace", door: "ptrace", kind: "ptrace.denied", errno: unix.EPERM, target: "pid ",
		try: func(pid int) syscall.Errno { return raw(unix.SYS_PTRACE, unix.PTRACE_ATTACH, uintptr(pid)) }},
	{name: "process_vm_readv", door: "ptrace", kind: "ptrace.denied", errno: unix.EPERM,
		try: func(pid int) syscall.Errno {
			v := [2]uintptr{uintptr(unsafe.Pointer(&argv)), 8}
			return raw(unix.SYS_PROCESS_VM_READV, uintptr(pid), uintptr(unsafe.Pointer(&v)), 1, uintptr(unsafe.Pointer(&v)), 1)
		}},
	{name: "process_vm_writev", door: "ptrace", kind: "ptrace.denied", errno: unix.EPERM,
		try: func(pid int) syscall.Errno {
			v := [2]uintptr{uintptr(unsafe.Pointer(&argv)), 8}
			return raw(unix.SYS_PROCESS_VM_WRITEV, uintptr(pid), uintptr(unsafe.Pointer(&v)), 1, uintptr(unsafe.Pointer(&v)), 1)
		}},
	{name: "pidfd_getfd", door: "ptrace", kind: "ptrace.denied", errno: unix.EPERM,
		try: func(pid int) syscall.Errno { return raw(unix.SYS_PIDFD_GETFD, pidfd(pid), 0, 0) }},
	{name: "kcmp", door: "ptrace", kind: "ptrace.denied", errno: unix.EPERM,
		try: func(pid int) syscall.Errno { return raw(unix.SYS_KCMP, uintptr(pid), uintptr(os.Getpid()), 0, 0, 0) }},
	{name: "ptrace", door: "pid1", kind: "ptrace.denied", errno: unix.EPERM, target: "pid 1",
		try: func(int) syscall.Errno { return raw(unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1) }},

	{name: "unshare", door: "ns", kind: "ns.denied", errno: unix.EPERM,
		try: func(int) syscall.Errno { return raw(unix.SYS_UNSHARE, unix.CLONE_NEWNS) }},
	{name: "setns", door: "ns", kind: "ns.denied", errno: unix.EPERM, refused: unix.EPERM,
		try: func(pid int) syscall.Errno { return raw(unix.SYS_SETNS, pidfd(pid), unix.CLONE_NEWNET) }},
	{name: "clone", door: "ns", kind: "ns.denied", errno: unix.EPERM,
		try: func(int) syscall.Errno { return raw(unix.SYS_CLONE, unix.CLONE_NEWPID|uintptr(unix.SIGCHLD), 0) }},
	{name: "mount", door: "ns", kind: "ns.denied", errno: unix.EPERM, target: "/mnt",
		try: func(int) syscall.Errno { return raw(unix.SYS_MOUNT, ptr("none"), ptr("/mnt"), ptr("tmpfs"), 0, 0) }},
	{name: "umount2", door: "ns", kind: "ns.denied", errno: unix.EPERM, target: "/proc",
		try: func(int) syscall.Errno { return raw(unix.SYS_UMOUNT2, ptr("/proc"), 0) }},
	{name: "fsopen", door: "ns", kind: "ns.denied", errno: unix.EPERM, target: "tmpfs",
		try: func(int) syscall.Errno { return raw(unix.SYS_FSOPEN, ptr("tmpfs"), 0) }},
	{name: "pivot_root", door: "ns", kind: "ns.denied", errno: unix.EPERM,
		try: func(int) syscall.Errno { return raw(unix.SYS_PIVOT_ROOT, ptr("/"), ptr("/")) }},

	{name: "io_uring_setup", door: "kernel", kind: "syscall.denied", errno: unix.ENOSYS, refused: unix.ENOSYS,
		try: func(int) syscall.Errno { return raw(unix.SYS_IO_URING_SETUP, 1, 0) }},
	{name: "bpf", door: "kernel", kind: "syscall.denied", errno: unix.EPERM, refused: unix.EPERM,
		try: func(int) syscall.Errno { return raw(unix.SYS_BPF, 0, 0, 0) }},
	{name: "keyctl", door: "kernel", kind: "syscall.denied", errno: unix.EPERM, refused: unix.EPERM,
		try: func(int) syscall.Errno { return raw(unix.SYS_KEYCTL, 0, 0, 0) }},
	{name: "perf_event_open", door: "kernel", kind: "syscall.denied", errno: unix.EPERM, refused: unix.EPERM,
		try: func(int) syscall.Errno { return raw(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0, 0, 0) }},
	{name: "setresuid", door: "setid", kind: "syscall.denied", errno: unix.EPERM,
		try: func(int) syscall.Errno { return raw(unix.SYS_SETRESUID, 0, 0, 0) }},
	{name: "prlimit64", door: "sig", kind: "signal.denied", errno: unix.EPERM,
		try: func(pid int) syscall.Errno {
			l := unix.Rlimit{}
			return raw(unix.SYS_PRLIMIT64, uintptr(pid), unix.RLIMIT_CPU, uintptr(unsafe.Pointer(&l)))
		}},

	{name: "connect", door: "net-host", kind: "net.denied", errno: unix.EACCES, target: "tcp 127.0.0.1:9",
		try: func(int) syscall.Errno {
			return raw(unix.SYS_CONNECT, socket(unix.SOCK_STREAM), uintptr(inet(9, 127, 0, 0, 1)), 16)
		}},
	{name: "bind", door: "net-listen", kind: "net.denied", errno: unix.EACCES, target: "tcp 127.0.0.1:8",
		try: func(int) syscall.Errno {
			return raw(unix.SYS_BIND, socket(unix.SOCK_STREAM), uintptr(inet(8, 127, 0, 0, 1)), 16)
		}},
	{name: "connect", door: "net-udp", kind: "net.denied", errno: unix.ENETUNREACH, target: "udp 192.0.2.1:53",
		try: func(int) syscall.Errno {
			return raw(unix.SYS_CONNECT, socket(unix.SOCK_DGRAM), uintptr(inet(53, 192, 0, 2, 1)), 16)
		}},
	{name: "sendto", door: "net-udp", kind: "net.denied", errno: unix.ENETUNREACH, target: "udp 192.0.2.2:53",
		try: func(int) syscall.Errno {
			return raw(unix.SYS_SENDTO, socket(unix.SOCK_DGRAM), ptr("x"), 1, 0, uintptr(inet(53, 192, 0, 2, 2)), 16)
		}},
	{name: "sendmsg", door: "net-udp", kind: "net.denied", errno: unix.ENETUNREACH, target: "udp 192.0.2.3:53",
		try: func(int) syscall.Errno {
			m := unix.Msghdr{Name: (*byte)(inet(53, 192, 0, 2, 3)), Namelen: 16}
			return raw(unix.SYS_SENDMSG, socket(unix.SOCK_DGRAM), uintptr(unsafe.Pointer(&m)), 0)
		}},
	{name: "socket", door: "net-udp", kind: "net.denied", errno: unix.EPERM, target: "packet",
		try: func(int) syscall.Errno { return raw(unix.SYS_SOCKET, unix.AF_PACKET, unix.SOCK_RAW, 0) }},
	{name: "fchmodat", door: "file-suid", kind: "file.denied", errno: unix.EPERM, target: "/etc/hostname",
		try: func(int) syscall.Errno {
			return raw(unix.SYS_FCHMODAT, uintptr(1<<64+unix.AT_FDCWD), ptr("/etc/hostname"), 0o6755)
		}},
	{name: "openat", door: "file-secret", kind: "file.denied", errno: unix.EACCES, target: "/etc/shadow",
		try: func(int) syscall.Errno {
			return raw(unix.SYS_OPENAT, uintptr(1<<64+unix.AT_FDCWD), ptr("/etc/shadow"), unix.O_RDONLY)
		}},
	{name: "openat", door: "file-config", kind: "file.denied", errno: unix.EACCES, target: "hosts",
		try: func(int) syscall.Errno {
			return raw(unix.SYS_OPENAT, uintptr(1<<64+unix.AT_FDCWD), ptr("/etc/hosts"), unix.O_WRONLY)
		}},
}

// queueInfo is a siginfo that a program may send: the kernel forbids forged codes for others.
func queueInfo() uintptr {
	info := new([128]byte)
	info[8], info[9], info[10], info[11] = 0xff, 0xff, 0xff, 0xff // si_code SI_QUEUE
	return uintptr(unsafe.Pointer(info))
}

// refuse loads a filter that answers calls with an errno, those of the table's own.
func refuse(answers map[uintptr]syscall.Errno) error {
	prog := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}}
	for nr, errno := range answers {
		prog = append(prog, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(nr), Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)})
	}
	prog = append(prog, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	return confine.LoadSeccomp(unsafe.Slice((*byte)(unsafe.Pointer(&prog[0])), len(prog)*int(unsafe.Sizeof(prog[0]))))
}

// nobody has no rights of its own.
const nobody = 65534

// enter puts this process into a domain in which nothing may be executed, opened or reached.
func enter() error {
	debug.SetGCPercent(-1) // attempts keep pointers as numbers
	for path, fd := range map[string]*uintptr{"/usr/bin": &dirfd, "/usr/bin/env": &filefd, "/proc/self/status": &noexecfd} {
		got, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		*fd = uintptr(got)
	}
	if err := confine.SetIDs(nobody, nobody); err != nil {
		return err
	}
	if err := confine.ClearCaps(); err != nil {
		return err
	}
	abi, err := confine.LandlockABI()
	if err != nil {
		return err
	}
	abi = min(abi, 7) // from 10 on UDP is refused by Landlock, and the network namespace is not asked
	return confine.Landlock{ABI: abi, FS: true, Net: abi >= 4, Scoped: abi >= 6}.Restrict()
}

// attemptsChild makes the attempts of these numbers and says what it got.
func attemptsChild(input json.RawMessage) (any, error) {
	numbers, err := decodeInput[[]int](input)
	if err != nil {
		return nil, err
	}
	if err := enter(); err != nil {
		return nil, err
	}
	answers := map[uintptr]syscall.Errno{}
	for _, n := range numbers {
		if a := attempts[n]; a.refused != 0 {
			answers[numberOf(a.name)] = a.refused
		}
	}
	if err := refuse(answers); err != nil {
		return nil, err
	}
	outside := os.Getppid()
	got := map[int]int{}
	for _, n := range numbers {
		got[n] = int(attempts[n].try(outside))
	}
	return got, nil
}

func numberOf(name string) uintptr {
	for nr, c := range calls {
		if c.name == name {
			return uintptr(nr)
		}
	}
	panic("no call " + name)
}
