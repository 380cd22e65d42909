package filter

import "golang.org/x/sys/unix"

// goRuntime is what a Go program without cgo calls from start to end once it is confined, measured with strace: memory,
// threads, timers, the poller, and descriptors it already has. No fork, no exec, no new file, no new socket.
var goRuntime = []string{
	"read", "write", "readv", "writev", "pread64", "pwrite64", "lseek", "close", "fstat", "fstatfs", "fsync", "fdatasync", "ftruncate",
	"pwritev2", "preadv2", "dup", "dup3", "pipe2", "splice", "tee", "sendfile", "copy_file_range", "ppoll", "poll",
	"mmap", "munmap", "mprotect", "madvise", "mincore", "brk", "mremap",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall",
	"futex", "sched_yield", "sched_getaffinity", "nanosleep", "clock_nanosleep", "clock_gettime", "gettimeofday",
	"timer_create", "timer_settime", "timer_delete", "setitimer",
	"exit", "exit_group", "set_robust_list", "rseq", "tgkill", "arch_prctl",
	"epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_wait", "eventfd2",
	"getpid", "getppid", "gettid", "getuid", "geteuid", "getgid", "getegid", "uname", "getrandom", "getrusage",
	"accept4", "recvmsg", "recvmmsg", "recvfrom", "shutdown", "getsockopt", "getsockname", "getpeername",
}

// openFiles is what a watcher or a resolver needs besides. openat2 is among them because ours resolve beneath a
// directory with it; a helper's Landlock domain says where.
var openFiles = []string{
	"openat", "openat2", "newfstatat", "statx", "getdents64", "readlinkat", "faccessat", "faccessat2",
	"inotify_init1", "inotify_add_watch", "inotify_rm_watch", "flock",
}

// changeFiles is what the watcher needs besides, to take a protected name away, to strip a set-id bit and access control lists.
// symlinkat keeps a link it took in the quarantine.
var changeFiles = []string{"renameat2", "unlinkat", "mkdirat", "symlinkat", "getxattr", "removexattr"}

// makeSockets is what a relay needs besides.
var makeSockets = []string{"connect", "bind", "listen"}

// terminalRequests are the ioctls that the bash-server makes on a client's descriptors.
var terminalRequests = []uint64{
	unix.TCGETS, unix.TCSETS, unix.TCSETSW, unix.TCSETSF, unix.TCFLSH, unix.TIOCGWINSZ, unix.TIOCSWINSZ, unix.TIOCINQ,
}

// socketOptions are those that package net sets by itself, and what a server of unix sockets asks for. No fast open: it
// sends where Landlock does not look.
var socketOptions = []struct{ level, name uint64 }{
	{unix.SOL_SOCKET, unix.SO_REUSEADDR}, {unix.SOL_SOCKET, unix.SO_BROADCAST}, {unix.SOL_SOCKET, unix.SO_KEEPALIVE},
	{unix.SOL_SOCKET, unix.SO_SNDBUF}, {unix.SOL_SOCKET, unix.SO_RCVBUF}, {unix.SOL_SOCKET, unix.SO_LINGER},
	{unix.SOL_SOCKET, unix.SO_PASSCRED}, {unix.SOL_SOCKET, unix.SO_RCVTIMEO}, {unix.SOL_SOCKET, unix.SO_SNDTIMEO},
	{unix.IPPROTO_TCP, unix.TCP_NODELAY}, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}, {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
	{unix.IPPROTO_TCP, unix.TCP_KEEPCNT}, {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT},
	{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY},
}

func helperRules(o Options) []rule {
	names := goRuntime
	if o.Files {
		names = append(names[:len(names):len(names)], openFiles...)
	}
	if o.Change {
		names = append(names[:len(names):len(names)], changeFiles...)
	}
	if o.Network {
		names = append(names[:len(names):len(names)], makeSockets...)
	}
	if o.Memfd {
		names = append(names[:len(names):len(names)], "memfd_create")
	}
	var rules []rule
	for _, name := range names {
		rules = append(rules, allow(name))
	}
	if o.Network {
		rules = append(rules, inetRules()...)
	}
	if o.Change {
		// Never a set-uid file of the user. The set-gid bit stays possible: a folder that has it may have to be
		// opened up before it can be emptied.
		rules = append(rules, allow("fchmodat", masked(2, setuidBit, 0)))
	}
	return append(rules, helperConditions()...)
}

// helperConditions narrow the calls whose arguments decide.
func helperConditions() []rule {
	rules := []rule{
		allow("clone", has(0, unix.CLONE_THREAD|unix.CLONE_VM)), // threads, never a process
		allow("prlimit64", equal(2, 0)),                         // reading a limit
		allow("sendto", masked(3, unix.MSG_FASTOPEN, 0)),
		allow("sendmsg", masked(2, unix.MSG_FASTOPEN, 0)),
		allow("sendmmsg", masked(3, unix.MSG_FASTOPEN, 0)),
		{name: "clone3", action: notThere},
	}
	for _, cmd := range []uint64{unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL, unix.F_DUPFD_CLOEXEC,
		unix.F_ADD_SEALS, unix.F_GET_SEALS, unix.F_GETPIPE_SZ, unix.F_SETPIPE_SZ} {
		rules = append(rules, allow("fcntl", equal(1, cmd)))
	}
	for _, opt := range socketOptions {
		rules = append(rules, allow("setsockopt", equal(1, opt.level), equal(2, opt.name)))
	}
	for _, req := range terminalRequests {
		rules = append(rules, allow("ioctl", equal(1, req)))
	}
	return rules
}
