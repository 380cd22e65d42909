package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// RecordConn is one end of the seqpacket socket between bashd and supervisor. Send may be called by many at once,
// Recv by one.
type RecordConn struct {
	c        *net.UnixConn
	mu       sync.Mutex
	patience time.Duration
}

// patience is how long Send waits for a peer that does not read. Neither side may hold up the other for good: the
// supervisor sends while it holds what its other duties need.
const patience = 5 * time.Second

// NewRecordConn takes the socket over; f is closed.
func NewRecordConn(f *os.File) (*RecordConn, error) {
	c, err := unixConn(f)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return &RecordConn{c: c, patience: patience}, nil
}

func unixConn(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("%s is no unix socket", f.Name())
	}
	return u, nil
}

// Send writes one record with its descriptors, which stay open here. When the peer does not read, the connection is
// closed, and Recv fails.
func (r *RecordConn) Send(rec Record, fds ...int) error {
	low, high, ok := recordFDs(rec.Type)
	if !ok || len(fds) < low || len(fds) > high {
		panic(fmt.Sprintf("wire: record %d with %d descriptors made by ourselves", rec.Type, len(fds)))
	}
	b := rec.Encode()
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.c.SetWriteDeadline(time.Now().Add(r.patience))
	if err == nil {
		err = SendRights(r.c, b[:], fds...)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		r.c.Close()
	}
	return err
}

// Recv reads one record. The descriptors are close-on-exec and belong to the caller. io.EOF means that the other side
// is gone; an error that wraps ErrProtocol that it must be dropped.
func (r *RecordConn) Recv() (Record, []int, error) {
	var b [RecordBytes + 1]byte // one more: a longer packet shows as a wrong size instead of being cut
	n, fds, err := RecvRights(r.c, b[:], MaxRecordFDs)
	if err != nil {
		return Record{}, nil, err
	}
	rec, err := DecodeRecord(b[:n])
	if err == nil {
		if low, high, _ := recordFDs(rec.Type); len(fds) < low || len(fds) > high {
			err = protocolError("record %d with %d descriptors", rec.Type, len(fds))
		}
	}
	if err != nil {
		CloseAll(fds)
		return Record{}, nil, err
	}
	return rec, fds, nil
}

// Close closes the socket.
func (r *RecordConn) Close() error { return r.c.Close() }

// HelloFDs is how many descriptors come with Hello: 0, 1 and 2 of the client.
const HelloFDs = 3

// FrameConn is the server's end of a client's connection.
type FrameConn struct {
	Conn *net.UnixConn
	r    *bufio.Reader
	fds  []int // what came with the first byte
	read bool
}

// NewFrameConn takes an accepted socket over; f is closed.
func NewFrameConn(f *os.File) (*FrameConn, error) {
	c, err := unixConn(f)
	if err != nil {
		return nil, fmt.Errorf("client socket: %w", err)
	}
	fc := &FrameConn{Conn: c}
	fc.r = bufio.NewReaderSize((*rightsReader)(fc), 16<<10)
	return fc, nil
}

// rightsReader reads the stream and takes the three descriptors off its first byte; any other number there, and any
// at all later, is an error. The kernel never merges bytes that carry descriptors with bytes that carry none before them.
type rightsReader FrameConn

func (r *rightsReader) Read(b []byte) (int, error) {
	want := 0
	if !r.read {
		want = HelloFDs
	}
	n, fds, err := RecvRights(r.Conn, b, want)
	if err != nil {
		return 0, err
	}
	if len(fds) != want && n > 0 {
		CloseAll(fds)
		return 0, protocolError("%d descriptors with the first byte, not %d", len(fds), want)
	}
	r.read = true
	r.fds = append(r.fds, fds...)
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// ReadFrame reads the next frame; its errors are those of the function ReadFrame.
func (f *FrameConn) ReadFrame() (Frame, error) { return ReadFrame(f.r) }

// TakeFDs hands the client's three descriptors to the caller, who closes them; nil when Hello has not arrived.
func (f *FrameConn) TakeFDs() []int {
	fds := f.fds
	f.fds = nil
	return fds
}

// WriteFrame sends one frame.
func (f *FrameConn) WriteFrame(fr Frame) error {
	_, err := f.Conn.Write(AppendFrame(nil, fr))
	return err
}

// Close closes the connection and the descriptors nobody took.
func (f *FrameConn) Close() error {
	CloseAll(f.TakeFDs())
	return f.Conn.Close()
}
