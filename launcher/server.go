package launcher

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/internal/lean"
	"github.com/sharness/sharness/launcher/protect"
	"golang.org/x/sys/unix"
)

// server is the privileged half of the bash-server: it accepts, checks who calls, hands the connection to sharness-bashd,
// and builds a sandbox when that asks for one. It reads no byte that a client wrote.
type server struct {
	s      *Session
	sp     *spawner
	set    *protect.Set
	events *sink.Sender
	listen *os.File
	admit  func(peer) error

	replaced *replacements
	again    func(*domain, int) // protects an entry again in a domain that was being started when it was replaced

	netns *os.File // of all commands, when the manifest says network: session

	budget  *budget
	boxes   *sandboxes
	lull    *lean.Lull // nil: memory is kept
	retired retired    // groups of commands that have ended

	mu      sync.Mutex
	changed sync.Cond        // of bashd, open and closed; its lock is mu. Nothing that can wait for a process is done under mu
	bashd   *wire.RecordConn // nil while it is being started again
	nextID  uint64
	nextCmd uint64
	nextBox uint64
	open    map[uint64]*wire.RecordConn // connections, and the bashd that holds each
	sent    map[uint64]int              // of those, the sockets that bashd has not said to have yet
	running map[uint64]*runningCommand
	hinted  map[wire.Hint]time.Time // when each was sent last
	closed  bool
	busy    sync.WaitGroup // the acceptor and the commands
}

// maxOpen bounds the connections that bashd has and has not done with. It serves half as many and hangs up on the
// others: more are open only while it does not keep up.
const maxOpen = 256

// roomTime is how long one that comes then waits for room, and those behind it in the backlog.
const roomTime = time.Second

// closeTime bounds the end of the commands that are killed with the session.
const closeTime = 10 * time.Second

// listenSocket makes the session's socket. Its owner is the one user that may connect.
func listenSocket(path string, uid int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("bash-server socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), path)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		f.Close()
		return nil, fmt.Errorf("bash-server socket %s: %w", path, err)
	}
	if err := errors.Join(os.Chmod(path, 0o600), os.Lchown(path, uid, uid), unix.Listen(fd, 128)); err != nil {
		f.Close()
		return nil, fmt.Errorf("bash-server socket %s: %w", path, err)
	}
	return f, nil
}

// accept takes connections until the socket is closed.
func (sv *server) accept() {
	for {
		fd, err := sv.acceptOne()
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNABORTED) {
			continue
		}
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if err != nil {
			return // closed
		}
		sv.welcome(fd)
	}
}

// acceptOne waits without a thread.
func (sv *server) acceptOne() (fd int, err error) {
	raw, err := sv.listen.SyscallConn()
	if err != nil {
		return -1, err
	}
	rerr := raw.Read(func(s uintptr) bool {
		fd, _, err = unix.Accept4(int(s), unix.SOCK_CLOEXEC)
		return !errors.Is(err, unix.EAGAIN)
	})
	if rerr != nil {
		return -1, rerr
	}
	return fd, err
}

// welcome checks one connection and hands it on. Whoever is not admitted sees a closed connection.
func (sv *server) welcome(fd int) {
	p, err := peerOf(fd)
	if err == nil {
		err = sv.admit(p)
		if p.pidfd >= 0 {
			unix.Close(p.pidfd)
		}
	}
	if err != nil {
		sv.events.Send(event.Event{Type: event.SyscallDenied, Door: "srv-bytes", Layer: "server", Detail: "connection to the bash-server refused: " + err.Error(),
			Process: &event.Process{PID: int(p.Pid), UID: p.Uid}})
		unix.Close(fd)
		return
	}
	sv.serve(fd)
}

// serve gives an admitted connection to bashd, or tells it that there is no room, or closes it when the session ends.
func (sv *server) serve(fd int) {
	if sv.handOver(fd) {
		return
	}
	// Of a client nothing is read; what is written finds an empty buffer. Whoever does not get it sees a closed connection.
	_, _ = unix.SendmsgN(fd, wire.AppendFrame(nil, wire.ErrorFrame(2, "the bash-server is busy: too many connections")), nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	unix.Close(fd)
}

// handOver gives a connection to bashd, and says whether that has room for it. Whoever comes while bashd is being started
// again waits, and so do those behind it. The socket is kept until bashd says that it has it: a dying one may close its
// connections long before the control socket, out of which nobody takes then what was sent meanwhile.
func (sv *server) handOver(fd int) bool {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	late := time.Now().Add(roomTime)
	for {
		if sv.closed {
			unix.Close(fd)
			return true // nobody is there to be told
		}
		if sv.bashd == nil {
			sv.changed.Wait()
			continue
		}
		if len(sv.open) >= maxOpen {
			if !time.Now().Before(late) {
				return false
			}
			wake := time.AfterFunc(time.Until(late), func() {
				sv.mu.Lock() // not between the look at the time and the wait
				defer sv.mu.Unlock()
				sv.changed.Broadcast()
			})
			sv.changed.Wait()
			wake.Stop()
			continue
		}
		sv.nextID++
		err := sv.bashd.Send(wire.Record{Type: wire.RecConn, ID: sv.nextID}, fd)
		if err == nil {
			sv.open[sv.nextID], sv.sent[sv.nextID] = sv.bashd, fd
			return true
		}
		if errors.Is(err, wire.ErrBusy) {
			return false
		}
		sv.bashd = nil // it is dying; its keeper starts another
	}
}

// serveBy makes a bashd that was just started the one that gets the connections.
func (sv *server) serveBy(rc *wire.RecordConn) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.bashd = rc
	sv.changed.Broadcast()
}

// refuse ends what waits and what comes from here on.
func (sv *server) refuse() {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.closed = true
	sv.changed.Broadcast()
}

// close ends the server: no new connection, no command left.
func (sv *server) close() error {
	sv.refuse()
	sv.mu.Lock()
	for _, c := range sv.running {
		c.kill(wire.ReasonShutdown)
	}
	sv.mu.Unlock()
	sv.listen.Close() // the acceptor ends
	ended := make(chan struct{})
	go func() {
		sv.busy.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closeTime):
		// A process that cannot be killed sits in the kernel, say in a file system that does not answer.
		return fmt.Errorf("bash-server: commands did not end within %s of being killed", closeTime)
	}
	if sv.boxes != nil {
		sv.boxes.close()
	}
	if sv.netns != nil {
		sv.netns.Close()
	}
	return nil
}
