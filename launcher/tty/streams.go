package tty

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Streams holds what the stage gets as 0-2, and the copying behind it.
type Streams struct {
	Layout   Layout
	Terminal *Terminal // nil without one

	child [3]*os.File // of the domain; closed by Started
	ends  []*os.File  // our ends of the pipes
	start []func()
	wg    sync.WaitGroup // output only: input may wait for ever

	mu  sync.Mutex
	err error
}

// Open makes the pipes and opens the terminal. fds stay the caller's and must stay open until Drain.
func Open(l Layout, fds [3]int) (*Streams, error) {
	s := &Streams{Layout: l}
	if err := s.open(fds); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Streams) open(fds [3]int) error {
	if s.Layout.Pty() {
		var err error
		if s.Terminal, err = OpenTerminal(fds[s.Layout.terminal]); err != nil {
			return err
		}
	}
	for i, kind := range s.Layout.Streams {
		if kind != Copied {
			continue
		}
		// A duplicate: the runtime ends a program that gets EPIPE on a file numbered 1 or 2 (os/signal).
		dup, err := unix.FcntlInt(uintptr(fds[i]), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return fmt.Errorf("stream %d: duplicate: %w", i, err)
		}
		file := os.NewFile(uintptr(dup), fmt.Sprintf("stream %d", i))
		switch {
		case i == 2 && s.Layout.joined:
			file.Close()
			s.child[2] = s.child[1]
		default:
			if err := s.copied(i, file); err != nil {
				file.Close()
				return err
			}
		}
	}
	return nil
}

// copied puts a fresh pipe in the place of a file.
func (s *Streams) copied(i int, file *os.File) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("stream %d: pipe: %w", i, err)
	}
	if i == 0 {
		s.child[0], s.ends = r, append(s.ends, w)
		s.start = append(s.start, func() {
			go func() {
				defer s.Terminal.RestoreOnPanic()
				// An error of either side looks the same to the target: its input is over. EPIPE is its own doing.
				io.Copy(w, steady{file})
				w.Close()
				file.Close()
			}()
		})
		return nil
	}
	s.child[i], s.ends = w, append(s.ends, r)
	s.start = append(s.start, func() {
		s.wg.Go(func() {
			defer s.Terminal.RestoreOnPanic()
			err := copyOut(steady{file}, r)
			// The target meets EPIPE at its next write, as it would have without us.
			r.Close()
			if cerr := file.Close(); err == nil {
				err = cerr
			}
			// Who read the user's pipe has gone, and the target was told like anybody.
			if err != nil && !errors.Is(err, unix.EPIPE) {
				s.fail(fmt.Errorf("stream %d: copy: %w", i, err))
			}
		})
	})
	return nil
}

func (s *Streams) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = errors.Join(s.err, err)
}

// Child is what the stage gets as descriptor i. nil: the pty if Layout.Streams[i] is Tty, /dev/null otherwise.
func (s *Streams) Child(i int) *os.File { return s.child[i] }

// StartForeground tells whether the target starts as the foreground group of its pty: the terminal is ours to use, and
// the target may read it at once.
func (s *Streams) StartForeground() bool {
	return s.Terminal != nil && !s.Layout.OnDemand && s.Terminal.Foreground()
}

// Dress gives a fresh pty, by its master, the modes and the size of the user's terminal. It must come before the target
// runs, which may set modes of its own.
func (s *Streams) Dress(master int) error { return s.Terminal.dress(master) }

// Started begins to copy and closes the domain's ends on our side: as long as they are open here no pipe ends. It is
// called once, after the stage has inherited them.
func (s *Streams) Started() {
	s.closeChild()
	for _, f := range s.start {
		f()
	}
	s.start = nil
}

func (s *Streams) closeChild() {
	for i, f := range s.child {
		if f != nil && !(i == 2 && s.Layout.joined) {
			f.Close()
		}
	}
	s.child = [3]*os.File{}
}

// Drain waits until all output has been copied, and returns what went wrong with any of it. The domain must have ended.
// A pipe that something outside of it still holds open is given up after the timeout.
func (s *Streams) Drain(timeout time.Duration) error {
	timer := time.AfterFunc(timeout, func() {
		for _, f := range s.ends {
			f.SetReadDeadline(time.Now())
		}
	})
	s.wg.Wait()
	timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends everything and restores the terminal.
func (s *Streams) Close() error {
	s.closeChild()
	for _, f := range s.ends {
		f.Close()
	}
	if s.Terminal == nil {
		return nil
	}
	return s.Terminal.Close()
}
