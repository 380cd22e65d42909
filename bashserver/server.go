package bashserver

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/bashserver/redact"
	"github.com/sharness/sharness/bashserver/wire"
)

// maxPending bounds the requests that are on their way, all connections together: each may hold wire.MaxRequest.
const maxPending = 32 << 20

// Server is one bashd. It has no state beyond its connections.
type Server struct {
	cfg     Config
	ctl     *wire.RecordConn
	events  *reporter
	poll    *poller
	secrets *redact.Set

	jobs     backgrounds
	pending  atomic.Int64 // bytes of requests on their way
	commands chan struct{}

	mu    sync.Mutex
	conns map[uint64]*conn
	peers map[int32]int // connections by process
}

// Serve answers connections that the supervisor passes on ctl until ctl ends, which is the end of the session; then it
// returns nil. It takes both files over.
func Serve(ctl, events *os.File, cfg Config) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	rc, err := wire.NewRecordConn(ctl, 0) // a supervisor may be stopped, by its user, for as long as they like
	if err != nil {
		return err
	}
	defer rc.Close()
	p, err := newPoller()
	if err != nil {
		return err
	}
	s := &Server{cfg: cfg, ctl: rc, events: &reporter{f: events}, poll: p, secrets: redact.NewSet(cfg.Secrets, redact.Rules(cfg.Rules)),
		commands: make(chan struct{}, cfg.MaxCommands), conns: map[uint64]*conn{}, peers: map[int32]int{}}
	defer s.events.close()
	defer s.closeAll()
	for {
		r, fds, err := rc.Recv()
		if err == io.EOF || errors.Is(err, unix.ECONNRESET) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("control socket: %w", err)
		}
		if err := s.take(r, fds); err != nil {
			return err
		}
	}
}

// take handles one record of the supervisor's. An error means that the two sides do not understand each other.
func (s *Server) take(r wire.Record, fds []int) error {
	switch r.Type {
	case wire.RecConn:
		return s.accept(r.ID, fds[0])
	case wire.RecStarted, wire.RecRefused, wire.RecEnded, wire.RecHint:
		s.mu.Lock()
		defer s.mu.Unlock()
		c := s.conns[r.ID]
		if c == nil { // crossed our RecDone
			wire.CloseAll(fds)
			return nil
		}
		if r.Type == wire.RecHint {
			if h := wire.Hint(r.A); hints[h] != "" {
				c.hints[h] = true
			}
			return nil
		}
		select {
		case c.records <- message{r, fds}:
			return nil
		default:
		}
		wire.CloseAll(fds)
		return fmt.Errorf("control socket: too many records for connection %d", r.ID)
	}
	wire.CloseAll(fds)
	return fmt.Errorf("control socket: record %d is not for us", r.Type)
}

// accept begins to serve a client, or tells it that there are too many.
func (s *Server) accept(id uint64, fd int) error {
	f := os.NewFile(uintptr(fd), "client")
	if err := s.ctl.Send(wire.Record{Type: wire.RecTaken, ID: id}); err != nil {
		f.Close()
		return err
	}
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		f.Close()
		return s.ctl.Send(wire.Record{Type: wire.RecDone, ID: id})
	}
	fc, err := wire.NewFrameConn(f)
	if err != nil {
		return fmt.Errorf("connection %d: %w", id, err)
	}
	c := &conn{s: s, id: id, peer: cred.Pid, uid: cred.Uid, frames: fc, records: make(chan message, maxRecords), hints: map[wire.Hint]bool{}, signals: make(chan int),
		quit: make(chan struct{}), ending: make(chan struct{})}
	c.cancel = sync.OnceFunc(func() { close(c.quit) })
	s.mu.Lock()
	full := len(s.conns) >= s.cfg.MaxConns || s.peers[c.peer] >= s.cfg.MaxConnsPerPeer
	if !full {
		s.conns[id] = c
		if s.cfg.lull != nil {
			s.cfg.lull.End()
		}
		s.peers[c.peer]++
	}
	s.mu.Unlock()
	if full {
		no := &refusal{statusNotRun, "the bash-server is busy: too many connections"}
		c.reportRefusal(no, no)
		// The socket's buffer is empty, so that this cannot wait.
		fc.WriteFrame(wire.ErrorFrame(no.status, no.text))
		fc.Close()
		return s.ctl.Send(wire.Record{Type: wire.RecDone, ID: id})
	}
	go c.serve()
	return nil
}

// forget frees the place of a connection that is closed and has no goroutine left.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c.id)
	if len(s.conns) == 0 && s.cfg.lull != nil {
		s.cfg.lull.Begin()
	}
	if s.peers[c.peer]--; s.peers[c.peer] == 0 {
		delete(s.peers, c.peer)
	}
	for len(c.records) > 0 { // take fills it under the same lock
		wire.CloseAll((<-c.records).fds)
	}
}

// closeAll hangs up on every client: the session is over.
func (s *Server) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.frames.Conn.Close()
	}
}

// reserve makes room for n more bytes of a request, or says that there is none.
func (s *Server) reserve(n int) bool {
	if s.pending.Add(int64(n)) <= maxPending {
		return true
	}
	s.pending.Add(int64(-n))
	return false
}
