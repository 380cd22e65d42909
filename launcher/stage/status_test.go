package stage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// pair is the status socket: ours receives what theirs sends.
func pair(t testing.TB) (ours, theirs int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(fds[0])
		unix.Close(fds[1])
	})
	return fds[0], fds[1]
}

func send(t testing.TB, fd int, data []byte, pass ...int) {
	t.Helper()
	var oob []byte
	if len(pass) > 0 {
		oob = unix.UnixRights(pass...)
	}
	if err := unix.Sendmsg(fd, data, oob, nil, 0); err != nil {
		t.Fatal(err)
	}
}

func head(typ MessageType, a, b uint32) []byte {
	data := binary.LittleEndian.AppendUint32(nil, uint32(typ))
	data = binary.LittleEndian.AppendUint32(data, a)
	return binary.LittleEndian.AppendUint32(data, b)
}

func TestStatusMessagesArriveAsTheyWereSent(t *testing.T) {
	ours, theirs := pair(t)
	for _, m := range []Message{
		{Type: MsgRunning},
		{Type: MsgStopped, A: uint32(unix.SIGTSTP)},
		{Type: MsgExited, A: 1, B: uint32(unix.SIGKILL)},
		{Type: MsgExited, B: 255},
		{Type: MsgError, Text: "mount: attach /usr: permission denied"},
		{Type: MsgExited, A: 1<<32 - 1, B: 1<<32 - 1},
	} {
		if err := Send(theirs, m, -1); err != nil {
			t.Fatal(err)
		}
		got, fd, err := Receive(ours)
		if err != nil || fd != -1 || got != m {
			t.Errorf("sent %+v: want it back without a descriptor, got %+v, %d, %v", m, got, fd, err)
		}
	}
}

func TestStatusTextIsCutWhereTheReceiverStopsReading(t *testing.T) {
	ours, theirs := pair(t)
	if err := Send(theirs, Message{Type: MsgError, Text: strings.Repeat("x", maxText+100)}, -1); err != nil {
		t.Fatal(err)
	}
	if got, _, err := Receive(ours); err != nil || len(got.Text) != maxText {
		t.Errorf("want %d bytes, got %d, %v", maxText, len(got.Text), err)
	}
}

func TestTerminalMessageCarriesItsDescriptor(t *testing.T) {
	ours, theirs := pair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := Send(theirs, Message{Type: MsgTerminal}, int(w.Fd())); err != nil {
		t.Fatal(err)
	}
	w.Close()
	m, fd, err := Receive(ours)
	if err != nil || m.Type != MsgTerminal || fd < 0 {
		t.Fatalf("want MsgTerminal and a descriptor, got %+v, %d, %v", m, fd, err)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("want the descriptor close-on-exec, got flags %d, %v", flags, err)
	}
	unix.Close(fd)
	wantEOF(t, r)
}

// wantEOF: no writing end is left open in this process.
func wantEOF(t *testing.T, r *os.File) {
	t.Helper()
	if n, err := unix.FcntlInt(r.Fd(), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		t.Fatal(n, err)
	}
	if n, err := unix.Read(int(r.Fd()), make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("want EOF: a descriptor was left open; read %d, %v", n, err)
	}
}

func TestReceiveRefusesWhatIsNotOfTheTable(t *testing.T) {
	for name, c := range map[string]struct {
		data []byte
		pass int // descriptors
	}{
		"nothing but a descriptor":     {nil, 1},
		"type zero":                    {head(0, 0, 0), 0},
		"unknown type":                 {head(MsgBegun+1, 0, 0), 0},
		"an order":                     {head(MsgSignal, 9, 0), 0},
		"unknown type with descriptor": {head(77, 0, 0), 1},
		"a byte too few":               {head(MsgRunning, 0, 0)[:messageHead-1], 0},
		"text without error":           {append(head(MsgRunning, 0, 0), "x"...), 0},
		"descriptor with running":      {head(MsgRunning, 0, 0), 1},
		"descriptor with an error":     {append(head(MsgError, 0, 0), "x"...), 1},
		"terminal without descriptor":  {head(MsgTerminal, 0, 0), 0},
		"terminal with two":            {head(MsgTerminal, 0, 0), 2},
		"terminal with more than fit":  {head(MsgTerminal, 0, 0), 16},
		"text longer than the maximum": {append(head(MsgError, 0, 0), bytes.Repeat([]byte("x"), maxText+1)...), 0},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := pair(t)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			var pass []int
			for range c.pass {
				pass = append(pass, int(w.Fd()))
			}
			send(t, theirs, c.data, pass...)
			w.Close()
			if m, fd, err := Receive(ours); err == nil || fd != -1 || m != (Message{}) {
				t.Errorf("want an error and nothing else, got %+v, %d, %v", m, fd, err)
			}
			wantEOF(t, r)
		})
	}
}

func TestReceiveSaysWhenTheOtherSideIsGone(t *testing.T) {
	ours, theirs := pair(t)
	if err := unix.Shutdown(theirs, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Receive(ours); !errors.Is(err, io.EOF) {
		t.Errorf("want io.EOF, got %v", err)
	}
	if _, err := receiveOrder(ours); !errors.Is(err, io.EOF) {
		t.Errorf("order: want io.EOF, got %v", err)
	}
}

// A pid 1 that gives up with an order unread resets the socket. Why it gave up is told all the same.
func TestLastWordsOfOneThatDidNotReadArrive(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := fds[0], fds[1]
	defer unix.Close(ours)
	send(t, ours, head(MsgSignal, 15, 7))
	last := Message{Type: MsgError, Text: "mount: attach /usr: permission denied"}
	err = Send(theirs, last, -1)
	unix.Close(theirs)
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := Receive(ours); err != nil || got != last {
		t.Errorf("want %+v, got %+v, %v", last, got, err)
	}
	if _, _, err := Receive(ours); !errors.Is(err, io.EOF) {
		t.Errorf("want io.EOF after it, got %v", err)
	}
}

func TestOrdersAreReadWholeAndWithoutDescriptors(t *testing.T) {
	ours, theirs := pair(t)
	send(t, theirs, head(MsgSignal, 15, 7))
	if got, err := receiveOrder(ours); err != nil || got != (Message{Type: MsgSignal, A: 15, B: 7}) {
		t.Errorf("want the order back, got %+v, %v", got, err)
	}
	for name, data := range map[string][]byte{
		"short":     head(MsgSignal, 15, 0)[:messageHead-1],
		"long":      append(head(MsgSignal, 15, 0), 0),
		"very long": append(head(MsgSignal, 15, 0), make([]byte, 4096)...),
	} {
		send(t, theirs, data)
		if got, err := receiveOrder(ours); err == nil {
			t.Errorf("%s order: want an error, got %+v", name, got)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	send(t, theirs, head(MsgContinue, 1, 0), int(w.Fd()))
	w.Close()
	if got, err := receiveOrder(ours); err != nil || got.Type != MsgContinue {
		t.Errorf("order with a descriptor: want the order alone, got %+v, %v", got, err)
	}
	wantEOF(t, r) // read(2) drops it
}

// FuzzReceive: whatever arrives, the answer is a message of the table or an error, and no descriptor stays open.
func FuzzReceive(f *testing.F) {
	f.Add([]byte(nil), byte(0))
	f.Add(head(MsgRunning, 0, 0), byte(0))
	f.Add(head(MsgTerminal, 0, 0), byte(1))
	f.Add(head(MsgTerminal, 0, 0), byte(5))
	f.Add(append(head(MsgError, 0, 0), "step: cause"...), byte(0))
	f.Add(append(head(MsgError, 0, 0), "step: cause"...), byte(2))
	f.Add(bytes.Repeat([]byte{0xff}, messageHead+maxText+1), byte(0))
	f.Fuzz(func(t *testing.T, data []byte, descriptors byte) {
		ours, theirs := pair(t)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var pass []int
		for range descriptors % 8 {
			pass = append(pass, int(w.Fd()))
		}
		if len(data) > 1<<16 || len(data) == 0 && len(pass) == 0 {
			return // no datagram that a sender can make
		}
		send(t, theirs, data, pass...)
		w.Close()
		m, fd, err := Receive(ours)
		switch {
		case err != nil && (fd != -1 || m != Message{}):
			t.Errorf("an error beside %+v, descriptor %d: %v", m, fd, err)
		case err == nil && (m.Type == MsgTerminal) != (fd >= 0):
			t.Errorf("message %d with descriptor %d", m.Type, fd)
		case err == nil && m.Type != MsgError && m.Text != "":
			t.Errorf("message %d with text", m.Type)
		case err == nil && !bytes.Equal(data, append(head(m.Type, m.A, m.B), m.Text...)):
			t.Errorf("message %+v was read from %x", m, data)
		}
		if fd >= 0 {
			unix.Close(fd)
		}
		wantEOF(t, r)
	})
}
