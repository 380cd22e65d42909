package sink

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

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
}

func newWriter(t Target) *writer {
	w := &writer{kind: t.Kind, name: t.Name, file: os.NewFile(uintptr(t.FD), t.Name), queue: make(chan item, queueLen), done: make(chan struct{})}
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
	w.mu.Lock()
	defer w.mu.Unlock()
	fd := int(w.file.Fd())
	switch w.kind {
	case Journald:
		return datagram(fd, journal(it))
	case Syslog:
		return datagram(fd, syslog(it))
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

// datagram sends without waiting: a log daemon that hangs must not hold lines back until memory is full.
func datagram(fd int, b []byte) error {
	for {
		err := unix.Sendto(fd, b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
		if err != unix.EINTR {
			return err
		}
	}
}

// replace puts fd in the place of the file that is written.
func (w *writer) replace(fd int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.file.Close()
	w.file, w.torn = os.NewFile(uintptr(fd), w.name), false
}
