package protect

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Packed ends the name of what is no file: a folder or a link, which becomes an archive at the end. Who reads the
// quarantine with a shell whose prompt asks git, or an editor that obeys a folder, meets nothing there that he can enter.
const Packed = ".tar"

// halfPacked is an archive in the making.
const halfPacked = ".part"

// errTooMuch: an archive writes out what a sparse file does not hold.
var errTooMuch = errors.New("more than the quarantine holds")

// pack puts an archive in the place of a folder or a link. It returns what the archive takes.
func (q *quarantine) pack(label string, limit int64) (int64, error) {
	_ = unix.Unlinkat(q.fd, halfPacked, 0) // of a watcher that died
	fd, err := unix.Openat(q.fd, halfPacked, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return 0, fmt.Errorf("make an archive: %w", err)
	}
	out := &limited{file: os.NewFile(uintptr(fd), halfPacked), left: limit}
	archive := tar.NewWriter(out)
	err = errors.Join(addTo(archive, q.fd, label, strings.TrimSuffix(label, Packed), maxTreeDepth), archive.Close(), out.file.Close())
	if err != nil {
		_ = unix.Unlinkat(q.fd, halfPacked, 0)
		return 0, err
	}
	as, budget := label, 4*maxTree
	dropped := q.drop(label, &budget)
	if dropped != nil {
		as += Packed // the archive is all there is of what was removed
	}
	return limit - out.left, errors.Join(dropped, unix.Renameat2(q.fd, halfPacked, q.fd, as, unix.RENAME_NOREPLACE))
}

type limited struct {
	file *os.File
	left int64
}

func (l *limited) Write(b []byte) (int, error) {
	if l.left -= int64(len(b)); l.left < 0 {
		return 0, errTooMuch
	}
	return l.file.Write(b)
}

// addTo adds name and what lies below it, following nothing. What has no content is left out.
func addTo(archive *tar.Writer, dir int, name, as string, levels int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("%+q: %w", as, err)
	}
	sec, _ := st.Mtim.Unix() // whole, since tar rounds up and then warns of the future
	h := tar.Header{Name: as, Mode: int64(st.Mode & 0o777), Uid: int(st.Uid), Gid: int(st.Gid), ModTime: time.Unix(sec, 0)}
	var err error
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		err = addDir(archive, dir, name, h, levels)
	case unix.S_IFLNK:
		buf, n := make([]byte, unix.PathMax), 0
		if n, err = unix.Readlinkat(dir, name, buf); err == nil {
			h.Typeflag, h.Linkname = tar.TypeSymlink, string(buf[:n])
			err = archive.WriteHeader(&h)
		}
	case unix.S_IFREG:
		err = addFile(archive, dir, name, h)
	}
	if err != nil {
		return fmt.Errorf("%+q: %w", as, err)
	}
	return nil
}

func addDir(archive *tar.Writer, dir int, name string, h tar.Header, levels int) error {
	if levels == 0 {
		return errTooMuch
	}
	fd, err := openDir(dir, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	list, more, err := readDir(fd, maxTree)
	if err != nil {
		return err
	}
	if more {
		return errTooMuch
	}
	above := h.Name
	h.Typeflag, h.Name = tar.TypeDir, above+"/"
	if err := archive.WriteHeader(&h); err != nil {
		return err
	}
	for _, e := range list {
		if err := addTo(archive, fd, e.name, path.Join(above, e.name), levels-1); err != nil {
			return err
		}
	}
	return nil
}

func addFile(archive *tar.Writer, dir int, name string, h tar.Header) error {
	fd, err := openFile(dir, name)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "quarantine")
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, st.Size
	if err := archive.WriteHeader(&h); err != nil {
		return err
	}
	_, err = io.CopyN(archive, f, st.Size)
	return err
}

// openFile opens a file for reading, and gives its owner the right for that if somebody took it away.
func openFile(dir int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY
	fd, err := openat(dir, name, flags, beneath)
	if err != unix.EACCES {
		return fd, err
	}
	p, err := openat(dir, name, unix.O_PATH, beneath)
	if err != nil {
		return -1, err
	}
	defer unix.Close(p)
	if _, err := ownerRights(p, 0o400); err != nil {
		return -1, err
	}
	return openat(dir, name, flags, beneath)
}
