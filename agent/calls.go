package agent

import (
	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/bpf"
)

// topic says what a refused call was about; judge decides by it.
type topic uint8

const (
	aboutExec topic = iota
	aboutMap
	aboutMemfd
	aboutSignal
	aboutTrace
	aboutSpace // namespaces and mounts
	aboutKernel
	aboutIDs
	aboutLimit
	aboutProcess // settings of another process
	aboutFcntl
	aboutIoctl
	aboutSocket // making one
	aboutNet    // using one
	aboutMode   // calls that can set a set-id bit, on whether or not paths are
	aboutPath   // Options.Files
	aboutLook   // looking at a file: Options.Tried alone
)

// call is one system call whose refusal is reported.
type call struct {
	name string
	nr   int
	topic
	spec bpf.TraceCall
}

// none is an index of no argument.
const none = -1

func is(name string, nr int, t topic, class bpf.TraceClass) call {
	return call{name: name, nr: nr, topic: t, spec: bpf.TraceCall{Flags: uint32(bpf.TraceCallFlagCALL_DENIED), Class: uint8(class),
		Path: none, Dirfd: none, Fd: none, Addr: none, More: none, Mode: none}}
}

func (c call) path(arg int8) call       { c.spec.Path = arg; return c }
func (c call) at(dirfd, path int8) call { c.spec.Dirfd, c.spec.Path = dirfd, path; return c }
func (c call) fd(arg int8) call         { c.spec.Fd = arg; return c }
func (c call) addr(arg int8) call       { c.spec.Addr = arg; return c }
func (c call) more(arg int8) call       { c.spec.More = arg; return c }

// keyed names arguments that tell two refusals apart: by each of them the door, or what was meant, can differ. The first two
// count anyway where no text does.
func (c call) keyed(args ...int) call {
	for _, a := range args {
		c.spec.Keyed |= 1 << a
	}
	return c
}

// setID is the mode of a new file: with a set-id bit the refusal is reported whether or not paths are.
func (c call) setID(mode int8) call { c.spec.Mode = mode; return c }

func (c call) also(f bpf.TraceCallFlag) call { c.spec.Flags |= uint32(f); return c }

func execCall(name string, nr int, t topic) call { return is(name, nr, t, bpf.TraceClassCLASS_EXEC) }
func processCall(name string, nr int, t topic) call {
	return is(name, nr, t, bpf.TraceClassCLASS_PROCESS)
}
func netCall(name string, nr int, t topic) call  { return is(name, nr, t, bpf.TraceClassCLASS_NET) }
func fileCall(name string, nr int, t topic) call { return is(name, nr, t, bpf.TraceClassCLASS_FILE) }

// writeCall is one that a read-only mount refuses, nameCall one that changes a name besides, which a mount upon it refuses.
func writeCall(name string, nr int, t topic) call { return fileCall(name, nr, t).also(rofs) }
func nameCall(name string, nr int, t topic) call  { return writeCall(name, nr, t).also(busy) }

const (
	noSys   = bpf.TraceCallFlagCALL_NOSYS
	unreach = bpf.TraceCallFlagCALL_UNREACH
	prot    = bpf.TraceCallFlagCALL_PROT
	msghdr  = bpf.TraceCallFlagCALL_MSGHDR
	maps    = bpf.TraceCallFlagCALL_MAPS
	vma     = bpf.TraceCallFlagCALL_VMA
	rofs    = bpf.TraceCallFlagCALL_ROFS
	busy    = bpf.TraceCallFlagCALL_BUSY
	tried   = bpf.TraceCallFlagCALL_TRIED
	sent    = bpf.TraceCallFlagCALL_SENT
	list    = bpf.TraceCallFlagCALL_ARGV
	setid   = bpf.TraceCallFlagCALL_SETID
)

// common are the calls of every architecture. ENOSYS counts only where our own filter answers it.
var common = []call{
	execCall("execve", unix.SYS_EXECVE, aboutExec).path(0).more(1).also(tried | list),
	execCall("execveat", unix.SYS_EXECVEAT, aboutExec).at(0, 1).more(2).also(tried | list).keyed(4),
	execCall("mmap", unix.SYS_MMAP, aboutMap).fd(4).also(prot | maps),
	execCall("mprotect", unix.SYS_MPROTECT, aboutMap).also(prot | maps | vma),
	execCall("pkey_mprotect", unix.SYS_PKEY_MPROTECT, aboutMap).also(prot | maps | vma),
	execCall("memfd_create", unix.SYS_MEMFD_CREATE, aboutMemfd).path(0).also(noSys),
	execCall("memfd_secret", unix.SYS_MEMFD_SECRET, aboutMemfd).also(noSys),

	processCall("kill", unix.SYS_KILL, aboutSignal).also(sent),
	processCall("tkill", unix.SYS_TKILL, aboutSignal).also(sent),
	processCall("tgkill", unix.SYS_TGKILL, aboutSignal).also(sent).keyed(2),
	processCall("rt_sigqueueinfo", unix.SYS_RT_SIGQUEUEINFO, aboutSignal).also(sent),
	processCall("rt_tgsigqueueinfo", unix.SYS_RT_TGSIGQUEUEINFO, aboutSignal).also(sent).keyed(2),
	processCall("pidfd_send_signal", unix.SYS_PIDFD_SEND_SIGNAL, aboutSignal).fd(0).also(sent),

	processCall("ptrace", unix.SYS_PTRACE, aboutTrace),
	processCall("process_vm_readv", unix.SYS_PROCESS_VM_READV, aboutTrace),
	processCall("process_vm_writev", unix.SYS_PROCESS_VM_WRITEV, aboutTrace),
	processCall("pidfd_getfd", unix.SYS_PIDFD_GETFD, aboutTrace).fd(0),
	processCall("kcmp", unix.SYS_KCMP, aboutTrace),
	processCall("process_madvise", unix.SYS_PROCESS_MADVISE, aboutTrace).fd(0),
	processCall("process_mrelease", unix.SYS_PROCESS_MRELEASE, aboutSignal).fd(0),

	processCall("unshare", unix.SYS_UNSHARE, aboutSpace),
	processCall("setns", unix.SYS_SETNS, aboutSpace).fd(0),
	processCall("clone", unix.SYS_CLONE, aboutSpace),
	processCall("mount", unix.SYS_MOUNT, aboutSpace).path(1).keyed(3),
	processCall("umount2", unix.SYS_UMOUNT2, aboutSpace).path(0),
	processCall("pivot_root", unix.SYS_PIVOT_ROOT, aboutSpace).path(0),
	processCall("chroot", unix.SYS_CHROOT, aboutSpace).path(0),
	processCall("open_tree", unix.SYS_OPEN_TREE, aboutSpace).at(0, 1),
	processCall("open_tree_attr", unix.SYS_OPEN_TREE_ATTR, aboutSpace).at(0, 1),
	processCall("move_mount", unix.SYS_MOVE_MOUNT, aboutSpace).at(2, 3),
	processCall("fsopen", unix.SYS_FSOPEN, aboutSpace).path(0),
	processCall("fsconfig", unix.SYS_FSCONFIG, aboutSpace),
	processCall("fsmount", unix.SYS_FSMOUNT, aboutSpace),
	processCall("fspick", unix.SYS_FSPICK, aboutSpace).at(0, 1),
	processCall("mount_setattr", unix.SYS_MOUNT_SETATTR, aboutSpace).at(0, 1),

	processCall("setuid", unix.SYS_SETUID, aboutIDs),
	processCall("setgid", unix.SYS_SETGID, aboutIDs),
	processCall("setreuid", unix.SYS_SETREUID, aboutIDs),
	processCall("setregid", unix.SYS_SETREGID, aboutIDs),
	processCall("setresuid", unix.SYS_SETRESUID, aboutIDs).keyed(2),
	processCall("setresgid", unix.SYS_SETRESGID, aboutIDs).keyed(2),
	processCall("setgroups", unix.SYS_SETGROUPS, aboutIDs),
	processCall("capset", unix.SYS_CAPSET, aboutIDs),
	processCall("prctl", unix.SYS_PRCTL, aboutIDs).keyed(2), // ambient capabilities and securebits

	processCall("prlimit64", unix.SYS_PRLIMIT64, aboutLimit).also(noSys),
	processCall("setpriority", unix.SYS_SETPRIORITY, aboutProcess),
	processCall("sched_setaffinity", unix.SYS_SCHED_SETAFFINITY, aboutProcess),
	processCall("sched_setscheduler", unix.SYS_SCHED_SETSCHEDULER, aboutProcess),
	processCall("sched_setparam", unix.SYS_SCHED_SETPARAM, aboutProcess),
	processCall("sched_setattr", unix.SYS_SCHED_SETATTR, aboutProcess),
	processCall("ioprio_set", unix.SYS_IOPRIO_SET, aboutProcess),

	processCall("ioctl", unix.SYS_IOCTL, aboutIoctl).fd(0),

	processCall("io_uring_setup", unix.SYS_IO_URING_SETUP, aboutKernel).also(noSys),
	processCall("io_uring_enter", unix.SYS_IO_URING_ENTER, aboutKernel).also(noSys),
	processCall("io_uring_register", unix.SYS_IO_URING_REGISTER, aboutKernel).also(noSys),
	processCall("bpf", unix.SYS_BPF, aboutKernel),
	processCall("perf_event_open", unix.SYS_PERF_EVENT_OPEN, aboutKernel),
	processCall("userfaultfd", unix.SYS_USERFAULTFD, aboutKernel),
	processCall("keyctl", unix.SYS_KEYCTL, aboutKernel).keyed(2),
	processCall("add_key", unix.SYS_ADD_KEY, aboutKernel),
	processCall("request_key", unix.SYS_REQUEST_KEY, aboutKernel),
	processCall("open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, aboutKernel),
	processCall("name_to_handle_at", unix.SYS_NAME_TO_HANDLE_AT, aboutKernel).at(0, 1),
	processCall("init_module", unix.SYS_INIT_MODULE, aboutKernel),
	processCall("finit_module", unix.SYS_FINIT_MODULE, aboutKernel).fd(0),
	processCall("delete_module", unix.SYS_DELETE_MODULE, aboutKernel).path(0),
	processCall("kexec_load", unix.SYS_KEXEC_LOAD, aboutKernel),
	processCall("kexec_file_load", unix.SYS_KEXEC_FILE_LOAD, aboutKernel).fd(0),
	processCall("reboot", unix.SYS_REBOOT, aboutKernel),
	processCall("swapon", unix.SYS_SWAPON, aboutKernel).path(0),
	processCall("swapoff", unix.SYS_SWAPOFF, aboutKernel).path(0),
	processCall("acct", unix.SYS_ACCT, aboutKernel).path(0),
	processCall("quotactl", unix.SYS_QUOTACTL, aboutKernel).path(1),
	processCall("quotactl_fd", unix.SYS_QUOTACTL_FD, aboutKernel).fd(0),
	processCall("settimeofday", unix.SYS_SETTIMEOFDAY, aboutKernel),
	processCall("clock_settime", unix.SYS_CLOCK_SETTIME, aboutKernel),
	processCall("clock_adjtime", unix.SYS_CLOCK_ADJTIME, aboutKernel),
	processCall("adjtimex", unix.SYS_ADJTIMEX, aboutKernel),
	processCall("personality", unix.SYS_PERSONALITY, aboutKernel),
	processCall("sethostname", unix.SYS_SETHOSTNAME, aboutKernel),
	processCall("setdomainname", unix.SYS_SETDOMAINNAME, aboutKernel),
	processCall("syslog", unix.SYS_SYSLOG, aboutKernel),
	processCall("vhangup", unix.SYS_VHANGUP, aboutKernel),
	processCall("lookup_dcookie", unix.SYS_LOOKUP_DCOOKIE, aboutKernel),
	processCall("nfsservctl", unix.SYS_NFSSERVCTL, aboutKernel),
	processCall("fanotify_init", unix.SYS_FANOTIFY_INIT, aboutKernel),
	processCall("fanotify_mark", unix.SYS_FANOTIFY_MARK, aboutKernel).at(3, 4),
	processCall("mbind", unix.SYS_MBIND, aboutKernel),
	processCall("get_mempolicy", unix.SYS_GET_MEMPOLICY, aboutKernel),
	processCall("set_mempolicy", unix.SYS_SET_MEMPOLICY, aboutKernel),
	processCall("set_mempolicy_home_node", unix.SYS_SET_MEMPOLICY_HOME_NODE, aboutKernel),
	processCall("seccomp", unix.SYS_SECCOMP, aboutKernel),
	processCall("lsm_get_self_attr", unix.SYS_LSM_GET_SELF_ATTR, aboutKernel),
	processCall("lsm_set_self_attr", unix.SYS_LSM_SET_SELF_ATTR, aboutKernel),
	processCall("lsm_list_modules", unix.SYS_LSM_LIST_MODULES, aboutKernel),
	processCall("migrate_pages", unix.SYS_MIGRATE_PAGES, aboutKernel),
	processCall("move_pages", unix.SYS_MOVE_PAGES, aboutKernel),

	netCall("socket", unix.SYS_SOCKET, aboutSocket).keyed(2),
	netCall("socketpair", unix.SYS_SOCKETPAIR, aboutSocket).keyed(2),
	netCall("connect", unix.SYS_CONNECT, aboutNet).fd(0).addr(1).also(unreach | tried),
	netCall("bind", unix.SYS_BIND, aboutNet).fd(0).addr(1),
	netCall("listen", unix.SYS_LISTEN, aboutNet).fd(0),
	netCall("sendto", unix.SYS_SENDTO, aboutNet).fd(0).addr(4).also(unreach).keyed(3),
	netCall("sendmsg", unix.SYS_SENDMSG, aboutNet).fd(0).addr(1).also(unreach | msghdr).keyed(2),
	netCall("sendmmsg", unix.SYS_SENDMMSG, aboutNet).fd(0).addr(1).also(unreach | msghdr).keyed(3),
	netCall("setsockopt", unix.SYS_SETSOCKOPT, aboutNet).fd(0).keyed(2),
	netCall("recvmsg", unix.SYS_RECVMSG, aboutNet).fd(0).keyed(2),
	netCall("recvfrom", unix.SYS_RECVFROM, aboutNet).fd(0).also(tried).keyed(3),
	netCall("recvmmsg", unix.SYS_RECVMMSG, aboutNet).fd(0).keyed(3),

	fileCall("fcntl", unix.SYS_FCNTL, aboutFcntl).fd(0).keyed(2),
	writeCall("fchmod", unix.SYS_FCHMOD, aboutMode).fd(0),
	writeCall("fchmodat", unix.SYS_FCHMODAT, aboutMode).at(0, 1).keyed(2),
	writeCall("fchmodat2", unix.SYS_FCHMODAT2, aboutMode).at(0, 1).keyed(2),
	writeCall("mkdirat", unix.SYS_MKDIRAT, aboutMode).at(0, 1).keyed(2),
	writeCall("mknodat", unix.SYS_MKNODAT, aboutMode).at(0, 1).keyed(2, 3),

	writeCall("openat", unix.SYS_OPENAT, aboutPath).at(0, 1).keyed(2, 3).setID(3),
	writeCall("openat2", unix.SYS_OPENAT2, aboutPath).at(0, 1),
	writeCall("truncate", unix.SYS_TRUNCATE, aboutPath).path(0),
	writeCall("fchownat", unix.SYS_FCHOWNAT, aboutPath).at(0, 1),
	writeCall("fchown", unix.SYS_FCHOWN, aboutPath).fd(0),
	writeCall("utimensat", unix.SYS_UTIMENSAT, aboutPath).at(0, 1),
	writeCall("setxattr", unix.SYS_SETXATTR, aboutPath).path(0),
	writeCall("lsetxattr", unix.SYS_LSETXATTR, aboutPath).path(0),
	writeCall("fsetxattr", unix.SYS_FSETXATTR, aboutPath).fd(0),
	writeCall("removexattr", unix.SYS_REMOVEXATTR, aboutPath).path(0),
	writeCall("lremovexattr", unix.SYS_LREMOVEXATTR, aboutPath).path(0),
	writeCall("fremovexattr", unix.SYS_FREMOVEXATTR, aboutPath).fd(0),
	nameCall("unlinkat", unix.SYS_UNLINKAT, aboutPath).at(0, 1).keyed(2),
	nameCall("renameat2", unix.SYS_RENAMEAT2, aboutPath).at(2, 3).more(1).keyed(4),
	writeCall("linkat", unix.SYS_LINKAT, aboutPath).at(2, 3).more(1),
	writeCall("symlinkat", unix.SYS_SYMLINKAT, aboutPath).at(1, 2),

	fileCall("newfstatat", unix.SYS_NEWFSTATAT, aboutLook).at(0, 1),
	fileCall("statx", unix.SYS_STATX, aboutLook).at(0, 1),
	fileCall("faccessat", unix.SYS_FACCESSAT, aboutLook).at(0, 1),
	fileCall("faccessat2", unix.SYS_FACCESSAT2, aboutLook).at(0, 1),
	fileCall("readlinkat", unix.SYS_READLINKAT, aboutLook).at(0, 1),
	fileCall("chdir", unix.SYS_CHDIR, aboutLook).path(0),
}

var calls = func() map[int]call {
	out := map[int]call{}
	for _, list := range [][]call{common, native} {
		for _, c := range list {
			out[c.nr] = c
		}
	}
	return out
}()

// maxCalls is MAX_CALLS of event.h; the loader compares the sizes.
const maxCalls = 512

// callTable is what the kernel side goes by.
func callTable(o Options) [maxCalls]bpf.TraceCall {
	var table [maxCalls]bpf.TraceCall
	for nr, c := range calls {
		table[nr] = c.flagged(o)
	}
	return table
}

// flagged leaves of a call's flags what o asks for.
func (c call) flagged(o Options) bpf.TraceCall {
	off, on := bpf.TraceCallFlag(0), bpf.TraceCallFlag(0)
	if !o.Maps {
		off |= maps
	}
	if !o.Files {
		off |= rofs | busy
	}
	if !o.Argv && bpf.TraceCallFlag(c.spec.Flags)&list != 0 {
		c.spec.More = none
	}
	switch c.topic {
	case aboutPath:
		on |= tried
		if !o.Files {
			if c.spec.Mode == none {
				off |= bpf.TraceCallFlagCALL_DENIED
			} else {
				on |= setid
			}
		}
	case aboutLook:
		on |= tried
		off |= bpf.TraceCallFlagCALL_DENIED
	case aboutMode:
		on |= tried
	}
	if !o.Tried {
		off |= tried | sent
	}
	c.spec.Flags = (c.spec.Flags | uint32(on)) &^ uint32(off)
	return c.spec
}
