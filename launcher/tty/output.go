package tty

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"time"
)

// output copies the pty to the terminal. Like input it is paused with a deadline; unlike input it first takes what has
// been written by then: a program that stops itself has just put the screen back.
type output struct {
	terminal *Terminal
	master   *os.File
	run      chan struct{}
	paused   chan struct{}
	done     chan struct{} // closed when the pty has no other side any more
	still    bool          // paused; only the user of pause and resume looks at it

	mu     sync.Mutex // held for each write
	plain  bool       // the user's shell has the terminal: nothing may make it answer
	escape bool       // something was written that a terminal may answer
}

// settleOutput is long enough for the kernel to move what a stopped program wrote to the master's side.
const settleOutput = 20 * time.Millisecond

func newOutput(t *Terminal, master *os.File) *output {
	out := &output{terminal: t, master: master,
		run: make(chan struct{}), paused: make(chan struct{}), done: make(chan struct{})}
	go out.loop()
	return out
}

// pause waits until nothing has come for a moment, or the domain is gone.
func (out *output) pause() { out.stopWithin(settleOutput) }

// stopWithin pauses after the timeout at the latest, however much there is to read.
func (out *output) stopWithin(d time.Duration) {
	if out.still {
		return
	}
	out.still = true
	out.master.SetReadDeadline(time.Now().Add(d))
	select {
	case <-out.paused:
	case <-out.done:
	}
}

func (out *output) resume() {
	out.still = false
	out.master.SetReadDeadline(time.Time{})
	select {
	case out.run <- struct{}{}:
	case <-out.done:
	}
}

func (out *output) loop() {
	defer out.terminal.RestoreOnPanic()
	defer close(out.done)
	buf := make([]byte, 32<<10)
	for {
		n, err := out.master.Read(buf)
		out.show(buf[:n])
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			out.paused <- struct{}{}
			if _, more := <-out.run; !more {
				return
			}
		case err != nil: // EIO: the other side is closed
			return
		}
	}
}

func (out *output) show(b []byte) {
	out.mu.Lock()
	defer out.mu.Unlock()
	if out.plain {
		plain(b)
	}
	if bytes.IndexByte(b, 0x1b) >= 0 {
		out.escape = true
	}
	// A terminal that is gone must not block the target: what it writes is read and lost.
	out.terminal.file.Write(b)
}

func (out *output) setPlain(on bool) {
	out.mu.Lock()
	defer out.mu.Unlock()
	out.plain = on
}

// takeEscape tells whether an escape sequence was written since it was last asked.
func (out *output) takeEscape() bool {
	out.mu.Lock()
	defer out.mu.Unlock()
	was := out.escape
	out.escape = false
	return was
}

// plain makes text harmless for a terminal that the user's shell reads: without control characters but line ends and
// tabs nothing can make it answer. 0xc2 goes too, because with the byte after it it is a control character in UTF-8.
func plain(b []byte) {
	for i, c := range b {
		if c < ' ' && c != '\n' && c != '\r' && c != '\t' || c == 0x7f || c == 0xc2 {
			b[i] = '?'
		}
	}
}
