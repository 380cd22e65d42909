package relay

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/manifest"
)

const testName = "kite.example.test"

// running is one relay with one endpoint.
type running struct {
	addr   string
	events func() []event.Event // ends the relay and returns what it reported
}

// start runs a relay in front of upstream. adjust may change the server before it begins.
func start(t *testing.T, kind manifest.TLS, upstream string, limits Limits, adjust func(*server)) running {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sink, src := datagrams(t)
	config := Config{Session: "s", Limits: limits,
		Endpoints: []Endpoint{{Name: testName, Port: 443, TLS: kind, Upstream: upstream}}}
	if err := config.check(); err != nil {
		t.Fatal(err)
	}
	s := newServer(config, newReporter(config, src, time.Hour))
	if adjust != nil {
		adjust(s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.serve(ctx, []*net.TCPListener{l.(*net.TCPListener)}) }()
	var once sync.Once
	var events []event.Event
	stop := func() []event.Event {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("serve: %v", err)
			}
			src.Close()
			events = read(t, sink)
		})
		return events
	}
	t.Cleanup(func() { stop() })
	return running{addr: l.Addr().String(), events: stop}
}

func datagrams(t *testing.T) (read, write net.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conns := make([]net.Conn, 2)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "events")
		if conns[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
		t.Cleanup(func() { conns[i].Close() })
	}
	return conns[0], conns[1]
}

func read(t *testing.T, sink net.Conn) []event.Event {
	var out []event.Event
	buf := make([]byte, event.MaxBytes)
	for {
		sink.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		n, err := sink.Read(buf)
		if err != nil {
			return out
		}
		var e event.Event
		if err := json.Unmarshal(buf[:n], &e); err != nil {
			t.Errorf("event %q: %v", buf[:n], err)
		}
		out = append(out, e)
	}
}

func one(t *testing.T, events []event.Event, want event.Type, door string) event.Event {
	t.Helper()
	var found []event.Event
	for _, e := range events {
		if e.Type == want && e.Door == door {
			found = append(found, e)
		}
	}
	if len(found) != 1 {
		t.Fatalf("got %d events %s %q in %+v, want one", len(found), want, door, events)
	}
	return found[0]
}

// tlsUpstream answers every line with itself; it accepts any server name, as a shared front would.
func tlsUpstream(t *testing.T, config *tls.Config) (addr string, clientConfig *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{testName, "other.example.test"},
		NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	config.Certificates = []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return upstream(t, func(c *net.TCPConn) {
		s := tls.Server(c, config)
		io.Copy(s, s)
		s.Close()
	}), &tls.Config{ServerName: testName, RootCAs: pool}
}

func upstream(t *testing.T, serve func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c.(*net.TCPConn))
			}()
		}
	}()
	return l.Addr().String()
}

func echo(c *net.TCPConn) { io.Copy(c, c) }

// untouched is an upstream that must not be reached.
func untouched(t *testing.T) string {
	return upstream(t, func(*net.TCPConn) { t.Error("the upstream was reached") })
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c.(*net.TCPConn)
}

// endOf connects and returns how that ends; the reset may come before connect has returned.
func endOf(addr string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	_, err = io.ReadAll(c)
	return err
}

func TestTLSReachesTheUpstreamEndToEnd(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		addr, config := tlsUpstream(t, &tls.Config{MaxVersion: version})
		r := start(t, manifest.TLSSNI, addr, Limits{}, nil)
		// The client verifies the upstream's certificate: nothing in between could have answered.
		c := tls.Client(dial(t, r.addr), config)
		want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		go func() {
			c.Write(want)
			c.CloseWrite()
		}()
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("TLS %#x: %d bytes came back, %v, want %d", version, len(got), err, len(want))
		}
		if n := len(r.events()); n != 1 {
			t.Errorf("got %d events, want only the counters at the end", n)
		}
	}
}

// TestHelloRetryRequestPasses makes the server ask for another key share, so that a second ClientHello crosses.
func TestHelloRetryRequestPasses(t *testing.T) {
	addr, config := tlsUpstream(t, &tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP521}})
	config.CurvePreferences = []tls.CurveID{tls.X25519, tls.CurveP521}
	r := start(t, manifest.TLSSNI, addr, Limits{}, nil)
	c := tls.Client(dial(t, r.addr), config)
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	if !c.ConnectionState().HelloRetryRequest {
		t.Error("the server did not ask for a second hello: the test shows nothing")
	}
}

func TestSideDoor_NetSNI(t *testing.T) {
	cases := []struct {
		name string
		send func(*net.TCPConn) error // returns the client's error
		want string                   // in that error
	}{
		{"another name", func(c *net.TCPConn) error {
			return tls.Client(c, &tls.Config{ServerName: "other.example.test"}).Handshake()
		}, "unrecognized name"},
		{"no name", func(c *net.TCPConn) error {
			return tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake()
		}, "missing extension"},
		{"encrypted name", func(c *net.TCPConn) error {
			c.Write(hello{extensions: []extension{names(testName), {0xfe0d, make([]byte, 200)}}}.records(1000))
			return alertOf(c)
		}, "illegal parameter"},
		{"huge hello", func(c *net.TCPConn) error {
			c.Write(records([]byte{1, 0, 0xff, 0xff}, 99))
			c.Write(records(make([]byte, 60000), 16000))
			return alertOf(c)
		}, "error decoding message"},
		{"plain HTTP", func(c *net.TCPConn) error {
			c.Write([]byte("GET / HTTP/1.1\r\nHost: " + testName + "\r\n\r\n"))
			_, err := io.ReadAll(c)
			return err
		}, "connection reset"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, manifest.TLSSNI, untouched(t), Limits{}, nil)
			err := c.send(dial(t, r.addr))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("client got %v, want %q", err, c.want)
			}
			e := one(t, r.events(), event.NetDenied, "net-sni")
			if e.Target.Resolved != testName+":443" || e.Detail == "" {
				t.Errorf("event %+v does not say what happened", e)
			}
		})
	}
}

// alertOf reads the alert the relay ends with, as crypto/tls would name it.
func alertOf(c *net.TCPConn) error {
	data, err := io.ReadAll(c)
	if err != nil {
		return err
	}
	if len(data) != 7 || data[0] != recordAlert || data[5] != 2 {
		return fmt.Errorf("answer %x is not a fatal alert", data)
	}
	return tls.AlertError(data[6])
}

// TestSecondHelloCannotChangeTheName is the same door after HelloRetryRequest: the first hello is right, and reaches
// the upstream; the second is not.
func TestSecondHelloCannotChangeTheName(t *testing.T) {
	seen := make(chan []byte, 1)
	r := start(t, manifest.TLSSNI, upstream(t, func(c *net.TCPConn) {
		data, _ := io.ReadAll(c)
		seen <- data
	}), Limits{}, nil)
	first := hello{extensions: []extension{names(testName)}}.records(1000)
	c := dial(t, r.addr)
	c.Write(first)
	c.Write(hello{extensions: []extension{names("other.example.test")}}.records(1000))
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want ECONNRESET", err)
	}
	if got := <-seen; len(got) > 0 && !bytes.Equal(got, first) {
		t.Errorf("the upstream saw %x after the first hello", got[min(len(got), len(first)):])
	}
	one(t, r.events(), event.NetDenied, "net-sni")
}

func TestHelloMayComeByteByByte(t *testing.T) {
	addr, config := tlsUpstream(t, &tls.Config{})
	r := start(t, manifest.TLSSNI, addr, Limits{}, nil)
	c := dial(t, r.addr)
	c.SetNoDelay(true)
	if err := tls.Client(byteWise{c}, config).Handshake(); err != nil {
		t.Error(err)
	}
}

type byteWise struct{ *net.TCPConn }

func (b byteWise) Write(p []byte) (int, error) {
	for i := range p {
		if _, err := b.TCPConn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

func TestSlowHelloMeetsTheDeadline(t *testing.T) {
	r := start(t, manifest.TLSSNI, untouched(t), Limits{}, func(s *server) { s.helloTimeout = 100 * time.Millisecond })
	c := dial(t, r.addr)
	c.Write([]byte{recordHandshake, 3})
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want ECONNRESET", err)
	}
	one(t, r.events(), event.NetDenied, "net-sni")
}

func TestHalfCloseIsPassedOn(t *testing.T) {
	// The upstream answers only once it has read everything.
	addr := upstream(t, func(c *net.TCPConn) {
		data, _ := io.ReadAll(c)
		fmt.Fprintf(c, "%d bytes", len(data))
	})
	r := start(t, manifest.TLSNone, addr, Limits{}, nil)
	c := dial(t, r.addr)
	c.Write(make([]byte, 100000))
	c.CloseWrite()
	if got, err := io.ReadAll(c); err != nil || string(got) != "100000 bytes" {
		t.Errorf("got %q, %v", got, err)
	}
	end := one(t, r.events(), event.Heartbeat, "")
	if end.Data["bytes_sent"] != 100000.0 || end.Data["bytes_received"] != 12.0 {
		t.Errorf("counters %v, want 100000 bytes out and 12 in", end.Data)
	}
}

func TestHalfClosedConnectionThatMovesNothingIsGivenUp(t *testing.T) {
	release := make(chan struct{})
	addr := upstream(t, func(c *net.TCPConn) {
		for range 5 { // progress keeps it open beyond the timeout
			c.Write([]byte("x"))
			time.Sleep(60 * time.Millisecond)
		}
		<-release
	})
	defer close(release)
	r := start(t, manifest.TLSNone, addr, Limits{}, func(s *server) { s.halfClosedTimeout = 100 * time.Millisecond })
	c := dial(t, r.addr)
	c.CloseWrite()
	got, err := io.ReadAll(c)
	if string(got) != "xxxxx" || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %q, %v, want all of the answer and then ECONNRESET", got, err)
	}
}

func TestResetIsPassedOn(t *testing.T) {
	addr := upstream(t, func(c *net.TCPConn) {
		c.Read(make([]byte, 1))
		c.SetLinger(0)
	})
	r := start(t, manifest.TLSNone, addr, Limits{}, nil)
	c := dial(t, r.addr)
	c.Write([]byte("x"))
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want ECONNRESET", err)
	}
}

func TestUnreachableUpstreamIsAResetAndOneEvent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	r := start(t, manifest.TLSNone, l.Addr().String(), Limits{}, nil)
	for range 5 {
		if err := endOf(r.addr); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("got %v, want ECONNRESET", err)
		}
	}
	var counts []uint64
	for _, e := range r.events() {
		if e.Type == event.NetFailed && e.Cause == "upstream" && e.Door == "" {
			counts = append(counts, e.Count)
		}
	}
	if len(counts) != 2 || counts[0] != 1 || counts[1] != 4 {
		t.Errorf("counts %v, want 1 at once and the other 4 together", counts)
	}
}

func TestLimitsEndInAReset(t *testing.T) {
	r := start(t, manifest.TLSNone, upstream(t, echo), Limits{PerEndpoint: 8}, nil)
	for range 8 {
		c := dial(t, r.addr)
		c.Write([]byte("x"))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := endOf(r.addr); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("ninth connection: got %v, want ECONNRESET", err)
	}
	one(t, r.events(), event.LimitHit, "")
}

func TestManyConnectionsLeaveNothingBehind(t *testing.T) {
	var s *server
	r := start(t, manifest.TLSNone, upstream(t, echo), Limits{}, func(it *server) { s = it })
	for range 10 {
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() {
				c := dial(t, r.addr)
				c.Write([]byte("hello"))
				c.CloseWrite()
				if got, err := io.ReadAll(c); err != nil || string(got) != "hello" {
					t.Errorf("got %q, %v", got, err)
				}
				c.Close()
			})
		}
		wg.Wait()
	}
	r.events()
	if n, open := s.counter[0].accepted.Load(), s.total.Load(); n != 400 || open != 0 || len(s.conns) != 0 {
		t.Errorf("accepted %d, open %d, tracked %d; want 400, 0, 0", n, open, len(s.conns))
	}
}
