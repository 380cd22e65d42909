package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// server is one running relay.
type server struct {
	config Config
	report *reporter
	// Waiting times, fields so that tests need not wait for them.
	helloTimeout      time.Duration
	halfClosedTimeout time.Duration
	// Endpoint.dial, but in tests of what is learned: a public name leads nowhere there.
	dial func(Endpoint, context.Context) (*net.TCPConn, error)

	learned *asked // nil: nothing is learned
	fixed   int    // endpoints that have a name; the others are ports of what is learned

	total   atomic.Int64
	counter []counters

	mu    sync.Mutex
	conns map[*net.TCPConn]struct{} // nil once the relay stops
	wg    sync.WaitGroup
}

// counters are one endpoint's, reported when the relay ends.
type counters struct {
	open, accepted, refused, failed, sent, received atomic.Int64
}

const (
	helloTimeout = 10 * time.Second
	// A client that has closed both ways looks like one that has closed one way. When the other direction moves nothing
	// for this long after a half-close, the connection is given up; without it, abandoned connections would use up the
	// endpoint's limit.
	halfClosedTimeout = 10 * time.Minute
)

// Serve relays connections of the listeners, one for each endpoint in the order of the configuration, until the context
// ends. It closes the listeners and every connection before it returns. events is a SOCK_DGRAM socket; it may be nil.
// learning goes with config.Learn.
func Serve(ctx context.Context, config Config, listeners []*net.TCPListener, learning *Learning, events net.Conn) error {
	if err := config.check(); err != nil {
		return err
	}
	if (config.Learn == nil) != (learning == nil) {
		return errors.New("relay: what learning needs was given without it, or not at all")
	}
	fixed := len(config.Endpoints)
	var learned *asked
	if learning != nil {
		learned = newAsked(config.Learn.Open, learning.Told)
		config.Endpoints, listeners = append(config.Endpoints, config.Learn.endpoints()...), append(listeners, learning.Listeners...)
	}
	s := newServer(config, newReporter(config, events, reportWindow))
	s.learned, s.fixed = learned, fixed
	if learned == nil {
		return s.serve(ctx, listeners)
	}
	stop := context.AfterFunc(ctx, func() { learning.DNS.Close() })
	defer stop()
	s.wg.Go(func() { learned.serve(learning.DNS) })
	return s.serve(ctx, listeners)
}

func newServer(config Config, report *reporter) *server {
	return &server{
		config: config, report: report, fixed: len(config.Endpoints),
		helloTimeout: helloTimeout, halfClosedTimeout: halfClosedTimeout, dial: Endpoint.dial,
		counter: make([]counters, len(config.Endpoints)),
		conns:   map[*net.TCPConn]struct{}{},
	}
}

func (s *server) serve(ctx context.Context, listeners []*net.TCPListener) error {
	if len(listeners) != len(s.config.Endpoints) {
		return fmt.Errorf("relay: %d listeners for %d endpoints", len(listeners), len(s.config.Endpoints))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, len(listeners))
	for i, l := range listeners {
		s.wg.Go(func() {
			if err := s.accept(ctx, i, l); err != nil && ctx.Err() == nil {
				failed <- fmt.Errorf("relay: accept for %s: %w", s.config.Endpoints[i].Name, err)
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		// An endpoint that is gone would look like a dead upstream to the domain; ending makes it the supervisor's news.
	}
	cancel()
	for _, l := range listeners {
		l.Close()
	}
	s.closeAll()
	s.wg.Wait()
	s.report.close(s)
	return err
}

// transient are the errors of accept(2) that say nothing about the listener.
func transient(err error) bool {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (s *server) accept(ctx context.Context, i int, l *net.TCPListener) error {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			// Out of descriptors or memory: the listener is fine, connections wait in its backlog.
			if transient(err) && pause(ctx, 50*time.Millisecond) {
				continue
			}
			return err
		}
		s.counter[i].accepted.Add(1)
		if !s.admit(i, c) {
			reset(c)
			continue
		}
		s.wg.Go(func() {
			defer s.leave(i, c)
			s.handle(ctx, i, c)
		})
	}
}

// admit counts a connection in, or reports the limit it meets.
func (s *server) admit(i int, c *net.TCPConn) bool {
	if s.counter[i].open.Load() >= int64(s.config.Limits.PerEndpoint) {
		s.report.limit(i, "connections of one endpoint", s.config.Limits.PerEndpoint)
		return false
	}
	if s.total.Load() >= int64(s.config.Limits.MaxConns) {
		s.report.limit(i, "connections of all endpoints", s.config.Limits.MaxConns)
		return false
	}
	if !s.track(c) {
		return false
	}
	// Only this endpoint's accept loop adds to open, so the check above holds. Loops of several endpoints can overshoot
	// the total by one each.
	s.counter[i].open.Add(1)
	s.total.Add(1)
	return true
}

func (s *server) leave(i int, c *net.TCPConn) {
	s.untrack(c)
	s.counter[i].open.Add(-1)
	s.total.Add(-1)
}

// track makes sure that stopping the relay also ends this connection; false when it has stopped already.
func (s *server) track(c *net.TCPConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *server) untrack(c *net.TCPConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

func (s *server) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		reset(c)
	}
	s.conns = nil
}

// reset closes with RST, so that the peer sees a failure and not an end of data.
func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// data sums the counters for the last event of the relay.
func (s *server) data(i int) map[string]any {
	c, e := &s.counter[i], s.config.Endpoints[i]
	return map[string]any{
		"endpoint": e.Name, "port": e.Port,
		"accepted": c.accepted.Load(), "refused": c.refused.Load(), "failed": c.failed.Load(),
		"bytes_sent": c.sent.Load(), "bytes_received": c.received.Load(),
	}
}
