package wire

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
)

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
