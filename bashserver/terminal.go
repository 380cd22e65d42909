package bashserver

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// terminal is the client's own terminal while a command with one of its own runs: raw, so that every key reaches the
// inner terminal, whose line discipline does what the outer one would have.
type terminal struct {
	fd   int
	orig *unix.Termios
}

// makeRaw does what cfmakeraw(3) does. It waits for nothing and drops no type-ahead.
func makeRaw(fd int) (*terminal, error) {
	orig, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("terminal: TCGETS: %w", err)
	}
	raw := *orig
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &raw); err != nil {
		return nil, fmt.Errorf("terminal: TCSETS: %w", err)
	}
	return &terminal{fd, orig}, nil
}

// restore gives the terminal back as it was. Input that nobody read is dropped first: answers that a command provoked
// must not be typed into the user's shell. TCSETSF would do both, but waits for output that may never drain.
func (t *terminal) restore() {
	set := uint(unix.TCSETS)
	if unix.IoctlSetInt(t.fd, unix.TCFLSH, unix.TCIFLUSH) != nil {
		set = unix.TCSETSF // rather wait than let them through
	}
	unix.IoctlSetTermios(t.fd, set, t.orig)
}

// defaultSize is that of a terminal whose client has none, or does not know.
const defaultSize = 24 | 80<<16

// terminalSize is what RecStart says about the client's terminal; 0 when it does not know.
func terminalSize(fd int) uint64 {
	ws, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return uint64(ws.Row) | uint64(ws.Col)<<16
}

// copySize gives the inner terminal the size of the outer one; the kernel tells the command.
func copySize(from int, to *os.File) {
	ws, err := unix.IoctlGetWinsize(from, unix.TIOCGWINSZ)
	if err != nil || ws.Row == 0 && ws.Col == 0 { // unknown: the inner one has defaultSize
		return
	}
	// Not Fd(), which would make the file blocking, and its number may be another's once it is closed.
	if rc, err := to.SyscallConn(); err == nil {
		rc.Control(func(fd uintptr) { unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, ws) })
	}
}
