package protect

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of what a session can make us keep. Beyond them things are still taken away, but not kept.
const (
	maxKept      = 256
	maxKeptBytes = 64 << 20
	maxTree      = 4096 // entries of one directory that is copied or removed
	maxTreeDepth = 64
	maxTrim      = 1 << 20 // entries that are removed at the end
)

// errNotKept says that something was taken away and its content is gone.
var errNotKept = errors.New("not kept: the quarantine is full, or it could not be read")

// quarantine is a directory of the user outside the workspace. Nobody but us comes there before the session has ended.
type quarantine struct {
	fd      int
	n       int // names used
	bytes   int64
	pending []pendingCopy
}

// pendingCopy is a file that has no name any more and is copied when its writer had the time to write it: the name was
// taken at its creation, and may well have been the user's editor at work.
type pendingCopy struct {
	fd    int
	label string
	since time.Time
}

// copyAfter is long for a writer and short for a person who looks for the file. maxPending bounds descriptors.
const (
	copyAfter  = time.Second
	maxPending = 64
)

func (q *quarantine) delay(fd int, label string) {
	if len(q.pending) == maxPending {
		q.settle(q.pending[0].since)
	}
	q.pending = append(q.pending, pendingCopy{fd, label, time.Now()})
}

// settle copies what was taken until then. A copy that fails leaves what the event says is kept empty or cut.
func (q *quarantine) settle(until time.Time) {
	for len(q.pending) > 0 && !q.pending[0].since.After(until) {
		p := q.pending[0]
		q.pending = q.pending[1:]
		_ = q.copyOpen(p.fd, q.fd, p.label)
	}
}

// resume goes on with the names after those that an earlier watcher of the session used.
func (q *quarantine) resume(dir *os.File) {
	names, _ := dir.Readdirnames(-1) // one that cannot be read keeps nothing more: its names are taken
	for _, name := range names {
		var n int
		if _, err := fmt.Sscanf(name, "%d-", &n); err == nil {
			q.n = max(q.n, n+1)
			budget := maxTree
			size, _ := sizeOf(q.fd, name, maxTreeDepth, &budget)
			q.bytes += size
		}
	}
}

// fit counts what was moved in as label. What does not fit is removed again, as far as a moment allows: the watcher has
// other names to take, and trim comes at the end.
func (q *quarantine) fit(label string) error {
	budget := maxTree
	size, ok := sizeOf(q.fd, label, maxTreeDepth, &budget)
	if ok && q.bytes+size <= maxKeptBytes {
		q.bytes += size
		return nil
	}
	budget = maxTree
	_ = q.drop(label, &budget) // trim tries again, and says so
	return errNotKept
}

func (q *quarantine) drop(label string, budget *int) error {
	err := unix.Unlinkat(q.fd, label, 0)
	if err == unix.EISDIR || err == unix.EPERM {
		err = removeTree(q.fd, label, budget)
	}
	return err
}

// finish measures everything once more, when nothing of the session writes any more to what was moved here, removes what is
// too much, packs what is no file, and makes a file that has a second name one of its own. left is what could not be removed, or packed, and why.
func (q *quarantine) finish() (removed []string, left map[string]error) {
	left = map[string]error{}
	fd, err := openat(q.fd, "", unix.O_RDONLY|unix.O_DIRECTORY, beneath)
	if err != nil {
		return nil, map[string]error{".": err}
	}
	list, more, err := readDir(fd, 4*maxKept)
	unix.Close(fd)
	if more {
		err = errTooMuch
	}
	if err != nil {
		left["."] = err
	}
	slices.SortFunc(list, func(a, b dirent) int { return strings.Compare(a.name, b.name) }) // the first come stay
	q.bytes = 0
	remove := maxTrim
	for _, e := range list {
		budget := maxTree
		size, ok := sizeOf(q.fd, e.name, maxTreeDepth, &budget)
		fits := ok && q.bytes+size <= maxKeptBytes
		if fits {
			if e.typ != unix.DT_REG {
				size, err = q.pack(e.name, maxKeptBytes-q.bytes)
			} else {
				size, err = q.alone(e.name, size, maxKeptBytes-q.bytes)
			}
			if fits = !errors.Is(err, errTooMuch); fits && err != nil {
				left[e.name] = err
			}
		}
		if fits {
			q.bytes += size
			continue
		}
		if err := q.drop(e.name, &remove); err != nil {
			left[e.name] = err
		} else {
			removed = append(removed, e.name)
		}
	}
	return removed, left
}

// alone makes a copy of a file that has a second name, by which it would change under the eyes of who reads it.
func (q *quarantine) alone(label string, size, limit int64) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(q.fd, label, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Nlink < 2 {
		return size, err
	}
	fd, err := openFile(q.fd, label)
	if err != nil {
		return size, fmt.Errorf("open it for a copy: %w", err)
	}
	src := os.NewFile(uintptr(fd), "taken")
	defer src.Close()
	_ = unix.Unlinkat(q.fd, halfPacked, 0) // of a watcher that died
	err = replaceIn(q.fd, label, halfPacked, st.Mode, func(f *os.File) error {
		size, err = copyBounded(f, src, limit)
		if errors.Is(err, errNotKept) {
			err = errTooMuch
		}
		return err
	})
	return size, err
}

// take moves name out of the directory dir; what it is does not matter, and nothing is followed. label says how it is
// called in the quarantine. errNotKept: it is gone, without a copy. unix.ENOENT: somebody was faster.
func (q *quarantine) take(dir int, name, hint string) (label string, err error) {
	label = fmt.Sprintf("%04d-%s", q.n, safeName(hint))
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return "", err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR, unix.S_IFLNK:
		label += Packed
	default: // a FIFO, a socket or a whiteout has no content, and moving one needs more rights than removing it
		if err := unix.Unlinkat(dir, name, 0); err != nil {
			return "", err
		}
		return "", errNotKept
	}
	if q.n < maxKept {
		err = unix.Renameat2(dir, name, q.fd, label, unix.RENAME_NOREPLACE)
		if err == nil {
			q.n++
			if err := q.fit(label); err != nil {
				return "", err
			}
			return label, nil
		}
		// EINVAL: a filesystem without RENAME_NOREPLACE. The copy below needs nothing of the kind.
		if err != unix.EXDEV && err != unix.EINVAL {
			return "", err
		}
	}
	// The kind may change between looking and acting; each attempt acts on what it finds or fails.
	for range 8 {
		err = q.takeCopy(dir, name, label)
		if err != unix.EISDIR && err != unix.ENOTDIR && err != unix.EPERM && err != unix.EINVAL {
			break
		}
	}
	if err == nil || err == errNotKept {
		q.n++
	}
	if err != nil {
		label = ""
	}
	return label, err
}

// takeCopy is take across filesystems. What was a name in the workspace is gone first and copied after, from the
// descriptor: the time that it is there counts, not the copy.
func (q *quarantine) takeCopy(dir int, name, label string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	keep := q.n < maxKept
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		// A name that means nothing to anybody, until the copy is made.
		hidden := ".sharness-taken-" + rand.Text()
		if err := unix.Renameat2(dir, name, dir, hidden, unix.RENAME_NOREPLACE); err != nil {
			return err
		}
		var err error = errNotKept
		budget := maxTree
		if keep {
			err = q.copyTree(dir, hidden, q.fd, label, 0, &budget)
		}
		budget = 4 * maxTree // what hostile hands add meanwhile included
		if e := removeTree(dir, hidden, &budget); e != nil {
			return fmt.Errorf("remove %s: %w", hidden, e)
		}
		return err
	case unix.S_IFREG, unix.S_IFLNK:
		fd := -1
		if keep && st.Mode&unix.S_IFMT == unix.S_IFREG {
			fd, _ = openat(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, beneath)
		} else if keep {
			fd, _ = openat(dir, name, unix.O_PATH, beneath)
		}
		if err := unix.Unlinkat(dir, name, 0); err != nil {
			closeFD(fd)
			return err
		}
		if fd < 0 {
			return errNotKept
		}
		q.delay(fd, label)
		return nil
	}
	return unix.EINVAL // it became something else meanwhile
}

func closeFD(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}

// copyOpen copies an open file or link to label in dst, and closes fd.
func (q *quarantine) copyOpen(fd, dst int, label string) error {
	src := os.NewFile(uintptr(fd), "taken")
	defer src.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return errNotKept
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		buf := make([]byte, 4096)
		n, err := unix.Readlinkat(fd, "", buf)
		if err != nil || unix.Symlinkat(string(buf[:n]), dst, label) != nil {
			return errNotKept
		}
		return nil
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || q.bytes+st.Size > maxKeptBytes {
		return errNotKept
	}
	out, err := unix.Openat(dst, label, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return errNotKept
	}
	f := os.NewFile(uintptr(out), "quarantine")
	defer f.Close()
	n, err := copyBounded(f, src, maxKeptBytes-q.bytes)
	q.bytes += n
	if err != nil {
		return errNotKept
	}
	return nil
}

// safeName makes a path printable and short: it becomes a name in the quarantine, and people will list that.
func safeName(rel string) string {
	s := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		}
		return '_'
	}, rel)
	if len(s) > 100 {
		s = s[len(s)-100:]
	}
	return s
}
