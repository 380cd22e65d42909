package protect

import (
	"crypto/rand"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// stampTime is longer than the coarsest clock of a file system that Linux has (two seconds: FAT).
const stampTime = 3 * time.Second

// Begin waits for a moment that divides what lies in the workspace from what comes: nothing that was there has so young a
// ctime, and nothing that comes has an older one. The moment is one of the file system's own clock, which may stand for
// a second (ext4 with inodes of 128 bytes, ext3), or be another machine's (NFS); elsewhere it takes a tick.
func Begin(root int) time.Time {
	fd, remove, err := stampFile(root)
	if err != nil {
		return beginOfSecond()
	}
	defer remove()
	first, err := stamp(fd, 0o600)
	if err != nil {
		return beginOfSecond()
	}
	for mode, end := uint32(0o400), time.Now().Add(stampTime); time.Now().Before(end); mode ^= 0o200 {
		if now, err := stamp(fd, mode); err == nil && now.After(first) {
			return now
		}
		time.Sleep(time.Millisecond)
	}
	return first // the clock stands: what has its stamp may be the session's
}

// stampFile makes a file of no name, or, where there is no such thing, one that remove takes away.
func stampFile(root int) (fd int, remove func(), err error) {
	const flags = unix.O_RDWR | unix.O_CLOEXEC
	if fd, err = unix.Openat(root, ".", flags|unix.O_TMPFILE, 0o600); err == nil {
		return fd, func() { unix.Close(fd) }, nil
	}
	name := ".sharness-clock-" + rand.Text()
	if fd, err = unix.Openat(root, name, flags|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600); err != nil {
		return -1, nil, fmt.Errorf("make %s: %w", name, err)
	}
	return fd, func() {
		_ = unix.Unlinkat(root, name, 0) // an empty file is left where the user's own folder does not let go of it
		unix.Close(fd)
	}, nil
}

// stamp is the ctime of a change of now.
func stamp(fd int, mode uint32) (time.Time, error) {
	if err := unix.Fchmod(fd, mode); err != nil {
		return time.Time{}, fmt.Errorf("fchmod: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return time.Time{}, fmt.Errorf("fstat: %w", err)
	}
	return time.Unix(st.Ctim.Unix()), nil
}

// beginOfSecond is Begin by the host's clock, for a folder in which the user can make nothing: any clock that has whole
// seconds has a new one then, and a file system's stamps are at most a tick behind.
func beginOfSecond() time.Time {
	const tick = 20 * time.Millisecond
	begin := time.Now().Truncate(time.Second).Add(time.Second)
	time.Sleep(time.Until(begin) + tick)
	return begin
}
