package tty

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Place is where on its pty the target continues.
type Place int

// The two places of a process group on a terminal.
const (
	Foreground Place = iota
	Background
)

// Child is the process tree on the other side, by way of its pid 1. The package comment says what it expects.
type Child interface {
	Signal(sig syscall.Signal) error
	Continue(where Place) error
}

// Exit is the target's end.
type Exit struct {
	Killed bool // by a signal: it could not put the screen back
}

const (
	// drainTimeout bounds the wait for output after the end of a domain. Its pty and pipes end with it; only something
	// outside that holds one of them makes this matter.
	drainTimeout = 2 * time.Second
	// stopTimeout bounds the wait for a target that was told to stop because the rest of the user's job does.
	stopTimeout = time.Second
	// idleStop is the pause after a stop that had no effect: see stopSelf.
	idleStop = 100 * time.Millisecond
)

// Proxy carries bytes, signals, sizes and job control between the user and a domain.
type Proxy struct {
	Streams *Streams
	Master  int // of the pty, owned by Run; -1 without one
	Child   Child
	Stopped <-chan syscall.Signal // stops of the target

	master *os.File
	input  *input
	output *output
	signal chan os.Signal

	mayStop  bool             // whoever started us does not keep us from stopping
	late     <-chan time.Time // the user's job stops, and the target has not yet; nil otherwise
	wanted   bool             // the target uses the terminal
	attached bool             // and has it
	told     bool             // the target was told to end
}

// forwarded are the signals that are meant for the target. The terminal's own keys come as bytes while it is raw.
var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}

// ends says whether a signal is one by which a program is told to end.
func ends(sig os.Signal) bool {
	return sig != syscall.SIGUSR1 && sig != syscall.SIGUSR2 && slices.Contains(forwarded, sig)
}

// Run works until exited delivers and all output has arrived, then restores the terminal and closes the master. Its
// error is about output or the terminal; the target's end is not an error. SIGTERM and the like go to the target, and
// whether it obeys is its own affair: a supervisor that wants it to end kills the domain.
func (p *Proxy) Run(exited <-chan Exit) (err error) {
	p.signal = make(chan os.Signal, 16)
	signal.Notify(p.signal, append([]os.Signal{unix.SIGWINCH, unix.SIGCONT}, forwarded...)...)
	if p.mayStop = !ignored(int(unix.SIGTSTP)); p.mayStop {
		signal.Notify(p.signal, unix.SIGTSTP)
	}
	defer signal.Stop(p.signal)
	t := p.Streams.Terminal
	if t != nil {
		defer t.Restore()
		defer t.RestoreOnPanic()
	}
	if err := p.open(); err != nil {
		return err
	}
	defer p.close()
	if p.Streams.StartForeground() {
		p.wanted = true
	}
	if err := p.resume(); err != nil {
		return err
	}
	var ended <-chan struct{} // the terminal is gone
	if p.input != nil {
		ended = p.input.ended
	}
	for {
		select {
		case sig := <-p.signal:
			switch sig {
			case unix.SIGWINCH:
				err = p.resize()
			case unix.SIGCONT:
				err = p.resume()
			case unix.SIGTSTP:
				p.late = time.After(stopTimeout)
				err = p.Child.Signal(syscall.SIGTSTP)
			default:
				p.told = p.told || ends(sig)
				err = p.Child.Signal(sig.(syscall.Signal))
			}
		case sig := <-p.Stopped:
			err = p.stopped(sig)
		case <-p.late:
			p.late = nil
			err = p.suspend()
		case <-ended:
			ended = nil
			err = p.Child.Signal(syscall.SIGHUP)
		case exit := <-exited:
			return p.finish(exit)
		}
		// The end of the target races with every message to it; exited comes next then.
		if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
			return err
		}
	}
}

func (p *Proxy) open() error {
	if p.Master < 0 {
		return nil
	}
	// Non-blocking, so that the runtime's poller and its deadlines work on it. The domain has no copy of the master.
	if err := unix.SetNonblock(p.Master, true); err != nil {
		return fmt.Errorf("pty: %w", err)
	}
	p.master = os.NewFile(uintptr(p.Master), "pty")
	p.input, p.output = newInput(p.Streams.Terminal, p.master), newOutput(p.Streams.Terminal, p.master)
	return nil
}

func (p *Proxy) close() {
	if p.master != nil {
		p.detach()
		p.input.stop()
		p.output.pause()
		close(p.output.run)
		p.master.Close()
	}
}

// attach gives the terminal to the target: raw, with the pty at its size.
func (p *Proxy) attach() error {
	t := p.Streams.Terminal
	mode := RawAll
	if p.Streams.Layout.OnDemand {
		mode = RawInput // others of the pipeline write to the terminal too
	}
	if err := t.Raw(mode); err != nil {
		return err
	}
	p.output.setPlain(false)
	if !p.attached {
		p.attached = true
		p.input.resume()
	}
	return t.resize(p.Master)
}

// detach stops reading the terminal. It does not touch its modes.
func (p *Proxy) detach() {
	if p.attached {
		p.attached = false
		p.input.pause()
	}
}

// resume sorts out whose the terminal is: at the start and after SIGCONT.
func (p *Proxy) resume() error {
	if p.master == nil {
		return nil
	}
	foreground := p.Streams.Terminal.Foreground()
	p.output.setPlain(!foreground)
	if foreground && p.wanted {
		return p.attach()
	}
	p.detach()
	return nil
}

func (p *Proxy) resize() error {
	if p.master == nil {
		return nil
	}
	err := p.Streams.Terminal.resize(p.Master)
	if errors.Is(err, unix.EIO) { // hung up; SIGHUP says so too
		return nil
	}
	return err
}

// finish waits for the rest of the output and puts the terminal back.
func (p *Proxy) finish(exit Exit) error {
	if p.master != nil {
		p.output.stopWithin(drainTimeout)
	}
	err := p.drain()
	if p.master == nil {
		return err
	}
	wasRaw := p.attached
	p.detach()
	if exit.Killed && wasRaw {
		io.WriteString(p.Streams.Terminal.file, leaveScreen)
	}
	return errors.Join(err, p.release())
}

// drain waits for the output, for as long as its reader takes, as the target itself would have. Whoever told the target to
// end does not mean to wait for a reader that is stuck.
func (p *Proxy) drain() error {
	done := make(chan error, 1)
	go func() { done <- p.Streams.Drain(drainTimeout) }()
	var late <-chan time.Time
	if p.told {
		late = time.After(2 * drainTimeout)
	}
	for {
		select {
		case err := <-done:
			return err
		case sig := <-p.signal:
			if late == nil && ends(sig) {
				late = time.After(0)
			}
		case <-late:
			return errors.New("output: its reader does not take it, and the session was told to end: the rest is lost")
		}
	}
}

// leaveScreen undoes what full-screen programs do to a terminal, after one was killed before it could. The alternate
// screen is left with 1047 and not 1049, which would also move the cursor to a place that nobody has saved.
const leaveScreen = "\x1b\\\x1b[?1047l" + // end of a cut sequence, main screen
	"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l" + // no mouse reports
	"\x1b[?1004l\x1b[?2004l" + // no focus reports, no bracketed paste
	"\x1b[?1l\x1b>\x1b[<u\x1b[>4;0m" + // plain cursor keys, keypad and modifiers
	"\x1b[?7h\x1b[?25h\x1b[0m" // wrap, cursor, no colours
