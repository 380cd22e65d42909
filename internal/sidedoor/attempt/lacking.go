package attempt

import "golang.org/x/sys/unix"

// What a kernel does not have cannot be attacked on it, and an errno alone does not say so: a wall may give the same. Each
// of these asks again, without what is new, and calls an attempt impossible only when that works.

// memfd makes a memfd. Where there is none the outcome says why.
func memfd(flags int) (fd int, failed Outcome) {
	const name, added = "sharness-probe", unix.MFD_EXEC | unix.MFD_NOEXEC_SEAL // Linux 6.3
	fd, err := unix.MemfdCreate(name, flags)
	if err == unix.EINVAL && flags&added != 0 {
		if plain, perr := unix.MemfdCreate(name, flags&^added); perr == nil {
			unix.Close(plain)
			return -1, impossible("this kernel has no such flag, whose memfd_create answers EINVAL with it and makes one without")
		}
	}
	if err != nil {
		return -1, judge("memfd_create", err)
	}
	return fd, Outcome{}
}

// noChmod2 says whether fchmodat2 (Linux 6.6) answers ENOSYS for a harmless mode too, which no wall is against.
func noChmod2(t *Target, path uintptr) bool {
	_, err := t.forked(sys(unix.SYS_FCHMODAT2, atFDCWD, path, 0o600, 0))
	return err == unix.ENOSYS
}

// peerPidfdOf asks a connected socket for its peer (Linux 6.5).
func peerPidfdOf(fd int) (pidfd int, failed Outcome) {
	const soPeerPidfd = 77 // SO_PEERPIDFD
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, soPeerPidfd)
	if err == unix.ENOPROTOOPT {
		if _, cerr := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); cerr == nil {
			return -1, impossible("this kernel has no SO_PEERPIDFD, and answers ENOPROTOOPT where SO_PEERCRED gets an answer")
		}
	}
	if err != nil {
		return -1, judge("SO_PEERPIDFD", err, unix.EINVAL)
	}
	return pidfd, Outcome{}
}

// written judges a file that could not be written into a folder. A file of a file system of message queues is a queue
// and takes no bytes, so that no program can lie there.
func written(dir string, err error) Outcome {
	const mqueue = 0x19800202 // MQUEUE_MAGIC of ipc/mqueue.c
	var st unix.Statfs_t
	if err != nil && unix.Statfs(dir, &st) == nil && st.Type == mqueue {
		if o := judge("write", err); o.Errno == unix.EINVAL {
			return impossible("message queues lie there, which take no bytes")
		}
	}
	return judge("write", err)
}
