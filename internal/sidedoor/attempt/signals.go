package attempt

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// victim is the first bait process, zero without bait.
func (t *Target) victim() int {
	if len(t.Victims) == 0 {
		return 0
	}
	return t.Victims[0]
}

// atVictims makes an attempt on every bait process. A number that inside names one of our own is no bait.
func atVictims(id, door, what string, control Control, how func(t *Target, pid int) Outcome) Attempt {
	return Attempt{id, door, what, control, func(t *Target) Outcome {
		if len(t.Victims) == 0 {
			return impossible("no bait")
		}
		var all []Outcome
		for _, pid := range t.Victims {
			if ours(pid) {
				all = append(all, absent("pid %d is the probe's own", pid))
				continue
			}
			t.child = 0
			o := how(t, pid)
			if t.child == pid { // the child that made the attempt was given that number, and met itself
				o = how(t, pid)
			}
			all = append(all, o)
		}
		return worst(all...)
	}}
}

// siginfo is a siginfo_t as a user may send it: SI_QUEUE.
func (t *Target) siginfo(sig unix.Signal) uintptr {
	return t.words(4, append([]uint64{uint64(sig), 0, 0xffffffff}, make([]uint64, 29)...)...)
}

// winch is ignored by default everywhere, and counted by the bait processes.
const winch = unix.SIGWINCH

func signals() []Attempt {
	const door = "sig"
	simple := func(id, what string, calls func(t *Target, pid uintptr) []call) Attempt {
		return atVictims(door+"/"+id, door, what, Opens, func(t *Target, pid int) Outcome {
			_, err := t.forked(calls(t, uintptr(pid))...)
			return judgeForked(what, err)
		})
	}
	w := uintptr(winch)
	one := func(c call) []call { return []call{c} }
	return []Attempt{
		simple("kill-0", "kill with signal 0", func(_ *Target, pid uintptr) []call { return one(sys(unix.SYS_KILL, pid, 0)) }),
		simple("kill", "kill", func(_ *Target, pid uintptr) []call { return one(sys(unix.SYS_KILL, pid, w)) }),
		simple("kill-group", "kill of the process group", func(_ *Target, pid uintptr) []call { return one(sys(unix.SYS_KILL, -pid, 0)) }),
		simple("tkill", "tkill", func(_ *Target, pid uintptr) []call { return one(sys(unix.SYS_TKILL, pid, w)) }),
		simple("tgkill", "tgkill", func(_ *Target, pid uintptr) []call { return one(sys(unix.SYS_TGKILL, pid, pid, w)) }),
		simple("rt_sigqueueinfo", "rt_sigqueueinfo", func(t *Target, pid uintptr) []call {
			return one(sys(unix.SYS_RT_SIGQUEUEINFO, pid, w, t.siginfo(winch)))
		}),
		simple("rt_tgsigqueueinfo", "rt_tgsigqueueinfo", func(t *Target, pid uintptr) []call {
			return one(sys(unix.SYS_RT_TGSIGQUEUEINFO, pid, pid, w, t.siginfo(winch)))
		}),
		simple("pidfd", "pidfd_open and pidfd_send_signal", func(_ *Target, pid uintptr) []call {
			return []call{sys(unix.SYS_PIDFD_OPEN, pid, 0), sys(unix.SYS_PIDFD_SEND_SIGNAL, previous, w, 0, 0)}
		}),
		simple("proc-pidfd", "open /proc/PID and pidfd_send_signal", func(t *Target, pid uintptr) []call {
			return []call{sys(unix.SYS_OPENAT, atFDCWD, t.str(fmt.Sprintf("/proc/%d", pid)), unix.O_DIRECTORY), sys(unix.SYS_PIDFD_SEND_SIGNAL, previous, w, 0, 0)}
		}),
		simple("prlimit", "prlimit, read", func(t *Target, pid uintptr) []call {
			return one(sys(unix.SYS_PRLIMIT64, pid, unix.RLIMIT_NOFILE, 0, t.bytes(make([]byte, 16))))
		}),
		simple("sched_setaffinity", "sched_setaffinity, to all processors", func(t *Target, pid uintptr) []call {
			return one(sys(unix.SYS_SCHED_SETAFFINITY, pid, 8, t.words(8, ^uint64(0))))
		}),
		simple("setpriority", "setpriority, to 0", func(_ *Target, pid uintptr) []call { return one(sys(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, pid, 0)) }),
		atVictims(door+"/process_mrelease", door, "process_mrelease", Opens, func(t *Target, pid int) Outcome {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				return judge("pidfd_open", err)
			}
			defer unix.Close(fd)
			// EINVAL is the answer for a process that is not dying: the call was let through.
			_, err = t.forked(sys(unix.SYS_PROCESS_MRELEASE, uintptr(fd), 0))
			return reachedForked("process_mrelease", err)
		}),
		atVictims(door+"/sigio", door, "have the kernel send a signal (F_SETOWN, F_SETSIG, O_ASYNC)", Opens, func(t *Target, pid int) Outcome {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return judge("socketpair", err)
			}
			defer unix.Close(pair[0])
			defer unix.Close(pair[1])
			// The permission is checked silently when the signal is due, so that F_SETOWN on a pid that exists has to
			// count as open; the bait process counts what arrives.
			fd := uintptr(pair[0])
			_, err = t.forked(
				sys(unix.SYS_FCNTL, fd, unix.F_SETOWN, uintptr(pid)),
				sys(unix.SYS_FCNTL, fd, unix.F_SETSIG, w),
				sys(unix.SYS_FCNTL, fd, unix.F_SETFL, unix.O_ASYNC|unix.O_NONBLOCK),
				sys(unix.SYS_WRITE, uintptr(pair[1]), t.bytes([]byte{0}), 1))
			return judgeForked("fcntl F_SETOWN", err)
		}),
		{door + "/peerpidfd", door, "signal the owner of a socket through SO_PEERPIDFD", Opens, func(t *Target) Outcome {
			if t.VictimSock == "" {
				return impossible("no bait")
			}
			return peerPidfd(t, t.VictimSock)
		}},
		{door + "/peerpidfd-server", door, "signal the bash-server through SO_PEERPIDFD", NoServer, func(t *Target) Outcome { return peerPidfd(t, serverSocket()) }},
		{door + "/peercred-server", door, "signal the bash-server by the pid of SO_PEERCRED", NoServer, func(t *Target) Outcome {
			fd, err := dialUnix(serverSocket(), unix.SOCK_STREAM)
			if err != nil {
				return judge("connect", err)
			}
			defer unix.Close(fd)
			cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
			if err != nil {
				return judge("SO_PEERCRED", err)
			}
			if cred.Pid == 0 {
				return absent("the server's pid is 0 here")
			}
			return judge("kill", unix.Kill(int(cred.Pid), 0))
		}},
		{door + "/parent", door, "signal the parent", Varies, func(t *Target) Outcome {
			ppid := unix.Getppid()
			if ppid == 0 {
				return absent("the parent lies outside of this pid namespace")
			}
			if !t.privatePID() && ppid != 1 {
				return impossible("the parent is whoever started the probe")
			}
			return judge("kill", unix.Kill(ppid, 0))
		}},
	}
}

func peerPidfd(t *Target, path string) Outcome {
	fd, err := dialUnix(path, unix.SOCK_STREAM)
	if err != nil {
		return judge("connect "+path, err)
	}
	defer unix.Close(fd)
	pidfd, failed := peerPidfdOf(fd)
	if pidfd < 0 {
		return failed
	}
	defer unix.Close(pidfd)
	_, err = t.forked(sys(unix.SYS_PIDFD_SEND_SIGNAL, uintptr(pidfd), uintptr(winch), 0, 0))
	// EINVAL is the kernel's answer for a pidfd of a pid namespace that is no descendant of the caller's.
	return judgeForked("pidfd_send_signal", err, unix.EINVAL)
}
