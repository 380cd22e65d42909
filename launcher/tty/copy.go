package tty

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// steady waits where its file answers EAGAIN. The flags belong to all who hold the same pipe or socket: any of them may
// set O_NONBLOCK while we copy, as node does.
type steady struct{ file *os.File }

func (p steady) Read(b []byte) (int, error) {
	for {
		n, err := p.file.Read(b)
		if !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
		if err := p.wait(unix.POLLIN); err != nil {
			return n, err
		}
	}
}

func (p steady) Write(b []byte) (int, error) {
	done := 0
	for {
		n, err := p.file.Write(b[done:])
		done += n
		if !errors.Is(err, unix.EAGAIN) {
			return done, err
		}
		if err := p.wait(unix.POLLOUT); err != nil {
			return done, err
		}
	}
}

func (p steady) wait(events int16) error {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	cerr := conn.Control(func(fd uintptr) {
		for {
			if _, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, -1); err != unix.EINTR {
				break
			}
		}
	})
	if err != nil {
		return fmt.Errorf("poll: %w", err)
	}
	return cerr
}

// copyOut copies until the pipe ends or its deadline passes, and then what lies in it: a reader who took his time must not
// lose what the target had written. What is added meanwhile by whoever holds the pipe open is not waited for.
func copyOut(to io.Writer, from *os.File) error {
	_, err := io.Copy(to, from)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	conn, err := from.SyscallConn()
	if err != nil {
		return err
	}
	var rest []byte
	// Control asks for no deadline. The descriptor is the runtime's and does not block.
	cerr := conn.Control(func(fd uintptr) {
		var waiting int
		if waiting, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ); err != nil || waiting == 0 {
			return
		}
		rest = make([]byte, waiting)
		var n int
		n, err = unix.Read(int(fd), rest)
		rest = rest[:max(n, 0)]
	})
	if err := errors.Join(err, cerr); err != nil {
		return fmt.Errorf("read what is left: %w", err)
	}
	_, err = to.Write(rest)
	return err
}
