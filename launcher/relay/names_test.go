package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sharness/sharness/event"
)

// learning is a relay that learns, with one port.
type learning struct {
	*testing.T
	dns  string
	port int
	end  func() ([]Told, []event.Event)
}

// learns starts one whose listener is on every address of loopback; dialed is what it was asked to reach.
func learns(t *testing.T, open bool, upstream string) (l learning, dialed func() []string) {
	t.Helper()
	dns, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	l = learning{T: t, dns: dns.LocalAddr().String(), port: tcp.Addr().(*net.TCPAddr).Port}
	sink, src := datagrams(t)
	var told bytes.Buffer
	config := Config{Session: "s", Learn: &Learn{Open: open, Ports: []uint16{80}}}
	if err := config.check(); err != nil {
		t.Fatal(err)
	}
	config.Endpoints = config.Learn.endpoints()
	s := newServer(config, newReporter(config, src, time.Hour))
	s.learned, s.fixed = newAsked(open, &told), 0
	var mu sync.Mutex
	var names []string
	s.dial = func(e Endpoint, ctx context.Context) (*net.TCPConn, error) {
		mu.Lock()
		names = append(names, e.Upstream)
		mu.Unlock()
		return Endpoint{Upstream: upstream}.dial(ctx)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done, answered := make(chan error, 1), make(chan struct{})
	go func() { done <- s.serve(ctx, []*net.TCPListener{tcp.(*net.TCPListener)}) }()
	go func() { s.learned.serve(dns); close(answered) }()
	l.end = func() ([]Told, []event.Event) {
		cancel()
		dns.Close()
		<-answered
		if err := <-done; err != nil {
			t.Error(err)
		}
		src.Close()
		all, err := ReadTold(&told)
		if err != nil {
			t.Error(err)
		}
		return all, read(t, sink)
	}
	return l, func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(names) }
}

// ask sends one query and returns the answer's code and address.
func (l learning) ask(name string, typ dnsmessage.Type) (dnsmessage.RCode, string) {
	l.Helper()
	c, err := net.Dial("udp", l.dns)
	if err != nil {
		l.Fatal(err)
	}
	defer c.Close()
	query, err := (&dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: typ, Class: dnsmessage.ClassINET}}}).Pack()
	if err != nil {
		l.Fatal(err)
	}
	for _, junk := range [][]byte{{}, query[:5], bytes.Repeat([]byte{0xff}, 600)} { // gets no answer, and harms nobody
		if _, err := c.Write(junk); err != nil {
			l.Fatal(err)
		}
	}
	if _, err := c.Write(query); err != nil {
		l.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	buf := make([]byte, 512)
	n, err := c.Read(buf)
	if err != nil {
		l.Fatalf("%s: %v", name, err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(buf[:n]); err != nil || m.ID != 7 || !m.Response {
		l.Fatalf("%s: %v %+v", name, err, m.Header)
	}
	if len(m.Answers) == 0 {
		return m.RCode, ""
	}
	a := m.Answers[0].Body.(*dnsmessage.AResource).A
	return m.RCode, net.IP(a[:]).String()
}

func (l learning) get(address string) string {
	l.Helper()
	c, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.ParseIP(address), Port: l.port})
	if errors.Is(err, syscall.ECONNRESET) {
		return "" // at once
	}
	if err != nil {
		l.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	_ = c.CloseWrite()
	data, _ := io.ReadAll(c) // a reset reads as nothing
	return string(data)
}

// says is a server that says one thing to everybody.
func says(t *testing.T, text string) string {
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
			_, _ = io.WriteString(c, text)
			c.Close()
		}
	}()
	return l.Addr().String()
}

func TestNamesAreToldAndKnownToNobody(t *testing.T) {
	l, dialed := learns(t, false, says(t, "hello"))
	for _, name := range []string{"a.example.", "A.Example.", "b.example."} {
		if code, address := l.ask(name, dnsmessage.TypeA); code != dnsmessage.RCodeNameError || address != "" {
			t.Errorf("%s: got %v %q, want that there is no such name", name, code, address)
		}
	}
	if got := l.get("127.64.0.1"); got != "" {
		t.Errorf("what a name would stand for says %q", got)
	}
	told, _ := l.end()
	var got []string
	for _, x := range told {
		got = append(got, x.Name)
	}
	if want := []string{"a.example", "b.example"}; !slices.Equal(got, want) || len(dialed()) > 0 {
		t.Errorf("told %q, want %q; reached %q", got, want, dialed())
	}
}

func TestOpenRelayCarriesToTheNameThatWasAskedFor(t *testing.T) {
	l, dialed := learns(t, true, says(t, "hello"))
	code, address := l.ask("a.example.", dnsmessage.TypeA)
	if code != dnsmessage.RCodeSuccess || !strings.HasPrefix(address, "127.64.") {
		t.Fatalf("got %v %q, want an address of its own", code, address)
	}
	if code, six := l.ask("a.example.", dnsmessage.TypeAAAA); code != dnsmessage.RCodeSuccess || six != "" {
		t.Errorf("AAAA: got %v %q, want that there is a name and no address", code, six)
	}
	if _, again := l.ask("A.EXAMPLE.", dnsmessage.TypeA); again != address {
		t.Errorf("got %s, then %s", address, again)
	}
	for range 2 {
		if got := l.get(address); got != "hello" {
			t.Errorf("the name's address says %q", got)
		}
	}
	// An address that was given out for nothing leads nowhere, and neither does what means this host.
	if got := l.get("127.64.9.9"); got != "" {
		t.Errorf("another address says %q", got)
	}
	for _, name := range []string{"127.0.0.1.", "10.0.0.1.", "localhost.", "x.localhost.", "0x7f000001.", "*.example.", "7.113.0.203.in-addr.arpa.", "."} {
		if code, address := l.ask(name, dnsmessage.TypeA); code != dnsmessage.RCodeNameError || address != "" {
			t.Errorf("%s: got %v %q, want that there is no such name", name, code, address)
		}
	}
	told, events := l.end()
	if got, want := dialed(), []string{"a.example:80", "a.example:80"}; !slices.Equal(got, want) {
		t.Errorf("reached %q, want %q", got, want)
	}
	want := []Told{{Name: "a.example", Address: told[0].Address}, {Name: "a.example", Port: 80, TLS: "none", Reached: true}}
	if !slices.Equal(told, want) || told[0].Address.String() != address {
		t.Errorf("told %+v, want %+v", told, want)
	}
	one(t, events, event.NetDenied, "net-host")
}

func TestOpenRelayDoesNotLeadIntoTheHost(t *testing.T) {
	l, _ := learns(t, true, "localhost:1") // as a name that its owner points there
	_, address := l.ask("rebind.example.", dnsmessage.TypeA)
	if got := l.get(address); got != "" {
		t.Errorf("got %q", got)
	}
	told, events := l.end()
	if len(told) != 2 || told[1].Reached {
		t.Errorf("told %+v, want that it was tried", told)
	}
	if e := one(t, events, event.NetDenied, "net-host"); e.Target.Resolved != "rebind.example:80" {
		t.Errorf("got %+v, want the name", e.Target)
	}
}

func TestNamesBeyondWhatIsKeptHaveNoAddress(t *testing.T) {
	var out bytes.Buffer
	a := newAsked(true, &out)
	for i := range maxLearnedNames + 5 {
		_, ok := a.address(strings.Repeat("x", 1+i%60) + "." + strings.Repeat("y", 1+i/60) + ".example")
		if ok != (i < maxLearnedNames) {
			t.Fatalf("name %d: %v", i, ok)
		}
	}
	if told, err := ReadTold(&out); err != nil || len(told) != maxLearnedNames {
		t.Errorf("%d told, %v", len(told), err)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 'a', 7, 'e', 'x', 'a', 'm', 'p', 'l', 'e', 0, 0, 1, 0, 1})
	f.Fuzz(func(t *testing.T, query []byte) {
		a := newAsked(true, io.Discard)
		out := a.answer(query)
		var m dnsmessage.Message
		if out != nil && (m.Unpack(out) != nil || !m.Response || len(m.Answers) > 1) {
			t.Errorf("%x is no answer to %x", out, query)
		}
	})
}
