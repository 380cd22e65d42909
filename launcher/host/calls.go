package host

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// probeCalls tries the system calls that the launcher and the stage lean on.
func (f *Features) probeCalls() {
	f.Openat2 = tryOpenat2()
	f.CloseRange = outcome(unix.CloseRange(1<<30, 1<<30, 0), true)
	f.Pidfd = tryFD(unix.PidfdOpen(unix.Getpid(), 0))
	f.PeerPidfd = tryPeerPidfd()
	f.ExecveCheck = tryExecveCheck()
	f.MemfdCreate = tryFD(unix.MemfdCreate("sharness-probe", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))
}

func tryFD(fd int, err error) Trial {
	if err == nil {
		_ = unix.Close(fd)
	}
	return outcome(err, true)
}

func tryOpenat2() Trial {
	return tryFD(unix.Openat2(unix.AT_FDCWD, ".", &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}))
}

func tryPeerPidfd() Trial {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return outcome(err, true)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	return tryFD(unix.GetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PEERPIDFD))
}

const atExecveCheck = 0x10000 // AT_EXECVE_CHECK, Linux 6.14

// tryExecveCheck asks in a child, because a kernel (or a gVisor) that ignored the flag would replace the caller.
func tryExecveCheck() Trial {
	path, err := unix.BytePtrFromString("/proc/self/exe")
	if err != nil {
		return outcome(err, true)
	}
	argv := [2]*byte{path, nil}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(path)
	pin.Pin(&argv)
	at := unix.AT_FDCWD
	j := &job{steps: 1}
	j.step[0] = call{
		nr: unix.SYS_EXECVEAT, want: 0, check: true,
		a: [6]uintptr{uintptr(at), pointer(path), pointer(&argv), pointer(&argv[1]), atExecveCheck},
	}
	return outcome(run(j), true)
}
