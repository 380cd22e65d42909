package tty

import (
	"errors"
	"io"
	"os"
	"time"
)

// input copies the terminal to the pty while it may. Reading is stopped with deadlines and never by closing: between
// pause and resume no read is in flight, so no key that the user types into the shell is taken from it.
type input struct {
	terminal *Terminal
	master   *os.File
	run      chan struct{} // each item is one stretch of reading
	paused   chan struct{} // and its end
	ended    chan struct{} // the terminal is gone
	rest     []byte        // read, not yet taken by the pty
}

// past is a deadline that has been missed.
var past = time.Unix(1, 0)

func newInput(t *Terminal, master *os.File) *input {
	in := &input{terminal: t, master: master,
		run: make(chan struct{}), paused: make(chan struct{}), ended: make(chan struct{}, 1)}
	go in.loop()
	return in
}

func (in *input) resume() {
	in.terminal.file.SetReadDeadline(time.Time{})
	in.master.SetWriteDeadline(time.Time{})
	in.run <- struct{}{}
}

func (in *input) pause() {
	in.terminal.file.SetReadDeadline(past)
	in.master.SetWriteDeadline(past)
	<-in.paused
}

// stop ends the goroutine; the input must be paused.
func (in *input) stop() { close(in.run) }

func (in *input) loop() {
	defer in.terminal.RestoreOnPanic()
	for range in.run {
		if err := in.copy(); !errors.Is(err, os.ErrDeadlineExceeded) {
			select {
			case in.ended <- struct{}{}:
			default:
			}
		}
		in.paused <- struct{}{}
	}
}

func (in *input) copy() error {
	buf := make([]byte, 4096)
	for {
		for len(in.rest) > 0 {
			n, err := in.master.Write(in.rest)
			in.rest = in.rest[n:]
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return err
			}
			if err != nil { // the other side is gone, and the target's end is on its way: there is nobody to read on for
				in.rest = nil
				return os.ErrDeadlineExceeded
			}
		}
		n, err := in.terminal.file.Read(buf)
		in.rest = append(in.rest, buf[:n]...)
		if err != nil && !(n > 0 && err == io.EOF) {
			return err
		}
	}
}
