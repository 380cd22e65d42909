package report

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Kind says what a frame holds. Those in JSON were written by the privileged side; the others are bytes of a domain, which
// it copied and did not read.
type Kind byte

// The kinds of frames.
const (
	KindHeader  Kind = 'h' // Header
	KindBegin   Kind = 'b' // Run
	KindEnd     Kind = 'e' // End
	KindLeft    Kind = 'l' // []string: what was left behind
	KindResults Kind = 'r' // bytes of the probe's standard output
	KindWords   Kind = 'w' // bytes of standard error
	KindEvents  Kind = 'v' // bytes of the session's log
)

const maxFrame = 1 << 20

// Frames is the privileged side's end of the stream.
type Frames struct {
	mu sync.Mutex
	w  io.Writer
}

// NewFrames writes to w.
func NewFrames(w io.Writer) *Frames { return &Frames{w: w} }

// Send writes one frame of our own.
func (f *Frames) Send(k Kind, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	return f.write(k, data)
}

// Copy returns a writer whose bytes become frames of this kind.
func (f *Frames) Copy(k Kind) io.Writer { return copier{f, k} }

type copier struct {
	f *Frames
	k Kind
}

func (c copier) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), maxFrame)
		if err := c.f.write(c.k, rest[:n]); err != nil {
			return len(p) - len(rest), err
		}
		rest = rest[n:]
	}
	return len(p), nil
}

func (f *Frames) write(k Kind, data []byte) error {
	head := make([]byte, 5, 5+len(data))
	head[0] = byte(k)
	binary.LittleEndian.PutUint32(head[1:], uint32(len(data)))
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.w.Write(append(head, data...)); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// readFrame returns io.EOF at the end of the stream.
func readFrame(r io.Reader) (Kind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, errors.New("report: frame is too long")
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return 0, nil, fmt.Errorf("report: %w", errors.Join(io.ErrUnexpectedEOF, err))
	}
	return Kind(head[0]), data, nil
}
