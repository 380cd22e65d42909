package manifest

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

var (
	dnsName  = regexp.MustCompile(`^([a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?$`)
	numeric  = regexp.MustCompile(`^(.*\.)?(0x[0-9a-f]*|[0-9]+)$`)
	forWords = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}$`)
)

// Loopback reports whether name is a literal address of the loopback interface, in its canonical spelling.
func Loopback(name string) bool {
	a, err := netip.ParseAddr(name)
	return err == nil && a.IsLoopback() && !a.Is4In6() && a.Zone() == "" && a.String() == name
}

func (c *checker) endpoints(list []Endpoint) {
	seen := map[string]int{}
	for i, e := range list {
		key := at("connect", i)
		c.endpointName(key+".name", e.Name)
		if e.Port == 0 {
			c.fail(key+".port", found("nothing", "a number from 1 to 65535"))
		}
		c.oneOf(key+".tls", string(e.TLS), string(TLSSNI), string(TLSNone))
		if e.TLS == TLSSNI && Loopback(e.Name) {
			c.fail(key+".tls", found("sni for a literal address, which no ClientHello names", "none"))
		}
		if e.For != "" && !forWords.MatchString(e.For) {
			c.fail(key+".for", found(quote(e.For), "a few plain words"))
		}
		id := fmt.Sprintf("%s:%d", e.Name, e.Port)
		if first, twice := seen[id]; twice {
			c.fail(key+".name", found(quote(id)+" a second time", "it once (first as "+at("connect", first)+")"))
		}
		seen[id] = i
	}
}

// EndpointName reports whether name can stand under connect as a DNS name: it is none that means this host, and no address.
func EndpointName(name string) bool {
	var c checker
	c.endpointName("", name)
	return c.first == nil && !Loopback(name)
}

func (c *checker) endpointName(key, name string) {
	if Loopback(name) {
		return
	}
	const want = "a DNS name in lower case, or a loopback address"
	a, err := netip.ParseAddr(strings.Trim(name, "[]"))
	switch {
	case name == "":
		c.fail(key, found("nothing", want))
	case err == nil && a.Unmap().IsLoopback():
		c.fail(key, found(quote(name), "the address as "+a.Unmap().WithZone("").String()))
	case err == nil, numeric.MatchString(name):
		c.fail(key, found(quote(name)+" (the relay maps a name in the view's hosts file and checks it in TLS; an address has none)", want))
	case name == "localhost", strings.HasSuffix(name, ".localhost"):
		c.fail(key, found(quote(name)+" (inside, it is the view's own loopback)", "127.0.0.1"))
	case strings.Contains(name, "*"):
		c.fail(key, found(quote(name)+" (each endpoint is one listener with one upstream)", "one name without *"))
	case strings.HasSuffix(name, "."):
		c.fail(key, found(quote(name), "the name without the dot at its end"))
	case len(name) > 253, !dnsName.MatchString(name):
		c.fail(key, found(quote(name), want))
	}
}
