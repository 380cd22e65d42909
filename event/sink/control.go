package sink

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Replace sends the collecting process a new file or connection for the sink of that number, after log rotation or when a
// log daemon was started again. Spec and ids are those the sink was opened with.
func Replace(control *os.File, number int, file *os.File) error {
	if number < 0 || number > 255 {
		return fmt.Errorf("events: replace sink %d: no such sink", number)
	}
	err := unix.Sendmsg(int(control.Fd()), []byte{byte(number)}, unix.UnixRights(int(file.Fd())), nil, unix.MSG_NOSIGNAL)
	if err != nil {
		return fmt.Errorf("events: replace sink %d: %w", number, err)
	}
	return nil
}

// What the collecting process sends the supervisor: one byte.
const (
	wantsFiles     = iota // new files and connections
	sawRefusedExec        // the first exec.denied of the session
)

// Reopen asks the supervisor for new files and connections. Without a control socket, or when many requests wait
// already, nothing happens.
func (c *Collector) Reopen() { c.tell(wantsFiles) }

func (c *Collector) tell(what byte) {
	if c.control == nil {
		return
	}
	raw, err := c.control.SyscallConn()
	if err != nil {
		return // closed
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.Sendto(int(fd), []byte{what}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil) })
}

// Requests calls reopen each time the collecting process asks for new files, and refused when it says that an exec was refused,
// until its end of the socket is closed.
func Requests(control *os.File, reopen, refused func()) {
	for buf := make([]byte, 1); ; {
		n, err := unix.Read(int(control.Fd()), buf)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil || n == 0:
			return
		}
		if buf[0] == sawRefusedExec {
			refused()
			continue
		}
		reopen()
	}
}

// control receives new files until the supervisor's end is closed. A message that is not one byte and one descriptor
// ends it: there is only one who may write here.
func control(file *os.File, replace func(number, fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	buf, oob := make([]byte, 2), make([]byte, unix.CmsgSpace(4))
	for {
		var n, oobn, flags int
		var rerr error
		err := raw.Read(func(fd uintptr) bool {
			n, oobn, flags, _, rerr = unix.Recvmsg(int(fd), buf, oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
			return rerr != unix.EAGAIN && rerr != unix.EINTR
		})
		if errors.Is(err, os.ErrClosed) || err == nil && rerr == nil && n == 0 {
			return nil
		}
		if err := errors.Join(err, rerr); err != nil {
			return fmt.Errorf("events: control: %w", err)
		}
		fd, err := oneFD(oob[:oobn])
		if err != nil || n != 1 || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
			return fmt.Errorf("events: control: malformed message: %w", errors.Join(err, io.ErrUnexpectedEOF))
		}
		if err := replace(int(buf[0]), fd); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
	}
}

func oneFD(oob []byte) (int, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return -1, errors.Join(err, io.ErrUnexpectedEOF)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, errors.Join(err, io.ErrUnexpectedEOF)
	}
	return fds[0], nil
}
