package bashserver

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// drainTime is how long a pipe may stay silent after the command has ended: all its writers are dead then, so that
// only a bug of the supervisor's reaches it.
const drainTime = 2 * time.Second

var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// sink is where the output of a command goes in the end: a client's descriptor, or a buffer for --json. Notes of ours
// come from other goroutines than the output.
type sink struct {
	mu   sync.Mutex
	to   *clientFD
	quit <-chan struct{} // closed when nobody waits for the client's descriptors any more

	log *ring // of a job

	captured  []byte // with neither
	truncated bool
}

// maxCapture bounds each stream of a --json command: it is kept in memory.
const maxCapture = 1 << 20

func (s *sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to != nil {
		return len(b), s.to.write(b, s.quit)
	}
	if s.log != nil {
		return s.log.Write(b)
	}
	n := min(len(b), maxCapture-len(s.captured))
	s.captured = append(s.captured, b[:n]...)
	s.truncated = s.truncated || n < len(b)
	return len(b), nil
}

// budget is what a command may still print.
type budget struct {
	left atomic.Int64
	once sync.Once
	over func() // called once, when it is used up
}

// take says how many of n bytes may pass.
func (b *budget) take(n int) int {
	left := b.left.Add(-int64(n))
	if left >= 0 {
		return n
	}
	b.once.Do(b.over)
	return max(0, n+int(max(left, -int64(n))))
}

// output copies one pipe of a command to a sink through the filter.
type output struct {
	pipe   *os.File
	filter filter
	budget *budget
	ended  *atomic.Bool // the command has
	done   chan struct{}
}

func (o *output) copy() {
	defer close(o.done)
	defer o.pipe.Close() // a command that goes on writing gets EPIPE, as if it had the client's descriptor
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	timed := false
	for {
		wait := o.filter.wait()
		draining := o.ended.Load()
		switch {
		case draining:
			o.pipe.SetReadDeadline(time.Now().Add(drainTime))
		case wait > 0:
			o.pipe.SetReadDeadline(time.Now().Add(wait))
			timed = true
		case timed:
			o.pipe.SetReadDeadline(time.Time{})
			timed = false
		}
		if !draining && o.ended.Load() { // end's deadline may have come before ours
			continue
		}
		n, err := o.pipe.Read(*buf)
		if n > 0 {
			if _, werr := o.filter.Write((*buf)[:o.budget.take(n)]); werr != nil {
				return
			}
		}
		if err != nil && !draining && errors.Is(err, os.ErrDeadlineExceeded) {
			err = o.filter.idle()
		}
		if err != nil {
			o.filter.close()
			return
		}
	}
}

// end waits until everything that the command wrote has gone where it goes.
func (o *output) end() {
	o.pipe.SetReadDeadline(time.Now().Add(drainTime))
	<-o.done
}

// pipe makes a pipe whose one end, ours, does not block and whose other end, the command's, does. They are two open
// file descriptions, so the command does not notice.
func pipe(oursReads bool) (ours, theirs *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("pipe2: %w", err)
	}
	o, t := p[0], p[1]
	if !oursReads {
		o, t = p[1], p[0]
	}
	if err := unix.SetNonblock(o, true); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("fcntl: %w", err), unix.Close(o), unix.Close(t))
	}
	return os.NewFile(uintptr(o), "pipe"), os.NewFile(uintptr(t), "pipe"), nil
}
