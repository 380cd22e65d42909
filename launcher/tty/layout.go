package tty

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Kind says what a standard stream is, and so what the domain gets in its place.
type Kind int

// The domain gets for each kind:
const (
	Null   Kind = iota // /dev/null of its own view; also for a stream that is closed
	Tty                // its pty
	Copied             // a fresh pipe, copied from or to the user's file or pipe
)

// Layout is what the three standard streams are.
type Layout struct {
	Streams [3]Kind
	// OnDemand leaves the terminal to others until the target reads or sets it. A pipeline is such a case: the pager
	// at its end reads the same terminal.
	OnDemand bool

	terminal int  // the first stream that is a terminal; -1: none
	joined   bool // 1 and 2 are one open file: they share a pipe, which keeps the order of what is written
}

// Pty tells whether the domain needs a pty.
func (l Layout) Pty() bool { return l.terminal >= 0 }

// Plan looks at three descriptors. A directory is an error: what is reached through one has no end.
func Plan(fds [3]int) (Layout, error) {
	l := Layout{terminal: -1}
	var tty uint64 // device of the terminal
	for i, fd := range fds {
		var st unix.Stat_t
		err := unix.Fstat(fd, &st)
		if errors.Is(err, unix.EBADF) {
			continue
		}
		if err != nil {
			return l, fmt.Errorf("stream %d: stat: %w", i, err)
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			return l, fmt.Errorf("stream %d: %w", i, unix.EISDIR)
		case unix.S_IFCHR:
			switch {
			case st.Rdev == unix.Mkdev(1, 3):
				l.Streams[i] = Null
			case IsTerminal(fd) && (l.terminal < 0 || st.Rdev == tty):
				if l.terminal < 0 {
					l.terminal, tty = i, st.Rdev
				}
				l.Streams[i] = Tty
			default: // a second terminal among them: there is one pty
				l.Streams[i] = Copied
			}
		default: // pipes too, with a name or without: through /proc both ends can be had of one, and its flags are everybody's
			l.Streams[i] = Copied
		}
		if i == 1 && (st.Mode&unix.S_IFMT == unix.S_IFIFO || st.Mode&unix.S_IFMT == unix.S_IFSOCK) {
			l.OnDemand = true
		}
	}
	if l.Streams[0] != Tty {
		l.OnDemand = true
	}
	l.joined = l.Streams[1] == Copied && l.Streams[2] == Copied && sameFile(fds[1], fds[2])
	return l, nil
}

// sameFile tells whether two descriptors are one open file description (kcmp(2)). A kernel without kcmp leaves the
// question open; then the inode decides.
func sameFile(a, b int) bool {
	const kcmpFile = 0
	pid := uintptr(unix.Getpid())
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, pid, pid, kcmpFile, uintptr(a), uintptr(b), 0)
	if errno == 0 {
		return r == 0
	}
	var sa, sb unix.Stat_t
	return unix.Fstat(a, &sa) == nil && unix.Fstat(b, &sb) == nil && sa.Dev == sb.Dev && sa.Ino == sb.Ino
}
