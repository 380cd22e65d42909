package protect

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

func copyBounded(dst, src *os.File, limit int64) (int64, error) {
	n, err := io.Copy(dst, io.LimitReader(src, limit+1))
	if err == nil && n > limit {
		err = errNotKept
	}
	return n, err
}

// copyTree copies the directory name of src into dst as label. Files that cannot be read, and whatever is neither file,
// link nor directory, are left out and make the result errNotKept.
func (q *quarantine) copyTree(src int, name string, dst int, label string, depth int, budget *int) error {
	if depth > maxTreeDepth {
		return errNotKept
	}
	from, err := openDir(src, name)
	if err != nil {
		return errNotKept
	}
	defer unix.Close(from)
	if err := unix.Mkdirat(dst, label, 0o700); err != nil {
		return errNotKept
	}
	to, err := openDir(dst, label)
	if err != nil {
		return errNotKept
	}
	defer unix.Close(to)
	list, more, err := readDir(from, maxTree)
	whole := err == nil && !more
	for _, e := range list {
		if *budget--; *budget < 0 {
			return errNotKept
		}
		var err error
		switch e.typ {
		case unix.DT_DIR:
			err = q.copyTree(from, e.name, to, e.name, depth+1, budget)
		case unix.DT_LNK, unix.DT_REG:
			flags := unix.O_PATH
			if e.typ == unix.DT_REG {
				flags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY
			}
			var fd int
			if fd, err = openat(from, e.name, flags, beneath); err == nil {
				err = q.copyOpen(fd, to, e.name)
			}
		default:
			err = errNotKept
		}
		whole = whole && err == nil
	}
	if !whole {
		return errNotKept
	}
	return nil
}

// removeTree removes the directory name of dir and what it holds, following nothing. What is deeper than our descriptors
// reach is moved up and removed after.
func removeTree(dir int, name string, budget *int) error {
	rest := []string{name}
	up := func(from int, name string) error {
		hidden := ".sharness-taken-" + rand.Text()
		rest = append(rest, hidden)
		return unix.Renameat2(from, name, dir, hidden, unix.RENAME_NOREPLACE)
	}
	for ; len(rest) > 0; rest = rest[1:] {
		if err := removeLevels(dir, rest[0], maxTreeDepth, budget, up); err != nil {
			return err
		}
	}
	return nil
}

func removeLevels(dir int, name string, levels int, budget *int, up func(from int, name string) error) error {
	if levels == 0 {
		return up(dir, name)
	}
	fd, err := openDir(dir, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for { // until the budget ends: a list is one part of many names, and hostile hands may add some
		// Removing while listing confuses some filesystems, so each pass lists first, from the start.
		if _, err := unix.Seek(fd, 0, io.SeekStart); err != nil {
			return err
		}
		list, _, err := readDir(fd, maxTree)
		if err != nil {
			return err
		}
		for _, e := range list {
			if *budget--; *budget < 0 {
				return fmt.Errorf("more than its bound of entries")
			}
			if e.typ == unix.DT_DIR {
				err = removeLevels(fd, e.name, levels-1, budget, up)
			} else {
				err = unix.Unlinkat(fd, e.name, 0)
			}
			if err != nil && err != unix.ENOENT {
				return err
			}
		}
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		if err != unix.ENOTEMPTY {
			return err
		}
		if *budget--; *budget < 0 {
			return err
		}
	}
}

// sizeOf is what name and all below it take on the disk. ok: the whole of it was seen.
func sizeOf(dir int, name string, levels int, budget *int) (bytes int64, ok bool) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, err == unix.ENOENT
	}
	bytes = st.Blocks * 512
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return bytes, true
	}
	if levels == 0 {
		return bytes, false
	}
	fd, err := openDir(dir, name)
	if err != nil {
		return bytes, false
	}
	defer unix.Close(fd)
	list, more, err := readDir(fd, maxTree)
	if err != nil || more {
		return bytes, false
	}
	for _, e := range list {
		if *budget--; *budget < 0 {
			return bytes, false
		}
		n, ok := sizeOf(fd, e.name, levels-1, budget)
		if bytes += n; !ok {
			return bytes, false
		}
	}
	return bytes, true
}

// openDir opens a directory for listing and change, and gives its owner the rights for that if somebody took them away.
func openDir(dir int, name string) (int, error) {
	p, err := openat(dir, name, unix.O_PATH|unix.O_DIRECTORY, beneath)
	if err != nil {
		return -1, err
	}
	defer unix.Close(p)
	if _, err := ownerRights(p, 0o700); err != nil {
		return -1, err
	}
	return openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, beneath)
}

// ownerRights adds bits to the mode of an open (O_PATH) directory that lacks one of them.
func ownerRights(fd int, bits uint32) (changed bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	if st.Mode&bits == bits {
		return false, nil
	}
	return true, chmod(fd, st.Mode|bits)
}

// chmod by /proc/self/fd acts on the inode that is open, whatever its name now is; fchmodat2 with AT_EMPTY_PATH would do,
// from Linux 6.6. Landlock does not restrict it.
func chmod(fd int, mode uint32) error {
	return unix.Fchmodat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), mode&0o7777, 0)
}
