package filter

import (
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
)

// attempt is a call that must end in want. Its arguments are such that root without a filter gets another errno and does
// no harm; the test makes each call without filters too, so that a denial that is the kernel's own is not taken for
// ours. alike marks those where the kernel, or its lockdown, may say the same.
type attempt struct {
	name  string
	want  unix.Errno
	args  []uint64
	alike bool
}

const (
	all  = ^uint64(0) // no valid descriptor, command, flag or size
	bad  = 1          // an address where nothing is mapped
	high = 1 << 32    // a bit that the kernel does not read of an int
	cwd  = 1<<64 - 100
	gone = 0x7fffffff // a pid of nobody
)

func args(a ...uint64) []uint64 { return a }

// deniedToBoth holds for orchestrators and commands.
var deniedToBoth = []attempt{
	// Other processes.
	{name: "ptrace", want: unix.EPERM, args: args(unix.PTRACE_ATTACH, gone)},
	{name: "ptrace", want: unix.EPERM, args: args(unix.PTRACE_TRACEME)},
	{name: "process_vm_readv", want: unix.EPERM, args: args(gone, bad, 1, bad, 1)},
	{name: "process_vm_writev", want: unix.EPERM, args: args(gone, bad, 1, bad, 1)},
	{name: "kcmp", want: unix.EPERM, args: args(gone, gone)},
	{name: "pidfd_getfd", want: unix.EPERM, args: args(all)},
	{name: "process_madvise", want: unix.EPERM, args: args(all)},
	{name: "process_mrelease", want: unix.EPERM, args: args(all)},

	// Namespaces and mounts.
	{name: "unshare", want: unix.EPERM, args: args(unix.CLONE_NEWUSER)},
	{name: "unshare", want: unix.EPERM, args: args(unix.CLONE_NEWNS)},
	{name: "unshare", want: unix.EPERM, args: args(unix.CLONE_NEWNET)},
	{name: "unshare", want: unix.EPERM, args: args(unix.CLONE_NEWTIME)},
	{name: "setns", want: unix.EPERM, args: args(all)},
	{name: "clone", want: unix.EPERM, args: args(unix.CLONE_NEWUSER | unix.CLONE_SIGHAND)},
	{name: "clone", want: unix.EPERM, args: args(unix.CLONE_NEWNS | unix.CLONE_SIGHAND)},
	{name: "clone", want: unix.EPERM, args: args(unix.CLONE_NEWPID | unix.CLONE_SIGHAND)},
	{name: "clone", want: unix.EPERM, args: args(unix.CLONE_NEWNET | unix.CLONE_SIGHAND)},
	{name: "clone", want: unix.EPERM, args: args(unix.CLONE_NEWIPC | unix.CLONE_SIGHAND)},
	{name: "clone", want: unix.EPERM, args: args(unix.CLONE_NEWUTS | unix.CLONE_SIGHAND)},
	{name: "clone", want: unix.EPERM, args: args(unix.CLONE_NEWCGROUP | unix.CLONE_SIGHAND)},
	{name: "clone", want: unix.EPERM, args: args(high | unix.CLONE_NEWUSER | unix.CLONE_SIGHAND)},
	{name: "clone3", want: unix.ENOSYS, args: args(bad, 64)},
	{name: "mount", want: unix.EPERM, args: args(bad, bad, bad)},
	{name: "umount2", want: unix.EPERM, args: args(bad)},
	{name: "pivot_root", want: unix.EPERM, args: args(bad, bad)},
	{name: "chroot", want: unix.EPERM, args: args(bad)},
	{name: "open_tree", want: unix.EPERM, args: args(cwd, bad)},
	{name: "move_mount", want: unix.EPERM, args: args(all, bad, all, bad)},
	{name: "fsopen", want: unix.EPERM, args: args(bad)},
	{name: "fsconfig", want: unix.EPERM, args: args(all)},
	{name: "fsmount", want: unix.EPERM, args: args(all)},
	{name: "fspick", want: unix.EPERM, args: args(cwd, bad)},
	{name: "mount_setattr", want: unix.EPERM, args: args(all, bad, all)},
	{name: "statmount", want: unix.ENOSYS, args: args(bad), alike: true}, // both since 6.8
	{name: "listmount", want: unix.ENOSYS, args: args(bad), alike: true},

	// Kernel surface.
	{name: "io_uring_setup", want: unix.ENOSYS, args: args(1, bad)},
	{name: "io_uring_enter", want: unix.ENOSYS, args: args(all)},
	{name: "io_uring_register", want: unix.ENOSYS, args: args(all)},
	{name: "bpf", want: unix.EPERM, args: args(all), alike: true},
	{name: "perf_event_open", want: unix.EPERM, args: args(bad)},
	{name: "userfaultfd", want: unix.EPERM, args: args(all)},
	{name: "keyctl", want: unix.EPERM, args: args(all)},
	{name: "add_key", want: unix.EPERM, args: args(bad, bad)},
	{name: "request_key", want: unix.EPERM, args: args(bad, bad)},
	{name: "open_by_handle_at", want: unix.EPERM, args: args(cwd, bad)},
	{name: "name_to_handle_at", want: unix.EPERM, args: args(cwd, bad, bad, bad)},
	{name: "fanotify_init", want: unix.EPERM, args: args(all)},
	{name: "fanotify_mark", want: unix.EPERM, args: args(all)},
	{name: "memfd_secret", want: unix.ENOSYS, args: args(all), alike: true},
	{name: "openat2", want: unix.ENOSYS, args: args(cwd, bad, bad, 24)},
	{name: "personality", want: unix.EPERM, args: args(0x0040000)}, // ADDR_NO_RANDOMIZE
	{name: "personality", want: unix.EPERM, args: args(0x0400000)}, // READ_IMPLIES_EXEC
	{name: "init_module", want: unix.EPERM, args: args(bad, 1, bad), alike: true},
	{name: "finit_module", want: unix.EPERM, args: args(all), alike: true},
	{name: "delete_module", want: unix.EPERM, args: args(bad), alike: true},
	{name: "kexec_load", want: unix.EPERM, args: args(0, 0, 0, all), alike: true},
	{name: "kexec_file_load", want: unix.EPERM, args: args(all, all, 0, 0, all), alike: true},
	{name: "reboot", want: unix.EPERM, args: args(0)},
	{name: "swapon", want: unix.EPERM, args: args(bad, all)},
	{name: "swapoff", want: unix.EPERM, args: args(bad)},
	{name: "acct", want: unix.EPERM, args: args(bad)},
	{name: "quotactl", want: unix.EPERM, args: args(all)},
	{name: "quotactl_fd", want: unix.EPERM, args: args(all, all)},
	{name: "settimeofday", want: unix.EPERM, args: args(bad)},
	{name: "clock_settime", want: unix.EPERM, args: args(all)},
	{name: "syslog", want: unix.EPERM, args: args(99)},
	{name: "sethostname", want: unix.EPERM, args: args(bad, all)},
	{name: "setdomainname", want: unix.EPERM, args: args(bad, all)},
	{name: "lookup_dcookie", want: unix.EPERM},
	{name: "file_getattr", want: unix.ENOSYS, args: args(all), alike: true},
	{name: "file_setattr", want: unix.ENOSYS, args: args(all), alike: true},

	// File modes with 06000, and devices. Mode words are read as 16 bits.
	{name: "fchmod", want: unix.EPERM, args: args(all, 0o4755)},
	{name: "fchmod", want: unix.EPERM, args: args(all, 0o2755)},
	{name: "fchmod", want: unix.EPERM, args: args(all, high|0o6755)},
	{name: "fchmodat", want: unix.EPERM, args: args(cwd, bad, 0o4755)},
	{name: "fchmodat", want: unix.EPERM, args: args(cwd, bad, 0o2755)},
	{name: "fchmodat2", want: unix.EPERM, args: args(cwd, bad, 0o4755)},
	{name: "fchmodat2", want: unix.EPERM, args: args(cwd, bad, 0o2755)},
	{name: "openat", want: unix.EPERM, args: args(cwd, bad, unix.O_CREAT|unix.O_WRONLY, 0o4755)},
	{name: "openat", want: unix.EPERM, args: args(cwd, bad, high|unix.O_CREAT, high|0o2755)},
	{name: "openat", want: unix.EPERM, args: args(cwd, bad, unix.O_TMPFILE|unix.O_RDWR, 0o4755)},
	{name: "openat", want: unix.EPERM, args: args(cwd, bad, unix.O_TMPFILE|unix.O_RDWR, 0o2755)},
	{name: "mkdirat", want: unix.EPERM, args: args(cwd, bad, 0o2755)},
	{name: "mkdirat", want: unix.EPERM, args: args(cwd, bad, 0o4755)},
	{name: "mknodat", want: unix.EPERM, args: args(cwd, bad, unix.S_IFREG|0o4755)},
	{name: "mknodat", want: unix.EPERM, args: args(cwd, bad, unix.S_IFREG|0o2755)},
	{name: "mknodat", want: unix.EPERM, args: args(cwd, bad, unix.S_IFCHR|0o644)},
	{name: "mknodat", want: unix.EPERM, args: args(cwd, bad, unix.S_IFBLK|0o644)},
	{name: "mknodat", want: unix.EPERM, args: args(cwd, bad, high|unix.S_IFBLK|0o644)},
	{name: "fcntl", want: unix.EPERM, args: args(all, unix.F_SETLEASE)},
	{name: "fcntl", want: unix.EPERM, args: args(all, high|unix.F_SETLEASE)},
	{name: "fcntl", want: unix.EPERM, args: args(all, unix.F_NOTIFY)},

	// The limit that keeps core handlers from starting.
	{name: "prlimit64", want: unix.ENOSYS, args: args(0, unix.RLIMIT_CORE, bad)},
	{name: "prlimit64", want: unix.ENOSYS, args: args(0, high|unix.RLIMIT_CORE, bad)},
	{name: "prlimit64", want: unix.ENOSYS, args: args(1, unix.RLIMIT_CPU, bad)},
	{name: "prlimit64", want: unix.ENOSYS, args: args(1, unix.RLIMIT_CPU, 0, bad)},
	{name: "prlimit64", want: unix.ENOSYS, args: args(high|1, unix.RLIMIT_CPU, bad)},
	{name: "setrlimit", want: unix.ENOSYS, args: args(unix.RLIMIT_CORE, bad)},
	{name: "setrlimit", want: unix.ENOSYS, args: args(high|unix.RLIMIT_CORE, bad)},

	// Who runs beside the domain's pid 1 must not take the processor from it. Bare, pid 1 is the host's: the arguments
	// are none that change anything.
	{name: "sched_setaffinity", want: unix.EPERM, args: args(1, 8, bad)},
	{name: "sched_setaffinity", want: unix.EPERM, args: args(high|1, 8, bad)},
	{name: "sched_setscheduler", want: unix.EPERM, args: args(1, 0, 0)},
	{name: "sched_setparam", want: unix.EPERM, args: args(1, 0)},
	{name: "sched_setattr", want: unix.EPERM, args: args(1, 0)},
	{name: "setpriority", want: unix.EPERM, args: args(2, gone, 0)},
	{name: "setpriority", want: unix.EPERM, args: args(high|2, gone, 0)},
	{name: "ioprio_set", want: unix.EPERM, args: args(1, 1, all)},
	{name: "ioprio_set", want: unix.EPERM, args: args(2, 1, all)},
	{name: "ioprio_set", want: unix.EPERM, args: args(3, gone, all)},

	{name: "seccomp", want: unix.EPERM, args: args(unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, bad)},
	{name: "seccomp", want: unix.EPERM, args: args(high|unix.SECCOMP_SET_MODE_FILTER,
		high|unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_TSYNC, bad)},
	{name: "io_setup", want: unix.ENOSYS, args: args(0, emptyPath)},

	// Terminals.
	{name: "ioctl", want: unix.EPERM, args: args(all, unix.TIOCSTI)},
	{name: "ioctl", want: unix.EPERM, args: args(all, high|unix.TIOCSTI)},
	{name: "ioctl", want: unix.EPERM, args: args(all, unix.TIOCLINUX)},
	{name: "ioctl", want: unix.EPERM, args: args(all, 0xdead<<32|unix.TIOCLINUX)},
	{name: "ioctl", want: unix.EPERM, args: args(all, unix.TIOCCONS)},
	{name: "ioctl", want: unix.EPERM, args: args(all, unix.TIOCSETD)},

	// What the kernel runs modprobe for. The descriptor is none: with a socket, root's bare run would load them.
	{name: "ioctl", want: unix.EPERM, args: args(all, unix.SIOCGIFBR)},
	{name: "ioctl", want: unix.EPERM, args: args(all, unix.SIOCSIFBR)},
	{name: "ioctl", want: unix.EPERM, args: args(all, unix.SIOCBRADDBR)},
	{name: "ioctl", want: unix.EPERM, args: args(all, unix.SIOCBRDELBR)},
	{name: "ioctl", want: unix.EPERM, args: args(all, unix.SIOCBRADDIF)},
	{name: "ioctl", want: unix.EPERM, args: args(all, unix.SIOCBRDELIF)},
	{name: "ioctl", want: unix.EPERM, args: args(all, siocGIFVLAN)},
	{name: "ioctl", want: unix.EPERM, args: args(all, high|siocSIFVLAN)},
	{name: "setsockopt", want: unix.EPERM, args: args(all, unix.IPPROTO_TCP, unix.TCP_MD5SIG)},
	{name: "setsockopt", want: unix.EPERM, args: args(all, unix.IPPROTO_TCP, unix.TCP_MD5SIG_EXT)},
	{name: "setsockopt", want: unix.EPERM, args: args(all, unix.IPPROTO_TCP, tcpAOAddKey)},

	// Network.
	{name: "sendto", want: unix.EPERM, args: args(all, bad, 1, unix.MSG_FASTOPEN)},
	{name: "sendto", want: unix.EPERM, args: args(all, bad, 1, high|unix.MSG_FASTOPEN|unix.MSG_NOSIGNAL)},
	{name: "sendmsg", want: unix.EPERM, args: args(all, bad, unix.MSG_FASTOPEN)},
	{name: "sendmmsg", want: unix.EPERM, args: args(all, bad, 1, unix.MSG_FASTOPEN)},
	{name: "setsockopt", want: unix.EPERM, args: args(all, unix.IPPROTO_TCP, unix.TCP_FASTOPEN)},
	{name: "setsockopt", want: unix.EPERM, args: args(all, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT)},
	{name: "setsockopt", want: unix.EPERM, args: args(all, high|unix.IPPROTO_TCP, high|unix.TCP_FASTOPEN_CONNECT)},
	{name: "setsockopt", want: unix.EPERM, args: args(all, unix.IPPROTO_TCP, unix.TCP_ULP)},
	{name: "setsockopt", want: unix.EPERM, args: args(all, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER)},
	{name: "setsockopt", want: unix.EPERM, args: args(all, high|unix.SOL_SOCKET, high|unix.SO_ATTACH_FILTER)},
	{name: "setsockopt", want: unix.EPERM, args: args(all, unix.SOL_SOCKET, unix.SO_ATTACH_BPF)},
	{name: "setsockopt", want: unix.EPERM, args: args(all, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF)},
	{name: "setsockopt", want: unix.EPERM, args: args(all, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_EBPF)},
}

// deniedOnAMD64 are the old calls that newer architectures lack.
var deniedOnAMD64 = []attempt{
	{name: "chmod", want: unix.EPERM, args: args(bad, 0o4755)},
	{name: "chmod", want: unix.EPERM, args: args(bad, 0o2755)},
	{name: "creat", want: unix.EPERM, args: args(bad, 0o4755)},
	{name: "creat", want: unix.EPERM, args: args(bad, 0o2755)},
	{name: "open", want: unix.EPERM, args: args(bad, unix.O_CREAT, 0o4755)},
	{name: "open", want: unix.EPERM, args: args(bad, unix.O_CREAT, 0o2755)},
	{name: "open", want: unix.EPERM, args: args(bad, unix.O_TMPFILE, 0o4755)},
	{name: "open", want: unix.EPERM, args: args(bad, unix.O_TMPFILE, 0o2755)},
	{name: "mkdir", want: unix.EPERM, args: args(bad, 0o4755)},
	{name: "mkdir", want: unix.EPERM, args: args(bad, 0o2755)},
	{name: "mknod", want: unix.EPERM, args: args(bad, unix.S_IFREG|0o4755)},
	{name: "mknod", want: unix.EPERM, args: args(bad, unix.S_IFREG|0o2755)},
	{name: "mknod", want: unix.EPERM, args: args(bad, unix.S_IFCHR|0o644)},
	{name: "mknod", want: unix.EPERM, args: args(bad, unix.S_IFBLK|0o644)},
	{name: "modify_ldt", want: unix.EPERM, args: args(99)},
	{name: "iopl", want: unix.EPERM, args: args(99), alike: true},
	{name: "ioperm", want: unix.EPERM, args: args(all, 1, 1), alike: true},
	{name: "uselib", want: unix.EPERM, args: args(bad)},
	{name: "sysfs", want: unix.EPERM, args: args(99)},
	{name: "_sysctl", want: unix.EPERM, args: args(bad)},
	{name: "nfsservctl", want: unix.EPERM, args: args(all)},
}

// deniedToOrchestrator holds for it alone.
var deniedToOrchestrator = []attempt{
	{name: "memfd_create", want: unix.ENOSYS, args: args(bad)},
	{name: "execveat", want: unix.EPERM, args: args(all, emptyPath, 0, 0, unix.AT_EMPTY_PATH)},
	{name: "execveat", want: unix.EPERM, args: args(all, emptyPath, 0, 0, high|unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW)},
}

var deniedWithoutRecvmsg = []attempt{
	{name: "recvmsg", want: unix.EPERM, args: args(all)},
	{name: "recvmmsg", want: unix.EPERM, args: args(all)},
}

func TestFilterDenies(t *testing.T) {
	kerneltest.RequireRoot(t)
	both := slices.Clone(deniedToBoth)
	if runtime.GOARCH == "amd64" {
		both = append(both, deniedOnAMD64...)
	}
	orchestrator := slices.Concat(both, deniedToOrchestrator)
	for _, c := range []struct {
		name  string
		o     Options
		table []attempt
	}{
		{"command", Options{Kind: Command}, both},
		{"orchestrator", Options{Kind: Orchestrator}, orchestrator},
		{"orchestrator with memfd", Options{Kind: Orchestrator, Memfd: true}, both},
		{"orchestrator without recvmsg", Options{Kind: Orchestrator, DenyRecvmsg: true}, deniedWithoutRecvmsg},
	} {
		t.Run(c.name, func(t *testing.T) {
			bare := try(t, nil, c.table)
			for i, got := range try(t, mustCompile(t, c.o), c.table) {
				a := c.table[i]
				if got != a.want {
					t.Errorf("%s%#x: want %v, got %v", a.name, a.args, a.want, got)
				}
				if bare[i] == a.want && !a.alike {
					t.Errorf("%s%#x: %v without a filter too, so the test says nothing", a.name, a.args, bare[i])
				}
			}
		})
	}
}

// By number pid 1 of the host would be reniced by a bare run, so the program alone is asked.
func TestFilterKeepsTheNiceValueOfPid1(t *testing.T) {
	nr, err := number("setpriority")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []Kind{Orchestrator, Command} {
		for _, args := range [][6]uint64{{0, 1, 19}, {1, 1, 19}, {high, high | 1, 19}} {
			if got := verdict(mustCompile(t, Options{Kind: kind}), nativeArch(t), uint32(nr), args); got != errnoVerdict(unix.EPERM) {
				t.Errorf("%s: setpriority%v: want EPERM, got %#x", kind, args, got)
			}
		}
	}
}

// Sockets have no bare run: as root it would load protocol modules.
var deniedSockets = []attempt{
	{name: "socket", args: args(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP)},
	{name: "socket", args: args(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP)},
	{name: "socket", args: args(unix.AF_INET, unix.SOCK_SEQPACKET, 0)},
	{name: "socket", args: args(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP)},
	{name: "socket", args: args(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)},
	{name: "socket", args: args(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_ICMP)},
	{name: "socket", args: args(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP)},
	{name: "socket", args: args(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE)},
	{name: "socket", args: args(unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_MPTCP)},
	{name: "socket", args: args(unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6)},
	{name: "socket", args: args(high|unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)},
	{name: "socket", args: args(unix.AF_INET, high|unix.SOCK_RAW, unix.IPPROTO_RAW)},
	{name: "socket", args: args(unix.AF_INET, unix.SOCK_STREAM, high|unix.IPPROTO_MPTCP)},
	{name: "socket", args: args(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)},
	{name: "socket", args: args(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM)},
	{name: "socket", args: args(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG)},
	{name: "socket", args: args(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT)},
	{name: "socket", args: args(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT)},
	{name: "socket", args: args(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC)},
	{name: "socket", args: args(unix.AF_PACKET, unix.SOCK_RAW, 0)},
	{name: "socket", args: args(unix.AF_VSOCK, unix.SOCK_STREAM, 0)},
	{name: "socket", args: args(high|unix.AF_VSOCK, unix.SOCK_STREAM, 0)},
	{name: "socket", args: args(unix.AF_ALG, unix.SOCK_SEQPACKET, 0)},
	{name: "socket", args: args(unix.AF_BLUETOOTH, unix.SOCK_RAW, 1)},
	{name: "socket", args: args(unix.AF_RDS, unix.SOCK_SEQPACKET, 0)},
	{name: "socket", args: args(unix.AF_TIPC, unix.SOCK_STREAM, 0)},
	{name: "socket", args: args(unix.AF_SMC, unix.SOCK_STREAM, 0)},
	{name: "socket", args: args(unix.AF_XDP, unix.SOCK_RAW, 0)},
	{name: "socket", args: args(unix.AF_KEY, unix.SOCK_RAW, 2)},
	{name: "socket", args: args(unix.AF_CAN, unix.SOCK_RAW, 1)},
	{name: "socket", args: args(unix.AF_QIPCRTR, unix.SOCK_DGRAM, 0)},
	{name: "socketpair", args: args(unix.AF_TIPC, unix.SOCK_STREAM, 0, bad)},
	{name: "socketpair", args: args(unix.AF_INET, unix.SOCK_STREAM, 0, bad)},
}

func TestFilterDeniesSocketsButTheNamedOnes(t *testing.T) {
	kerneltest.RequireRoot(t) // whom the kernel would not answer EPERM itself
	for _, kind := range []Kind{Orchestrator, Command} {
		for i, got := range try(t, mustCompile(t, Options{Kind: kind}), deniedSockets) {
			if got != unix.EPERM {
				t.Errorf("%s: %s%#x: want EPERM, got %v", kind, deniedSockets[i].name, deniedSockets[i].args, got)
			}
		}
	}
}

func TestFilterAnswersENOSYSToNumbersOfTheFuture(t *testing.T) {
	for _, o := range []Options{{Kind: Orchestrator}, {Kind: Command}, {Kind: Helper}} {
		for _, nr := range []uint32{newestKnown + 1, 600, 0x3fffffff} {
			if got := verdict(mustCompile(t, o), nativeArch(t), nr, [6]uint64{}); got != errnoVerdict(unix.ENOSYS) {
				t.Errorf("%s: number %d: want ENOSYS, got %#x", o.Kind, nr, got)
			}
		}
	}
}
