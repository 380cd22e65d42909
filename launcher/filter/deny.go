package filter

import (
	seccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

const (
	setuidBit   = unix.S_ISUID
	setgidBit   = unix.S_ISGID
	tmpfileFlag = unix.O_TMPFILE &^ unix.O_DIRECTORY // __O_TMPFILE: the part of O_TMPFILE that O_DIRECTORY lacks
)

// argument names one argument of a call.
type argument struct {
	call  string
	index uint
}

// conditionalDenials hold for orchestrators and commands alike. F_SETOWN and F_SETSIG are left alone: Landlock's signal
// scope is checked when SIGIO is sent.
func conditionalDenials() []rule {
	var rules []rule
	rules = append(rules, modeBits()...)
	rules = append(rules, deviceNodes()...)
	rules = append(rules, coreLimit()...)
	rules = append(rules, fastOpen()...)
	rules = append(rules, socketPrograms()...)
	rules = append(rules, moduleLoaders()...)
	rules = append(rules, initPriority()...)

	// A listener decides system calls of others, puts descriptors into them and tells what they called; nothing inside
	// supervises by it but what would hide from who supervises this.
	rules = append(rules, deny("seccomp", int32Is(0, unix.SECCOMP_SET_MODE_FILTER), has(1, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)))
	// F_SETLEASE and F_NOTIFY on a user's file hold up, or spy on, the user's own open.
	for _, cmd := range []uint64{unix.F_SETLEASE, unix.F_NOTIFY} {
		rules = append(rules, deny("fcntl", int32Is(1, cmd)))
	}
	// What types into, takes over or reprograms a terminal. TIOCSETD attaches line disciplines, a classic of
	// kernel bugs.
	for _, req := range []uint64{unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCCONS, unix.TIOCSETD} {
		rules = append(rules, deny("ioctl", int32Is(1, req)))
	}
	return append(rules, socketpairs()...)
}

// modeBits: in a workspace that is an idmapped mount, a set-uid file made inside is set-uid of the user outside,
// whatever the view's own nosuid says. A filter cannot tell a folder's harmless set-gid bit from a file's: chmod of a
// folder that has it fails too.
func modeBits() []rule {
	var rules []rule
	for _, bit := range []uint64{setuidBit, setgidBit} {
		for _, m := range []argument{
			{"chmod", 1}, {"fchmod", 1}, {"fchmodat", 2}, {"fchmodat2", 2}, {"creat", 1},
			{"mkdir", 1}, {"mkdirat", 2}, {"mknod", 1}, {"mknodat", 2},
		} {
			rules = append(rules, deny(m.call, has(m.index, bit)))
		}
		// open reads its mode only with these flags; without them the register holds anything.
		for _, flag := range []uint64{unix.O_CREAT, tmpfileFlag} {
			rules = append(rules,
				deny("open", has(1, flag), has(2, bit)),
				deny("openat", has(2, flag), has(3, bit)))
		}
	}
	return rules
}

// deviceNodes: an unprivileged process may make the character device 0:0 (an overlayfs whiteout); the others need a
// capability, which is one more reason to need none of them here.
func deviceNodes() []rule {
	var rules []rule
	for _, typ := range []uint64{unix.S_IFCHR, unix.S_IFBLK} {
		rules = append(rules,
			deny("mknod", masked(1, unix.S_IFMT, typ)),
			deny("mknodat", masked(2, unix.S_IFMT, typ)))
	}
	return rules
}

// coreLimit keeps RLIMIT_CORE at the 1/1 that the stage sets. Lowering it counts too: at 0 the kernel still starts a
// piped core handler, as root and outside (core(5)); only 1 stops it. The answer is ENOSYS because gpg treats every
// other failure to disable core dumps as fatal. ssh-agent treats this one so too, and does not start in a domain.
func coreLimit() []rule {
	return []rule{
		{name: "setrlimit", action: notThere, conds: []seccomp.ScmpCondition{int32Is(0, unix.RLIMIT_CORE)}},
		{name: "prlimit64", action: notThere, conds: []seccomp.ScmpCondition{int32Is(1, unix.RLIMIT_CORE), notNull(2)}},
		// Another process's limits, by number: pid 1 of the domain has the same uid, and a limit of one second of CPU
		// time would end it. Landlock has no say in it.
		{name: "prlimit64", action: notThere, conds: []seccomp.ScmpCondition{notNull(0)}},
	}
}

// initPriority keeps pid 1 of the domain, which has the same uid, on the processor: no other policy, priority, processor or
// I/O class for it by its number, by that of its group, or with all of its uid's. Numbers of others stay possible, since
// pthread_setaffinity_np names its own thread by number.
func initPriority() []rule {
	const (
		prioProcess, prioGroup, prioUser = 0, 1, 2 // linux/resource.h
		ioProcess, ioGroup, ioUser       = 1, 2, 3 // linux/ioprio.h
	)
	var rules []rule
	for _, name := range []string{"sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"} {
		rules = append(rules, deny(name, int32Is(0, 1)))
	}
	for _, which := range []uint64{prioProcess, prioGroup} {
		rules = append(rules, deny("setpriority", int32Is(0, which), int32Is(1, 1)))
	}
	for _, which := range []uint64{ioProcess, ioGroup} {
		rules = append(rules, deny("ioprio_set", int32Is(0, which), int32Is(1, 1)))
	}
	return append(rules, deny("setpriority", int32Is(0, prioUser)), deny("ioprio_set", int32Is(0, ioUser)))
}

// socketpairs: only AF_UNIX has them besides TIPC, which the kernel would load a module for.
func socketpairs() []rule {
	return []rule{
		deny("socketpair", seccomp.ScmpCondition{Argument: 0, Op: seccomp.CompareNotEqual, Operand1: unix.AF_UNIX}),
	}
}

// kindDenials are those that only an orchestrator gets.
func kindDenials(o Options) []rule {
	if o.Kind != Orchestrator {
		return nil
	}
	// An executable descriptor could only be a memfd or one received: pinned files are started by path.
	rules := []rule{deny("execveat", has(4, unix.AT_EMPTY_PATH))}
	if o.DenyRecvmsg {
		rules = append(rules, deny("recvmsg"), deny("recvmmsg"))
	}
	return rules
}
