package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/sharness/sharness/manifest"
)

// handle carries one connection from its first byte to its last and closes both sides.
func (s *server) handle(ctx context.Context, i int, client *net.TCPConn) {
	e, known := s.endpoint(i, client)
	if !known {
		s.counter[i].refused.Add(1)
		s.report.denied(i, e, "net-host", "to an address that was given out for no name", "")
		reset(client)
		return
	}
	client.SetKeepAliveConfig(keepAlive)

	var hello []byte
	if e.TLS == manifest.TLSSNI {
		client.SetReadDeadline(time.Now().Add(s.helloTimeout))
		raw, body, err := readHello(client, nil)
		if err == nil {
			err = e.checkHello(body)
		}
		if err != nil {
			s.refuse(i, e, client, err)
			return
		}
		client.SetReadDeadline(time.Time{})
		hello = raw
	}

	upstream, err := s.dial(e, ctx)
	s.learned.carried(e, err == nil)
	if err != nil {
		s.counter[i].failed.Add(1)
		if errors.Is(err, errRebind) {
			s.report.denied(i, e, "net-host", err.Error(), "")
		} else if ctx.Err() == nil {
			s.report.upstream(i, e, err)
		}
		reset(client)
		return
	}
	defer s.untrack(upstream)
	if !s.track(upstream) {
		reset(client)
		reset(upstream)
		return
	}
	if _, err := upstream.Write(hello); err != nil {
		s.counter[i].failed.Add(1)
		s.report.upstream(i, e, err)
		reset(client)
		reset(upstream)
		return
	}
	s.counter[i].sent.Add(int64(len(hello)))
	s.pipe(i, e, client, upstream)
}

// checkHello holds a ClientHello to the endpoint's name.
func (e Endpoint) checkHello(body []byte) error {
	name, err := serverName(body)
	if err != nil {
		return err
	}
	if canonicalName(name) != canonicalName(e.Name) {
		return &refusal{alert: alertUnrecognizedName, reason: "another server name", asked: name}
	}
	return nil
}

// pipe passes bytes both ways until both sides have ended or one has failed. After this neither is open.
func (s *server) pipe(i int, e Endpoint, client, upstream *net.TCPConn) {
	var ended atomic.Bool // one direction is through
	back := make(chan struct{})
	go func() {
		n, err := s.copy(client, upstream, &ended)
		s.counter[i].received.Add(n)
		s.endOf(err, upstream, client, &ended)
		close(back)
	}()

	s.endOf(s.forward(i, e, client, upstream, &ended), client, upstream, &ended)
	<-back
	upstream.Close()
	client.Close()
}

// forward is the client's direction: a TLS handshake is watched to its second flight, the rest is not looked at.
func (s *server) forward(i int, e Endpoint, client, upstream *net.TCPConn, ended *atomic.Bool) error {
	if e.TLS == manifest.TLSSNI {
		err := relaySecondHello(client, counted{upstream, &s.counter[i].sent}, e.checkHello)
		var r *refusal
		if errors.As(err, &r) {
			s.counter[i].refused.Add(1)
			s.report.denied(i, e, "net-sni", "second "+r.Error(), r.asked)
			return err
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
	n, err := s.copy(upstream, client, ended)
	s.counter[i].sent.Add(n)
	return err
}

// copy moves bytes with splice(2) (io.Copy between TCP sockets) until src ends. Once the other direction has ended the
// read deadline is in force; it is moved for as long as there is progress.
func (s *server) copy(dst, src *net.TCPConn, ended *atomic.Bool) (int64, error) {
	var total int64
	for {
		n, err := io.Copy(dst, src)
		total += n
		if errors.Is(err, os.ErrDeadlineExceeded) && n > 0 && ended.Load() {
			src.SetReadDeadline(time.Now().Add(s.halfClosedTimeout))
			continue
		}
		return total, err
	}
}

// endOf passes the end of src on to dst and starts the clock of the opposite direction, which reads from dst. After a
// failure it ends both directions: half a connection is worth nothing.
func (s *server) endOf(err error, src, dst *net.TCPConn, ended *atomic.Bool) {
	if err == nil {
		ended.Store(true)
		dst.SetReadDeadline(time.Now().Add(s.halfClosedTimeout))
		err = dst.CloseWrite()
	}
	if err != nil {
		reset(src)
		reset(dst)
	}
}

// refuse ends a connection whose hello may not pass: an alert that a TLS library turns into a message, then the end.
func (s *server) refuse(i int, e Endpoint, client *net.TCPConn, err error) {
	s.counter[i].refused.Add(1)
	var r *refusal
	switch {
	case errors.As(err, &r):
		s.report.denied(i, e, "net-sni", r.Error(), r.asked)
	case errors.Is(err, os.ErrDeadlineExceeded):
		r = &refusal{reason: fmt.Sprintf("not complete after %v", s.helloTimeout)}
		s.report.denied(i, e, "net-sni", r.Error(), "")
	default: // the client left: connection pools open connections they never use
		reset(client)
		return
	}
	if r.alert == alertNone {
		reset(client)
		return
	}
	client.SetDeadline(time.Now().Add(time.Second))
	client.Write([]byte{recordAlert, 3, 1, 0, 2, 2 /* fatal */, r.alert})
	client.CloseWrite()
	// Closing with unread data in the socket sends RST, which would overtake the alert.
	io.CopyN(io.Discard, client, 4*maxHelloBytes)
	client.Close()
}

// counted is a writer that counts.
type counted struct {
	io.Writer
	n *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n.Add(int64(n))
	return n, err
}
