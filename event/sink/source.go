package sink

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
)

// source is the receiving end of one producer.
type source struct {
	file    *os.File
	name    string
	trusted bool
	gathers bool
	bad     atomic.Uint64 // datagrams that were no event, or none this producer may send
}

// newSource takes over fd. It is made non-blocking so that a deadline can end the wait.
func newSource(s Source) (*source, error) {
	if err := unix.SetNonblock(s.FD, true); err != nil {
		return nil, fmt.Errorf("events of %s: descriptor %d: %w", s.Name, s.FD, err)
	}
	return &source{file: os.NewFile(uintptr(s.FD), "events of "+s.Name), name: s.Name, trusted: s.Trusted, gathers: s.Gather}, nil
}

// read hands every event to out until the last sender is gone, the file is closed or its deadline passes. When out is
// full it waits, and the producer's losses begin: they are counted there.
func (s *source) read(out chan<- *event.Event) error {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	buf := make([]byte, event.MaxBytes+1) // one more, to tell a datagram that is too long
	busy := false                         // of a source that gathers: events came, and may go on to
	for {
		n, err := receive(raw, buf, busy)
		if errors.Is(err, unix.EAGAIN) {
			time.Sleep(gather)
			busy = false
			continue
		}
		if errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive events of %s: %w", s.name, err)
		}
		busy = s.gathers
		e, err := event.Decode(buf[:n])
		if err != nil || e.Type.Reserved() && !s.trusted {
			s.bad.Add(1)
			continue
		}
		out <- e
	}
}

// gather is how long the reader of a source that gathers, when it has read all there is, lets more come before it waits for it.
// The first event after a pause is taken at once; of the two that each command of a busy session makes each would wake this
// process, which costs more than to write it.
const gather = 20 * time.Millisecond

// receive reads one datagram. Descriptors sent along are refused by giving them no room: the kernel drops them.
// With busy it does not wait: when there is none it returns EAGAIN.
func receive(raw interface {
	Read(func(uintptr) bool) error
}, buf []byte, busy bool) (int, error) {
	var n int
	var rerr error
	err := raw.Read(func(fd uintptr) bool {
		n, _, rerr = unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT)
		if rerr == nil && n == 0 && !hungUp(int(fd)) {
			return true // an empty datagram, which decodes to nothing
		}
		if rerr == nil && n == 0 {
			rerr = io.EOF
		}
		return (busy || rerr != unix.EAGAIN) && rerr != unix.EINTR
	})
	if err != nil {
		return 0, err
	}
	return n, rerr
}

// hungUp tells the end of the last sender from an empty datagram. A producer that sends one and ends at once may lose
// what it sent in between, which is its own.
func hungUp(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP) != 0
}
