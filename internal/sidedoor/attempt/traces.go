package attempt

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// traces read, write or trace processes outside. PTRACE_SEIZE does not stop its target and ends with the child that
// made it; nothing is ever written.
func traces() []Attempt {
	const door = "ptrace"
	simple := func(id, what string, control Control, calls func(t *Target, pid uintptr) []call) Attempt {
		return atVictims(door+"/"+id, door, what, control, func(t *Target, pid int) Outcome {
			_, err := t.forked(calls(t, uintptr(pid))...)
			return judgeForked(what, err)
		})
	}
	one := func(c call) []call { return []call{c} }
	a := []Attempt{
		simple("seize", "PTRACE_SEIZE", Opens, func(_ *Target, pid uintptr) []call { return one(sys(unix.SYS_PTRACE, unix.PTRACE_SEIZE, pid, 0, 0)) }),
		// The empty vectors make the calls read and write nothing; access is checked all the same.
		atVictims(door+"/process_vm_readv", door, "process_vm_readv", Opens, func(t *Target, pid int) Outcome { return vm(t, unix.SYS_PROCESS_VM_READV, pid) }),
		atVictims(door+"/process_vm_writev", door, "process_vm_writev", Opens, func(t *Target, pid int) Outcome { return vm(t, unix.SYS_PROCESS_VM_WRITEV, pid) }),
		simple("pidfd_getfd", "pidfd_getfd of descriptor 0", Opens, func(_ *Target, pid uintptr) []call {
			return []call{sys(unix.SYS_PIDFD_OPEN, pid, 0), sys(unix.SYS_PIDFD_GETFD, previous, 0, 0)}
		}),
		simple("kcmp", "kcmp", Opens, func(_ *Target, pid uintptr) []call { return one(sys(unix.SYS_KCMP, pid, pid, 1, 0, 0)) }),
		simple("move_pages", "move_pages of no page", Opens, func(_ *Target, pid uintptr) []call { return one(sys(unix.SYS_MOVE_PAGES, pid, 0, 0, 0, 0, 0)) }),
		atVictims(door+"/process_madvise", door, "process_madvise", Refused, func(t *Target, pid int) Outcome {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				return judge("pidfd_open", err)
			}
			defer unix.Close(fd)
			_, err = t.forked(sys(unix.SYS_PROCESS_MADVISE, uintptr(fd), t.words(8, 0, 0), 1, unix.MADV_COLD, 0))
			return reachedForked("process_madvise", err)
		}),
		simple("get_robust_list", "get_robust_list", Opens, func(t *Target, pid uintptr) []call {
			p := t.bytes(make([]byte, 16))
			return one(sys(unix.SYS_GET_ROBUST_LIST, pid, p, p+8))
		}),
		{door + "/traceme", door, "PTRACE_TRACEME, to rewrite one's own system calls later", Opens, func(t *Target) Outcome {
			_, err := t.forked(sys(unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0, 0))
			return judgeForked("PTRACE_TRACEME", err)
		}},
		{door + "/suspend-seccomp", door, "PTRACE_O_SUSPEND_SECCOMP on a child", Refused, func(t *Target) Outcome {
			pid, err := sleeper()
			if err != nil {
				return broke("start a child: %v", err)
			}
			t.later(func() { reap(pid) })
			_, err = t.forked(sys(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 1<<21))
			return judgeForked("PTRACE_O_SUSPEND_SECCOMP", err)
		}},
		{door + "/dumpable", door, "read the environment of any process in sight that is not one's own", Opens, scanProc},
	}
	for _, f := range []struct {
		name string
		flag int
	}{{"mem", unix.O_RDONLY}, {"mem-write", unix.O_RDWR}, {"environ", unix.O_RDONLY}, {"maps", unix.O_RDONLY}, {"auxv", unix.O_RDONLY},
		{"syscall", unix.O_RDONLY}, {"stack", unix.O_RDONLY}, {"fd", unix.O_RDONLY}, {"root/etc", unix.O_RDONLY}, {"cwd/.", unix.O_RDONLY},
		{"exe", unix.O_RDONLY}, {"map_files", unix.O_RDONLY}, {"task", unix.O_RDONLY}} {
		control := Opens
		switch f.name {
		case "syscall", "stack", "map_files":
			control = Varies // CONFIG_HAVE_ARCH_TRACEHOOK, CAP_SYS_ADMIN, CAP_CHECKPOINT_RESTORE
		}
		file := f.name
		if file == "mem-write" {
			file = "mem"
		}
		a = append(a, atVictims(door+"/proc-"+nameOf(f.name), door, "open /proc/PID/"+f.name, control, func(_ *Target, pid int) Outcome {
			fd, err := unix.Open(fmt.Sprintf("/proc/%d/%s", pid, file), f.flag|unix.O_CLOEXEC, 0)
			if err == nil {
				unix.Close(fd)
			}
			return judge("open", err)
		}))
	}
	return a
}

// nameOf makes a path good for an id.
func nameOf(path string) string {
	out := make([]rune, 0, len(path))
	for _, r := range path {
		switch {
		case r == '/':
			if len(out) > 0 && out[len(out)-1] != '-' {
				out = append(out, '-')
			}
		case r == '.' && len(out) == 0:
		default:
			out = append(out, r)
		}
	}
	return string(out)
}

func vm(t *Target, nr uintptr, pid int) Outcome {
	local := t.words(8, uint64(t.bytes(make([]byte, 8))), 8)
	// Address 8 is mapped nowhere: EFAULT comes after the access check.
	remote := t.words(8, 8, 8)
	_, err := t.forked(sys(nr, uintptr(pid), local, 1, remote, 1, 0))
	return reachedOrAbsent("process_vm", err)
}

// reachedOrAbsent is reachedForked for calls that name a process.
func reachedOrAbsent(what string, err error) Outcome {
	if err == unix.ESRCH {
		return judge(what, err)
	}
	return reachedForked(what, err)
}

func scanProc(t *Target) Outcome {
	names, err := readDirNames("/proc")
	if err != nil {
		return judge("read /proc", err)
	}
	seen := 0
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil || pid == 1 || ours(pid) {
			continue
		}
		seen++
		if raw, err := os.ReadFile("/proc/" + n + "/environ"); err == nil && len(raw) > 0 {
			return opened("/proc/%d/environ: %d bytes", pid, len(raw))
		}
	}
	if seen == 0 {
		return absent("no other process is in sight")
	}
	return closed("none of %d processes lets its environment be read", seen)
}
