package stage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// MessageType is the type of a message on the status socket (SOCK_SEQPACKET) between pid 1 and the supervisor.
type MessageType uint32

// Pid 1 to supervisor, then supervisor to pid 1.
const (
	MsgError    MessageType = 1 // Text says which step failed, B the errno where it is not in the text; pid 1 exits
	MsgTerminal MessageType = 2 // carries the pty master as one descriptor
	MsgRunning  MessageType = 3 // the target was executed
	MsgStopped  MessageType = 4 // A: the signal that stopped it
	MsgExited   MessageType = 5 // A: 0 status, 1 signal; B: the value
	MsgLeft     MessageType = 6 // of a sandbox, before MsgExited: others run on in the namespace, and end with it
	MsgReady    MessageType = 7 // of a sandbox: it waits for its order
	MsgMade     MessageType = 8 // of sharness-box: A: the pid of a sandbox, whose pidfd it carries
	MsgBegun    MessageType = 9 // of sharness-box: the sandbox has its order

	MsgDressed  MessageType = 18 // the answer to MsgTerminal: the pty has the modes and the size of the user's
	MsgSignal   MessageType = 16 // A: signal for the target's process group
	MsgContinue MessageType = 17 // A: 1 makes the target's group the foreground group of its terminal first, 0 pid 1's
)

// Message is one datagram. Its head is three little-endian u32; Text follows for MsgError alone.
type Message struct {
	Type MessageType
	A, B uint32
	Text string
}

const (
	messageHead = 12
	maxText     = 2048
)

// Send writes one message, with at most one descriptor.
func Send(fd int, m Message, pass int) error {
	buf := make([]byte, messageHead, messageHead+len(m.Text))
	binary.LittleEndian.PutUint32(buf[0:], uint32(m.Type))
	binary.LittleEndian.PutUint32(buf[4:], m.A)
	binary.LittleEndian.PutUint32(buf[8:], m.B)
	if len(m.Text) > maxText {
		m.Text = m.Text[:maxText]
	}
	buf = append(buf, m.Text...)
	var oob []byte
	if pass >= 0 {
		oob = unix.UnixRights(pass)
	}
	for {
		err := unix.Sendmsg(fd, buf, oob, nil, unix.MSG_NOSIGNAL)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("status: send: %w", err)
		}
		return nil
	}
}

// receiveOrder reads one message of the supervisor. It is read(2), which takes no descriptor and which no filter of a
// domain refuses: pid 1 lives under the same filters as its target.
func receiveOrder(fd int) (Message, error) {
	var buf [messageHead + 1]byte
	for {
		n, err := unix.Read(fd, buf[:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return Message{}, fmt.Errorf("status: receive: %w", err)
		case n == 0:
			return Message{}, io.EOF
		case n != messageHead:
			return Message{}, fmt.Errorf("status: order of %d bytes", n)
		}
		return Message{
			Type: MessageType(binary.LittleEndian.Uint32(buf[0:])),
			A:    binary.LittleEndian.Uint32(buf[4:]),
			B:    binary.LittleEndian.Uint32(buf[8:]),
		}, nil
	}
}

// Receive reads one message of pid 1; the descriptor that came with it, or -1, belongs to the caller. io.EOF says that the
// other side is gone. A message that is not of the table is an error, its descriptors closed.
func Receive(fd int) (Message, int, error) {
	buf := make([]byte, messageHead+maxText)
	oob := make([]byte, unix.CmsgSpace(4*4))
	for {
		n, oobn, flags, _, err := unix.Recvmsg(fd, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNRESET) {
			continue // reset says, once, that it had not read all of ours; what it said last still comes
		}
		if err != nil {
			return Message{}, -1, fmt.Errorf("status: receive: %w", err)
		}
		if n == 0 && oobn == 0 {
			return Message{}, -1, io.EOF
		}
		passed := -1
		var extra []int
		if cms, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil {
			for _, cm := range cms {
				fds, _ := unix.ParseUnixRights(&cm)
				extra = append(extra, fds...)
			}
		}
		m := Message{}
		if n >= messageHead {
			m.Type = MessageType(binary.LittleEndian.Uint32(buf[0:]))
			m.A = binary.LittleEndian.Uint32(buf[4:])
			m.B = binary.LittleEndian.Uint32(buf[8:])
			m.Text = string(buf[messageHead:n])
		}
		ok := n >= messageHead && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) == 0 && m.Type >= MsgError && m.Type <= MsgBegun &&
			(m.Type == MsgError || m.Text == "") && (m.Type == MsgTerminal || m.Type == MsgMade) == (len(extra) == 1) && len(extra) <= 1
		if ok && len(extra) == 1 {
			passed = extra[0]
		}
		if !ok {
			for _, e := range extra {
				unix.Close(e)
			}
			return Message{}, -1, fmt.Errorf("status: message of type %d, %d bytes, %d descriptors is not of the table", m.Type, n, len(extra))
		}
		if m.Type == MsgError && m.B != 0 {
			m.Text += ": " + unix.Errno(m.B).Error()
		}
		return m, passed, nil
	}
}
