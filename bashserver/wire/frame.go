package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrProtocol is wrapped by every error that means the other side broke the protocol; the connection must be closed.
var ErrProtocol = errors.New("protocol error")

func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// Frame is one message of the stream between client and server.
type Frame struct {
	Type    FrameType
	Payload []byte
}

// bounds gives the smallest and largest payload of a type; ok is false for a type that is not in the table.
func bounds(t FrameType) (low, high int, ok bool) {
	switch t {
	case Hello:
		return 2, 2, true
	case Execfn, Exe, Cwd:
		return 1, MaxPath, true
	case Arg:
		return 0, MaxPayload, true
	case EnvVar:
		return 1, MaxPayload, true
	case Start:
		return 0, 0, true
	case Signal:
		return 4, 4, true
	case Exit:
		return 8, 8, true
	case Error:
		return 4, 4 + MaxError, true
	}
	return 0, 0, false
}

// AppendFrame appends the encoding of f to b. It panics when f is not in the table: only our own code makes frames.
func AppendFrame(b []byte, f Frame) []byte {
	low, high, ok := bounds(f.Type)
	if n := len(f.Payload); !ok || n < low || n > high {
		panic(fmt.Sprintf("wire: frame %d with %d bytes made by ourselves", f.Type, n))
	}
	b = append(b, byte(f.Type), 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f.Payload)))
	return append(b, f.Payload...)
}

// DecodeHeader checks a frame header and returns the type and the length of the payload that follows.
func DecodeHeader(h []byte) (FrameType, int, error) {
	if len(h) != HeaderBytes {
		return 0, 0, protocolError("frame header of %d bytes", len(h))
	}
	if h[1]|h[2]|h[3] != 0 {
		return 0, 0, protocolError("reserved bytes of a frame header are not zero")
	}
	t, n := FrameType(h[0]), binary.LittleEndian.Uint32(h[4:])
	low, high, ok := bounds(t)
	if !ok {
		return 0, 0, protocolError("unknown frame type %d", h[0])
	}
	if uint64(n) < uint64(low) || uint64(n) > uint64(high) {
		return 0, 0, protocolError("frame type %d with %d bytes", h[0], n)
	}
	return t, int(n), nil
}

// chunk is how much of a payload is allocated before it has arrived: memory follows what was sent, not what was
// announced.
const chunk = 4096

// ReadFrame reads one frame. io.EOF means the stream ended between frames, io.ErrUnexpectedEOF inside one; an error
// that wraps ErrProtocol means that the stream is not ours.
func ReadFrame(r io.Reader) (Frame, error) {
	var h [HeaderBytes]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return Frame{}, err
	}
	t, n, err := DecodeHeader(h[:])
	if err != nil {
		return Frame{}, err
	}
	var p []byte
	for len(p) < n {
		step := min(n-len(p), max(chunk, len(p)))
		have := len(p)
		p = append(p, make([]byte, step)...)
		if _, err := io.ReadFull(r, p[have:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return Frame{}, err
		}
	}
	return Frame{t, p}, nil
}

// Kind says how a command ended.
type Kind uint32

// The two ways to end.
const (
	KindStatus Kind = 0
	KindSignal Kind = 1
)

// ExitFrame says that the command ended with a status or by a signal.
func ExitFrame(k Kind, value uint32) Frame {
	p := binary.LittleEndian.AppendUint32(nil, uint32(k))
	return Frame{Exit, binary.LittleEndian.AppendUint32(p, value)}
}

// ErrorFrame says that the command did not run. Text longer than MaxError is cut.
func ErrorFrame(status uint32, text string) Frame {
	p := binary.LittleEndian.AppendUint32(nil, status)
	return Frame{Error, append(p, text[:min(len(text), MaxError)]...)}
}

// DecodeExit reads the payload of an Exit frame.
func DecodeExit(f Frame) (Kind, uint32, error) {
	if f.Type != Exit || len(f.Payload) != 8 {
		return 0, 0, protocolError("frame %d of %d bytes is no exit", f.Type, len(f.Payload))
	}
	k, v := binary.LittleEndian.Uint32(f.Payload), binary.LittleEndian.Uint32(f.Payload[4:])
	if k > uint32(KindSignal) {
		return 0, 0, protocolError("exit of kind %d", k)
	}
	return Kind(k), v, nil
}

// DecodeSignal reads the payload of a Signal frame. Only signals that the client forwards are let through: a command
// must not be stopped, killed or traced by a number that nobody can send it by hand.
func DecodeSignal(f Frame) (int, error) {
	if f.Type != Signal || len(f.Payload) != 4 {
		return 0, protocolError("frame %d of %d bytes is no signal", f.Type, len(f.Payload))
	}
	n := binary.LittleEndian.Uint32(f.Payload)
	if !Forwarded(uint64(n)) {
		return 0, protocolError("signal %d is not forwarded", n)
	}
	return int(n), nil
}

// Forwarded says whether a signal is one that a client may send to its command.
func Forwarded(n uint64) bool {
	switch n {
	case 1, 2, 3, 10, 12, 15, 18, 20, 28: // HUP INT QUIT USR1 USR2 TERM CONT TSTP WINCH
		return true
	}
	return false
}
