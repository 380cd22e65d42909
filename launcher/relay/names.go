package relay

import (
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sharness/sharness/manifest"
)

// Learn makes a relay the domain's name server too, for a session that learns. It tells which names are asked for, and knows none:
// only when it is Open does a name get an address, and is what connects to that address carried to that name.
type Learn struct {
	Open  bool     `json:"open"`
	Ports []uint16 `json:"ports"` // on which it carries; 443 demands TLS, as an endpoint does
}

// Learning are the descriptors that go with Learn: a UDP socket, a listener on every address for each port, and where it tells.
type Learning struct {
	DNS       net.PacketConn
	Listeners []*net.TCPListener
	Told      io.Writer
}

// Told is one line of what a relay tells of a name, each once: that it was asked for, or that something connected to it.
type Told struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address,omitzero"` // that stands for it inside
	Port    uint16     `json:"port,omitempty"`
	TLS     string     `json:"tls,omitempty"`
	Reached bool       `json:"reached,omitempty"` // its upstream answered
}

// ReadTold reads what a relay tells, to its end.
func ReadTold(r io.Reader) ([]Told, error) {
	d := json.NewDecoder(io.LimitReader(r, maxToldBytes))
	d.DisallowUnknownFields()
	var all []Told
	for {
		var t Told
		err := d.Decode(&t)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		if manifest.EndpointName(t.Name) && (t.TLS == "" || t.TLS == string(manifest.TLSSNI) || t.TLS == string(manifest.TLSNone)) {
			all = append(all, t)
		}
	}
}

// Bounds of what is learned: names, and what is told of them.
const (
	maxLearnedNames = 1 << 10
	maxToldBytes    = 4 << 20
)

// endpoints stand for the listeners; the name follows from the address.
func (l *Learn) endpoints() []Endpoint {
	var all []Endpoint
	for _, p := range l.Ports {
		all = append(all, Endpoint{Name: "*", Port: p, TLS: tlsOf(p)})
	}
	return all
}

func tlsOf(port uint16) manifest.TLS {
	if port == 443 {
		return manifest.TLSSNI
	}
	return manifest.TLSNone
}

// asked is what was asked for.
type asked struct {
	open bool
	out  *json.Encoder

	mu     sync.Mutex
	byName map[string]netip.Addr
	byAddr map[netip.Addr]string
	told   map[Told]bool
}

func newAsked(open bool, out io.Writer) *asked {
	return &asked{open: open, out: json.NewEncoder(out), byName: map[string]netip.Addr{}, byAddr: map[netip.Addr]string{}, told: map[Told]bool{}}
}

// address is what stands for a name from now on: an address of loopback of its own.
func (a *asked) address(name string) (netip.Addr, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if addr, ok := a.byName[name]; ok {
		return addr, true
	}
	if len(a.byName) >= maxLearnedNames {
		return netip.Addr{}, false
	}
	i := len(a.byName) + 1
	addr := netip.AddrFrom4([4]byte{127, 64, byte(i >> 8), byte(i)})
	a.byName[name], a.byAddr[addr] = addr, name
	a.tell(Told{Name: name, Address: addr})
	return addr, true
}

// tell writes what was not told before. mu is held.
func (a *asked) tell(t Told) {
	if !a.told[t] {
		a.told[t] = true
		_ = a.out.Encode(t) // whoever read it has gone: the session ends
	}
}

// carried tells of a connection. A nil a learns nothing.
func (a *asked) carried(e Endpoint, reached bool) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tell(Told{Name: e.Name, Port: e.Port, TLS: string(e.TLS), Reached: reached})
}

// endpoint is what a connection is to: that of the listener, or, where many share it, the name that the address stands for.
func (s *server) endpoint(i int, c *net.TCPConn) (Endpoint, bool) {
	e := s.config.Endpoints[i]
	if i < s.fixed {
		return e, true
	}
	local, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return e, false
	}
	s.learned.mu.Lock()
	defer s.learned.mu.Unlock()
	name, known := s.learned.byAddr[local.Addr().Unmap()]
	if known = known && s.learned.open; known {
		e.Name, e.Upstream = name, net.JoinHostPort(name, strconv.Itoa(int(e.Port)))
	}
	return e, known
}

// serve answers queries until the socket is closed.
func (a *asked) serve(c net.PacketConn) {
	buf := make([]byte, 1232) // what a query over UDP may have (EDNS)
	for {
		size, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		if answer := a.answer(buf[:size]); answer != nil {
			_, _ = c.WriteTo(answer, from) // who does not take it asks again
		}
	}
}

// answer is nil for what is no query.
func (a *asked) answer(query []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil || h.Response {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	h = dnsmessage.Header{ID: h.ID, Response: true, OpCode: h.OpCode, RecursionDesired: h.RecursionDesired, RecursionAvailable: true}
	name := canonicalName(q.Name.String())
	var addr netip.Addr
	// Nothing that a manifest could not list: no address or what is looked up to name one, and no name of this host.
	ok := q.Class == dnsmessage.ClassINET && manifest.EndpointName(name) && !strings.HasSuffix(name, ".arpa")
	if ok {
		addr, ok = a.address(name)
	}
	if !ok || !a.open {
		h.RCode = dnsmessage.RCodeNameError
	}
	b := dnsmessage.NewBuilder(nil, h)
	if b.StartQuestions() != nil || b.Question(q) != nil || b.StartAnswers() != nil {
		return nil
	}
	if h.RCode == dnsmessage.RCodeSuccess && q.Type == dnsmessage.TypeA {
		if b.AResource(dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET}, dnsmessage.AResource{A: addr.As4()}) != nil {
			return nil
		}
	}
	out, err := b.Finish()
	if err != nil {
		return nil
	}
	return out
}
