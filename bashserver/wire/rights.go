package wire

import (
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// SendRights writes b on c with fds beside its first byte. The descriptors stay open here: the caller closes them.
func SendRights(c *net.UnixConn, b []byte, fds ...int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	n, oobn, err := c.WriteMsgUnix(b, oob, nil)
	if err != nil {
		return fmt.Errorf("sendmsg: %w", err)
	}
	if n != len(b) || oobn != len(oob) {
		return errors.New("sendmsg: short write")
	}
	return nil
}

// RecvRights reads at most len(b) bytes and at most max descriptors, which are close-on-exec and belong to the
// caller. More descriptors than max, cut control data or another kind of control message close all of them and give
// an error that wraps ErrProtocol.
func RecvRights(c *net.UnixConn, b []byte, max int) (n int, fds []int, err error) {
	// CmsgLen, not CmsgSpace: padding would be room for one descriptor more. One is always let in, so that a peer
	// that sends some where none belong is seen and not just cut off.
	oob := make([]byte, unix.CmsgLen(4*(max+1)))
	n, oobn, flags, _, err := c.ReadMsgUnix(b, oob) // sets MSG_CMSG_CLOEXEC
	if errors.Is(err, io.EOF) {                     // net wraps it here, and callers compare
		return 0, nil, io.EOF
	}
	if err != nil {
		return 0, nil, err
	}
	fds, err = parseRights(oob[:oobn])
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = protocolError("control data cut off: too many descriptors")
	}
	if err == nil && len(fds) > max {
		err = protocolError("%d descriptors where %d may come", len(fds), max)
	}
	if err != nil {
		CloseAll(fds)
		return 0, nil, err
	}
	return n, fds, nil
}

// parseRights returns every descriptor in oob, also beside an error, so that the caller can close them.
func parseRights(oob []byte) (fds []int, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, protocolError("control data: %v", err)
	}
	for i := range msgs {
		got, perr := unix.ParseUnixRights(&msgs[i])
		if perr != nil {
			err = protocolError("unexpected control message of type %d", msgs[i].Header.Type)
			continue
		}
		fds = append(fds, got...)
	}
	return fds, err
}

// CloseAll closes descriptors that nobody will use.
func CloseAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
