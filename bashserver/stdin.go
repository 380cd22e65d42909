package bashserver

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// input copies a client's stdin to a command. It can be halted and resumed: a client that is stopped by its shell must
// not take away what is typed for somebody else.
type input struct {
	src  *clientFD
	dst  *os.File // the command's pipe, closed at the end of input; or the master of its terminal, which is not
	tty  bool
	peek *os.File // a read end of the same pipe, for a regular file

	running sync.Mutex // held by the one copier
	start   int64      // of a regular file: position at the start
	written int64
	last    byte // written last; 0: nothing yet

	mu   sync.Mutex
	stop chan struct{} // nil: halted
}

func (in *input) resume() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.stop == nil {
		in.stop = make(chan struct{})
		go in.copy(in.stop)
	}
}

func (in *input) halt() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.stop != nil {
		close(in.stop)
		in.stop = nil
	}
}

func (in *input) copy(stop <-chan struct{}) {
	in.running.Lock()
	defer in.running.Unlock()
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		select {
		case <-stop: // a regular file never makes us wait for anything that would see it
			return
		default:
		}
		n, err := in.src.read(*buf, stop)
		if err == errStopped {
			return
		}
		if n > 0 {
			var w int
			w, err = in.dst.Write((*buf)[:n])
			in.written += int64(w)
			if w > 0 {
				in.last = (*buf)[w-1]
			}
		}
		if err != nil {
			in.eof()
			return
		}
	}
}

// eof says that no more comes. On a terminal that is a key (Ctrl-D): pressed within a line it ends the line, pressed again the
// input. A client's own terminal that is gone takes the command's along anyway.
func (in *input) eof() {
	if !in.tty {
		in.dst.Close()
		return
	}
	keys := "\x04"
	if in.last != 0 && in.last != '\n' {
		keys = "\x04\x04"
	}
	_, _ = in.dst.WriteString(keys)
}

// end stops for good, once the command is gone, and closes the client's descriptor. From a regular file only what the
// command has read is taken, as if it had had the file itself: `while read` loops around commands depend on it. The
// channel closes when nothing of the copier is left; where RWF_NOWAIT is not to be had, somebody else may have read
// what epoll promised, and then that is with the next byte only.
func (in *input) end() <-chan struct{} {
	in.halt()
	if !in.tty {
		in.dst.Close() // also wakes a copier that waits for room in the pipe
	}
	left := make(chan struct{})
	go func() {
		defer close(left)
		in.running.Lock()
		defer in.running.Unlock()
		defer in.src.close()
		if in.peek != nil {
			in.putBack()
		}
	}()
	return left
}

func (in *input) putBack() {
	defer in.peek.Close()
	unread, err := unix.IoctlGetInt(int(in.peek.Fd()), unix.TIOCINQ)
	if err == nil && in.start >= 0 {
		unix.Seek(in.src.fd, in.start+in.written-int64(unread), unix.SEEK_SET)
	}
}
