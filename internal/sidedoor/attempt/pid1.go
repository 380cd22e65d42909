package attempt

import (
	"golang.org/x/sys/unix"
)

// pidOne attacks the stage that stayed as pid 1. It is signalled for real only where it is certainly not the host's
// init, and only when signal 0 was refused already, which makes the rest a matter of form.
func pidOne() []Attempt {
	const door = "pid1"
	var a []Attempt
	file := func(name string, flag int) {
		id := name
		if flag != unix.O_RDONLY {
			id += "-write"
		}
		a = append(a, Attempt{door + "/" + id, door, "open /proc/1/" + id, Refused, func(*Target) Outcome {
			fd, err := unix.Open("/proc/1/"+name, flag|unix.O_CLOEXEC, 0)
			if err == nil {
				unix.Close(fd)
			}
			return judge("open", err)
		}})
	}
	for _, n := range []string{"mem", "environ", "maps", "auxv", "fd", "map_files"} {
		file(n, unix.O_RDONLY)
	}
	file("mem", unix.O_RDWR)
	file("clear_refs", unix.O_WRONLY)
	file("oom_score_adj", unix.O_WRONLY)
	file("coredump_filter", unix.O_WRONLY)
	for _, n := range []string{"root", "cwd", "exe"} {
		a = append(a, Attempt{door + "/" + n, door, "follow /proc/1/" + n, Refused, func(*Target) Outcome {
			fd, err := unix.Open("/proc/1/"+n, unix.O_PATH|unix.O_CLOEXEC, 0)
			if err == nil {
				unix.Close(fd)
			}
			return judge("open O_PATH", err)
		}})
	}
	add := func(id, what string, nr uintptr, args ...uintptr) {
		a = append(a, Attempt{door + "/" + id, door, what, Refused, func(t *Target) Outcome {
			_, err := t.forked(sys(nr, args...))
			return judgeForked(what, err)
		}})
	}
	add("seize", "PTRACE_SEIZE of pid 1", unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1, 0, 0)
	add("kill-0", "kill(1, 0)", unix.SYS_KILL, 1, 0)
	add("prlimit", "prlimit of pid 1, read", unix.SYS_PRLIMIT64, 1, unix.RLIMIT_NOFILE, 0, 0)
	add("kcmp", "kcmp of pid 1", unix.SYS_KCMP, 1, 1, 1, 0, 0)
	for _, s := range []unix.Signal{unix.SIGKILL, unix.SIGSTOP, unix.SIGTERM, unix.SIGCHLD, unix.SIGSEGV, unix.SIGURG} {
		a = append(a, Attempt{door + "/" + unix.SignalName(s), door, "kill(1, " + unix.SignalName(s) + ")", Refused, func(t *Target) Outcome {
			if !t.privatePID() {
				return impossible("pid 1 is not known to be the domain's own")
			}
			if unix.Kill(1, 0) == nil {
				return opened("signal 0 was allowed, %s is not tried", unix.SignalName(s))
			}
			return judge("kill", unix.Kill(1, s))
		}})
	}
	return append(a, Attempt{door + "/process_vm_readv", door, "process_vm_readv of pid 1", Refused, func(t *Target) Outcome {
		return vm(t, unix.SYS_PROCESS_VM_READV, 1)
	}}, Attempt{door + "/ns", door, "join a namespace of pid 1", Refused, func(t *Target) Outcome {
		fd, err := unix.Open("/proc/1/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return judge("open /proc/1/ns/mnt", err)
		}
		defer unix.Close(fd)
		_, err = t.forked(sys(unix.SYS_SETNS, uintptr(fd), 0))
		return judgeForked("setns", err)
	}})
}
