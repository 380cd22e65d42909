package pin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Open opens a pinned file for reading. No component of path may be a symlink: a pinned path is a resolved one, and a
// link that appeared since then is a swap. The file must be a regular one; O_NONBLOCK keeps a FIFO in its place from
// hanging us (file-fifo). The caller closes it.
func Open(path string) (*os.File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOCTTY,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	if err := regular(fd); err != nil {
		f.Close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return f, nil
}

var errNotRegular = errors.New("not a regular file")

func regular(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("fstat: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errNotRegular
	}
	return nil
}

// Hash is the SHA-256 of the file at a resolved path, in hexadecimal.
func Hash(path string) (string, error) {
	f, err := Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum, err := HashFD(int(f.Fd()))
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return sum, nil
}

// MaxIntegrity is the size of the largest file that integrity may name: it is read while somebody waits, at the start and
// at the end, and what a session may write it may make sparse and as large as a file can be.
const MaxIntegrity = 64 << 20

// HashIntegrity is Hash for a file under integrity: of at most MaxIntegrity bytes, and with one name unless it is root's.
func HashIntegrity(path string) (string, error) {
	f, err := Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return HashIntegrityFD(int(f.Fd()))
}

// HashIntegrityFD is HashIntegrity for a descriptor, which stays the caller's.
func HashIntegrityFD(fd int) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", fmt.Errorf("hash: fstat: %w", err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size > MaxIntegrity {
		return "", fmt.Errorf("has %d bytes; integrity is for files of at most %d", st.Size, int64(MaxIntegrity))
	}
	if st.Mode&unix.S_IFMT == unix.S_IFREG && st.Uid != 0 && st.Nlink > 1 {
		return "", fmt.Errorf("has %d names (hard links), and a session may be able to write it by another one; copy it, so that it has one", st.Nlink)
	}
	return HashFD(fd)
}

// HashFD is the SHA-256 of a regular file, in hexadecimal. It reads by position, so the descriptor's offset neither
// matters nor moves, and it reads no more than the size the file has at the start: a file that grows or shrinks
// meanwhile is an error. The descriptor stays the caller's.
func HashFD(fd int) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", fmt.Errorf("hash: fstat: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", fmt.Errorf("hash: %w", errNotRegular)
	}
	h := sha256.New()
	n, err := io.CopyBuffer(h, io.LimitReader(&atFD{fd: fd}, st.Size+1), make([]byte, 1<<20))
	if err != nil {
		return "", fmt.Errorf("hash: %w", err)
	}
	if n != st.Size {
		return "", fmt.Errorf("hash: %d bytes where there were %d: the file changed while it was read", n, st.Size)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// atFD reads a descriptor by position without owning it, which os.File would.
type atFD struct {
	fd  int
	off int64
}

func (r *atFD) Read(p []byte) (int, error) {
	for {
		n, err := unix.Pread(r.fd, p, r.off)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, fmt.Errorf("pread: %w", err)
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		}
		r.off += int64(n)
		return n, nil
	}
}
