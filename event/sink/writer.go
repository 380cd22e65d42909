package sink

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
)

// item is one event and its encoding, shared by all sinks and read-only.
type item struct {
	event *event.Event
	line  []byte
}

// queueLen bounds what one slow sink can hold in memory: 1024 lines of at most event.MaxBytes.
const queueLen = 1024

// writer feeds one sink from a bounded queue on a goroutine of its own.
type writer struct {
	kind  Kind
	name  string
	queue chan item
	done  chan struct{}
	lost  atomic.Uint64 // lines that found the queue full or that the sink refused
	why   error         // the last refusal; to be read after done

	mu   sync.Mutex // guards file against being replaced while it is written
	file *os.File
	torn bool // the last line was written in part: begin the next one on a line of its own

	// Of a log daemon:
	gone    func()    // asks for a new connection
	asked   time.Time // when it was called last
	stalled bool      // it took nothing for as long as a line waits
}

func newWriter(t Target, gone func()) *writer {
	w := &writer{kind: t.Kind, name: t.Name, file: os.NewFile(uintptr(t.FD), t.Name), queue: make(chan item, queueLen), done: make(chan struct{}), gone: gone}
	go w.run()
	return w
}

// put queues a line, or counts it as lost at once.
func (w *writer) put(it item) {
	select {
	case w.queue <- it:
	default:
		w.lost.Add(1)
	}
}

// end queues the last line, if there is one, and no other after it. It waits for room, unlike put: a log without it was cut off.
func (w *writer) end(late context.Context, it item, ok bool) {
	if ok {
		select {
		case w.queue <- it:
		case <-late.Done():
			w.lost.Add(1)
		}
	}
	close(w.queue)
}

func (w *writer) run() {
	defer close(w.done)
	for it := range w.queue {
		if err := w.write(it); err != nil {
			w.lost.Add(1)
			w.why = err
		}
	}
	if w.kind == File {
		_ = unix.Fsync(int(w.file.Fd())) // the kernel writes it anyway; this only makes a power cut right now harmless
	}
}

func (w *writer) write(it item) error {
	switch w.kind {
	case Journald:
		return w.datagram(journal(it))
	case Syslog:
		return w.datagram(syslog(it))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	fd := int(w.file.Fd())
	switch w.kind {
	case Terminal:
		if it.event.Type == event.Heartbeat {
			return nil // says to a log that it is alive; says nothing to a person
		}
		return w.whole(fd, append([]byte(event.Human(it.event)), lineEnd(fd)...))
	default:
		return w.whole(fd, append(it.line[:len(it.line):len(it.line)], '\n'))
	}
}

// whole writes a line in one call, so that O_APPEND keeps the lines of several sessions apart. A line that only went
// in part (no space) is lost; what follows starts afresh.
func (w *writer) whole(fd int, line []byte) error {
	if w.torn {
		line = append([]byte{'\n'}, line...)
	}
	for {
		n, err := unix.Write(fd, line)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return fmt.Errorf("write %s: %w", w.name, err)
		}
		w.torn = n < len(line)
		if w.torn {
			return fmt.Errorf("write %s: %d of %d bytes", w.name, n, len(line))
		}
		return nil
	}
}

// lineEnd is CR LF on a terminal that does not add the CR itself: the user's is raw while a session owns it.
func lineEnd(fd int) string {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err == nil && t.Oflag&unix.OPOST == 0 {
		return "\r\n"
	}
	return "\n"
}

// A line waits this long for a log daemon that has no room (its socket holds ten by default: net.unix.max_dgram_qlen) or
// that is being started again. Those behind one that waited in vain do not, until one gets through: the queue is bounded.
const (
	daemonTime  = time.Second
	daemonPause = time.Millisecond
)

// datagram sends one line to a log daemon.
func (w *writer) datagram(b []byte) error {
	for late := time.Now().Add(daemonTime); ; time.Sleep(daemonPause) {
		w.mu.Lock()
		err := unix.Sendto(int(w.file.Fd()), b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
		w.mu.Unlock()
		now := time.Now()
		switch err {
		case nil:
			w.stalled = false
			return nil
		case unix.EINTR, unix.EAGAIN, unix.ENOBUFS:
		case unix.ECONNREFUSED, unix.ECONNRESET, unix.ENOTCONN, unix.EPIPE:
			if w.gone != nil && now.Sub(w.asked) >= daemonTime/4 {
				w.asked = now
				w.gone()
			}
		default:
			return err
		}
		if w.stalled || now.After(late) {
			w.stalled = true
			return err
		}
	}
}

// replace puts fd in the place of the file or the connection that is written to.
func (w *writer) replace(fd int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.file.Close()
	w.file, w.torn = os.NewFile(uintptr(fd), w.name), false
}
