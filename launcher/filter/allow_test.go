package filter

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
)

// What must reach the kernel: want is the kernel's own answer to arguments that do nothing.
var allowedToBoth = []attempt{
	// An errno from getpeername is how Debian's bash decides whether it runs over a network, and on EPERM it reads
	// ~/.bashrc for every command.
	{name: "getpeername", want: unix.EBADF, args: args(all)},
	{name: "getpeername", want: unix.ENOTCONN, args: args(inetFD, emptyPath, emptyPath)},

	{name: "prlimit64", args: args(0, unix.RLIMIT_CORE, 0, 0)},
	{name: "prlimit64", want: unix.EFAULT, args: args(0, unix.RLIMIT_NOFILE, bad)},
	{name: "fchmod", want: unix.EBADF, args: args(all, 0o1777)},
	{name: "fchmodat", want: unix.EFAULT, args: args(cwd, bad, 0o755)},
	{name: "openat", want: unix.EFAULT, args: args(cwd, bad, unix.O_RDONLY, 0o7777)}, // mode is garbage without O_CREAT
	{name: "openat", want: unix.EFAULT, args: args(cwd, bad, unix.O_RDONLY|unix.O_DIRECTORY, 0o7777)},
	{name: "openat", want: unix.EFAULT, args: args(cwd, bad, unix.O_CREAT|unix.O_WRONLY, 0o644)},
	{name: "openat", want: unix.EFAULT, args: args(cwd, bad, unix.O_TMPFILE|unix.O_WRONLY, 0o600)},
	{name: "mkdirat", want: unix.EFAULT, args: args(cwd, bad, 0o1777)},
	{name: "mknodat", want: unix.EFAULT, args: args(cwd, bad, unix.S_IFIFO|0o644)},
	{name: "mknodat", want: unix.EFAULT, args: args(cwd, bad, unix.S_IFSOCK|0o644)},
	{name: "fcntl", want: unix.EBADF, args: args(all, unix.F_SETOWN)},
	{name: "fcntl", want: unix.EBADF, args: args(all, unix.F_SETLK)},
	{name: "ioctl", want: unix.EBADF, args: args(all, unix.TIOCSCTTY)},
	{name: "ioctl", want: unix.EBADF, args: args(all, unix.TIOCGWINSZ)},
	{name: "ioctl", want: unix.EBADF, args: args(all, 0x5421)},           // FIONBIO
	{name: "ioctl", want: unix.EBADF, args: args(all, unix.SIOCGIFCONF)}, // interfaces, as programs without netlink list them
	{name: "ioctl", want: unix.EBADF, args: args(all, unix.SIOCGIFFLAGS)},
	{name: "ioctl", want: unix.EBADF, args: args(all, unix.SIOCGIFADDR)},
	{name: "ioctl", want: unix.EBADF, args: args(all, unix.SIOCGIFHWADDR)},
	{name: "ioctl", want: unix.EBADF, args: args(all, unix.SIOCETHTOOL)},

	{name: "sendto", want: unix.EBADF, args: args(all, bad, 1, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)},
	{name: "sendmsg", want: unix.EBADF, args: args(all, bad, 0)},
	{name: "sendmmsg", want: unix.EBADF, args: args(all, bad, 1, 0)},
	{name: "recvmsg", want: unix.EBADF, args: args(all)},
	{name: "setsockopt", want: unix.EBADF, args: args(all, unix.IPPROTO_TCP, unix.TCP_NODELAY)},
	{name: "setsockopt", want: unix.EBADF, args: args(all, unix.SOL_SOCKET, unix.TCP_FASTOPEN)}, // another level's 23
	{name: "setsockopt", want: unix.EBADF, args: args(all, unix.SOL_SOCKET, unix.SO_RCVBUF)},
	{name: "setsockopt", want: unix.EBADF, args: args(all, unix.SOL_SOCKET, unix.SO_REUSEPORT)},
	{name: "setsockopt", want: unix.EBADF, args: args(all, unix.IPPROTO_TCP, unix.SO_ATTACH_FILTER)}, // another level's 26
	{name: "socket", args: args(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)},
	{name: "socket", args: args(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)},
	{name: "socket", args: args(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)},
	{name: "socket", args: args(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)},
	{name: "socket", args: args(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP)},
	{name: "socket", args: args(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP)},
	{name: "socket", args: args(unix.AF_INET6, unix.SOCK_STREAM, 0)},
	{name: "socket", args: args(unix.AF_INET6, unix.SOCK_DGRAM, 0)},
	{name: "socket", args: args(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)},
	{name: "socketpair", want: unix.EFAULT, args: args(unix.AF_UNIX, unix.SOCK_STREAM, 0, bad)},

	{name: "personality", args: args(0xffffffff)},
	{name: "personality", args: args(0)},
	{name: "pidfd_open", want: unix.EINVAL, args: args(all)},
	{name: "pidfd_send_signal", args: args(selfPidfd, 0)},
	{name: "landlock_create_ruleset", want: unix.EINVAL, args: args(0, 0, 1<<20)},
	{name: "seccomp", want: unix.EINVAL, args: args(99)},
	{name: "prctl", want: unix.EINVAL, args: args(unix.PR_SET_NO_NEW_PRIVS, 0)},
	{name: "membarrier", args: args(0)},
	{name: "rseq", want: unix.EINVAL, args: args(bad, 1)},
	{name: "clone", want: unix.EINVAL, args: args(unix.CLONE_SIGHAND)}, // reaches the kernel, which wants CLONE_VM too
	{name: "close_range", want: unix.EINVAL, args: args(2, 1)},
	{name: "seccomp", want: unix.EFAULT, args: args(unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, bad)},
	{name: "sched_setaffinity", want: unix.ESRCH, args: args(gone, 8, emptyPath)}, // pthread_setaffinity_np names a thread
	{name: "sched_setaffinity", want: unix.EFAULT, args: args(0, 8, bad)},
	{name: "sched_setscheduler", want: unix.EINVAL, args: args(0, 0, 0)},
	{name: "setpriority", args: args(0, 0, 0)},
	{name: "setpriority", want: unix.ESRCH, args: args(0, gone, 0)},
	{name: "ioprio_set", want: unix.EINVAL, args: args(1, 0, all)},
	{name: "inotify_init1", want: unix.EINVAL, args: args(all)},
}

var allowedToCommand = []attempt{
	{name: "memfd_create", want: unix.EFAULT, args: args(bad)},
	{name: "execveat", want: unix.EBADF, args: args(all, emptyPath, 0, 0, unix.AT_EMPTY_PATH)},
}

func TestFilterAllowsWhatProgramsNeed(t *testing.T) {
	kerneltest.RequireLandlock(t, 1) // without it its row says ENOSYS
	for _, c := range []struct {
		name  string
		o     Options
		table []attempt
	}{
		{"command", Options{Kind: Command}, allowedToBoth},
		{"command's own", Options{Kind: Command}, allowedToCommand},
		{"orchestrator", Options{Kind: Orchestrator}, allowedToBoth},
		{"orchestrator with memfd", Options{Kind: Orchestrator, Memfd: true}, allowedToCommand[:1]},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, got := range try(t, mustCompile(t, c.o), c.table) {
				if a := c.table[i]; got != a.want {
					t.Errorf("%s%#x: want %v, got %v", a.name, a.args, a.want, got)
				}
			}
		})
	}
}
