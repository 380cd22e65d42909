package bashserver

import (
	"sync"
	"time"
)

// ring keeps the end of what is written to it: the log of a job.
type ring struct {
	mu    sync.Mutex
	max   int
	buf   []byte
	next  int // where the next byte goes, once buf has grown to max
	total int64
	burst int
}

// A job that prints without end must not keep this process busy for all: after a burst its copiers wait, and it waits for them.
const (
	ringBurst = 1 << 20
	ringPause = 50 * time.Millisecond
)

func (r *ring) Write(b []byte) (int, error) {
	r.mu.Lock()
	n := len(b)
	r.total += int64(n)
	r.burst += n
	pause := r.burst >= ringBurst
	if pause {
		r.burst = 0
	}
	b = b[max(0, n-r.max):]
	if room := min(r.max-len(r.buf), len(b)); room > 0 {
		r.buf = append(r.buf, b[:room]...)
		b = b[room:]
	}
	for len(b) > 0 {
		c := copy(r.buf[r.next:], b)
		r.next = (r.next + c) % r.max
		b = b[c:]
	}
	r.mu.Unlock()
	if pause {
		time.Sleep(ringPause)
	}
	return n, nil
}

// contents returns what is kept, and how much was written before it.
func (r *ring) contents() (kept []byte, lost int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept = append(append(kept, r.buf[r.next:]...), r.buf[:r.next]...)
	return kept, r.total - int64(len(kept))
}
