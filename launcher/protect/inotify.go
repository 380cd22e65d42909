package protect

import (
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// inotify watches directories by descriptor. It sees changes through every mount of a filesystem, so those made in a
// view too.
type inotify struct {
	fd   int
	dirs map[int32]string // watch descriptor to path; the latest path wins when a directory was renamed
}

type change struct {
	dir, name string
	mask      uint32
}

func newInotify() (inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return inotify{}, fmt.Errorf("watcher: inotify_init1: %w", err)
	}
	return inotify{fd, map[int32]string{}}, nil
}

func (n inotify) close() { unix.Close(n.fd) }

// add watches the open directory fd. There is no inotify_add_watchat: /proc/self/fd names the inode that is open.
func (n inotify) add(fd int, dir string) error {
	wd, err := unix.InotifyAddWatch(n.fd, fmt.Sprintf("/proc/self/fd/%d", fd),
		unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_MOVED_FROM|unix.IN_DELETE|unix.IN_ONLYDIR)
	if err != nil {
		return err
	}
	n.dirs[int32(wd)] = dir
	return nil
}

// read returns what is queued. lost: the queue overflowed, so that anything may have happened.
func (n inotify) read() (list []change, lost bool, err error) {
	buf := make([]byte, 64<<10)
	size, err := unix.Read(n.fd, buf)
	if err == unix.EAGAIN || err == unix.EINTR {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("watcher: read inotify: %w", err)
	}
	// struct inotify_event: s32 wd, u32 mask, u32 cookie, u32 len, name padded with NUL (inotify(7)).
	for b := buf[:size]; len(b) >= unix.SizeofInotifyEvent; {
		wd := int32(binary.NativeEndian.Uint32(b))
		mask := binary.NativeEndian.Uint32(b[4:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		if end > len(b) {
			return list, true, nil
		}
		name, _, _ := strings.Cut(string(b[unix.SizeofInotifyEvent:end]), "\x00")
		b = b[end:]
		dir, known := n.dirs[wd]
		switch {
		case mask&unix.IN_Q_OVERFLOW != 0:
			lost = true
		case mask&unix.IN_IGNORED != 0:
			delete(n.dirs, wd)
		case known && name != "":
			list = append(list, change{dir, name, mask})
		}
	}
	return list, lost, nil
}
