package host

import (
	"runtime"

	"golang.org/x/sys/unix"
)

var namespaceFlags = map[string]uintptr{
	"cgroup": unix.CLONE_NEWCGROUP,
	"ipc":    unix.CLONE_NEWIPC,
	"mnt":    unix.CLONE_NEWNS,
	"net":    unix.CLONE_NEWNET,
	"pid":    unix.CLONE_NEWPID,
	"user":   unix.CLONE_NEWUSER,
	"uts":    unix.CLONE_NEWUTS,
}

// probeNamespaces clones a child into all types but user at once, as a session does; when that fails, one child into each
// tells which it was. Every child is a copy of this process, and that is most of what a probe costs at a start.
func probeNamespaces() map[string]Trial {
	out := make(map[string]Trial, len(namespaceFlags))
	var all uintptr
	for _, flag := range namespaceFlags {
		all |= flag
	}
	together := run(&job{flags: all &^ unix.CLONE_NEWUSER})
	for name, flag := range namespaceFlags {
		err := together
		if err != nil || flag == unix.CLONE_NEWUSER {
			err = tryNamespace(flag)
		}
		out[name] = outcome(err, unix.Geteuid() == 0)
	}
	return out
}

// tryNamespace clones one child into one type. Without privilege the others are tried below a user namespace, which
// proves that the kernel has them.
func tryNamespace(flag uintptr) error {
	err := run(&job{flags: flag})
	if err == unix.EPERM && run(&job{flags: flag | unix.CLONE_NEWUSER}) == nil {
		return nil
	}
	return err
}

const memfdNoexecPath = "/proc/sys/vm/memfd_noexec"

// probeMemfdNoexec writes 2 inside a new pid namespace and reads it back there. The sysctl acts on the pid namespace
// of the process that writes it (pid_sysctl.h: task_active_pid_ns(current)), so the host's own value stays; that the
// child is pid 1 is checked before it writes.
func probeMemfdNoexec(privileged bool) Trial {
	if err := unix.Access(memfdNoexecPath, unix.F_OK); err != nil {
		return outcome(err, privileged)
	}
	path, err := unix.BytePtrFromString(memfdNoexecPath)
	if err != nil {
		return outcome(err, privileged)
	}
	two := [2]byte{'2', '\n'}
	var pin runtime.Pinner // the child reads these by address after the compiler has lost sight of them
	defer pin.Unpin()
	pin.Pin(path)
	pin.Pin(&two)
	j := &job{flags: unix.CLONE_NEWPID, steps: 3}
	at := unix.AT_FDCWD
	j.step[0] = call{nr: unix.SYS_GETPID, want: 1, check: true}
	j.step[1] = call{nr: unix.SYS_OPENAT, a: [6]uintptr{uintptr(at), pointer(path), unix.O_RDWR | unix.O_CLOEXEC}}
	j.step[2] = call{nr: unix.SYS_PWRITE64, a: [6]uintptr{0, pointer(&two), 2, 0}, first: true, want: 2, check: true}
	return outcome(run(j), privileged)
}
