package attempt

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// sleeper starts a copy of the probe that waits to be killed.
func sleeper() (int, error) {
	return syscall.ForkExec("/proc/self/exe", []string{"sharness-probe", "sleep"}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
}

func reap(pid int) {
	unix.Kill(pid, unix.SIGKILL)
	wait(pid)
}

var nsFlags = []struct {
	name    string
	flag    uintptr
	control Control
}{
	{"user", unix.CLONE_NEWUSER, Varies}, // sysctls and AppArmor of the host decide
	{"mnt", unix.CLONE_NEWNS, Refused},
	{"pid", unix.CLONE_NEWPID, Refused},
	{"net", unix.CLONE_NEWNET, Refused},
	{"ipc", unix.CLONE_NEWIPC, Refused},
	{"uts", unix.CLONE_NEWUTS, Refused},
	{"cgroup", unix.CLONE_NEWCGROUP, Refused},
	{"time", unix.CLONE_NEWTIME, Refused},
	{"user-mnt", unix.CLONE_NEWUSER | unix.CLONE_NEWNS, Varies},
	{"user-net", unix.CLONE_NEWUSER | unix.CLONE_NEWNET, Varies},
	{"user-pid", unix.CLONE_NEWUSER | unix.CLONE_NEWPID, Varies},
}

func namespaces() []Attempt {
	const door = "ns"
	var a []Attempt
	for _, f := range nsFlags {
		a = append(a,
			Attempt{door + "/unshare-" + f.name, door, "unshare a namespace: " + f.name, f.control, func(t *Target) Outcome {
				_, err := t.forked(sys(unix.SYS_UNSHARE, f.flag))
				return judgeForked("unshare", err)
			}})
		if f.flag&unix.CLONE_NEWTIME == 0 { // its bit is part of clone's exit signal
			a = append(a, Attempt{door + "/clone-" + f.name, door, "clone into a namespace: " + f.name, f.control, func(t *Target) Outcome {
				_, err := t.forkedFlags(f.flag, sys(unix.SYS_GETPID))
				return judgeForked("clone", err)
			}})
		}
		a = append(a, Attempt{door + "/clone3-" + f.name, door, "clone3 into a namespace: " + f.name, f.control, func(t *Target) Outcome {
			// struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls. The grandchild
			// goes on as the child does, and ends.
			args := t.words(8, uint64(f.flag), 0, 0, 0, uint64(unix.SIGCHLD), 0, 0, 0)
			_, err := t.forked(sys(unix.SYS_CLONE3, args, 64))
			return judgeForked("clone3", err)
		}})
	}
	for _, k := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"} {
		a = append(a, Attempt{door + "/setns-" + k, door, "setns to a namespace one is in: " + k, Refused, func(t *Target) Outcome {
			fd, err := unix.Open("/proc/self/ns/"+k, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return judge("open", err)
			}
			defer unix.Close(fd)
			_, err = t.forked(sys(unix.SYS_SETNS, uintptr(fd), 0))
			// One's own user namespace is EINVAL to everybody: nothing was joined.
			return judgeForked("setns", err, unix.EINVAL)
		}})
	}
	return append(a,
		Attempt{door + "/user-then-mount", door, "unshare user and mount namespaces, then mount", Varies, func(t *Target) Outcome {
			dir := t.scratchIn(os.TempDir(), "mnt")
			if err := os.Mkdir(dir, 0o700); err != nil {
				return judge("mkdir", err)
			}
			_, err := t.forked(
				sys(unix.SYS_UNSHARE, unix.CLONE_NEWUSER|unix.CLONE_NEWNS),
				sys(unix.SYS_MOUNT, t.str("none"), t.str(dir), t.str("tmpfs"), 0, 0))
			return judgeForked("unshare and mount", err)
		}},
		Attempt{door + "/user-then-remount", door, "unshare user and mount namespaces, then lift noexec from the workspace", Varies, func(t *Target) Outcome {
			_, err := t.forked(
				sys(unix.SYS_UNSHARE, unix.CLONE_NEWUSER|unix.CLONE_NEWNS),
				sys(unix.SYS_MOUNT, 0, t.str(t.Workspace), 0, unix.MS_BIND|unix.MS_REMOUNT, 0))
			return judgeForked("unshare and remount", err, unix.EINVAL)
		}},
		Attempt{door + "/setns-victim", door, "setns through a pidfd of a process outside", Refused, func(t *Target) Outcome {
			if t.victim() == 0 {
				return impossible("no bait")
			}
			_, err := t.forked(sys(unix.SYS_PIDFD_OPEN, uintptr(t.victim()), 0), sys(unix.SYS_SETNS, previous, unix.CLONE_NEWNET))
			return judgeForked("pidfd_open and setns", err)
		}},
	)
}
