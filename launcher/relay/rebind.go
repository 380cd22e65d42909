package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

const (
	dialTimeout = 10 * time.Second
	// Keep-alive finds peers that are gone; nothing else ends an idle connection, because a model may think for long.
	keepAliveIdle = 15 * time.Second
)

// errRebind marks an upstream address that the manifest cannot have meant.
var errRebind = errors.New("address is not on the public internet")

// notPublic lists what an upstream name must not resolve to: the host, its neighbours, and the metadata services of
// clouds, which hand credentials to whoever connects. Whoever answers for the name in DNS would otherwise choose which
// of the host's own services a domain talks to. Source: the IANA special-purpose address registries.
var notPublic = prefixes(
	"0.0.0.0/8",       // this host: connect reaches loopback
	"10.0.0.0/8",      // private
	"100.64.0.0/10",   // carrier NAT, overlay networks, a cloud's metadata (100.100.100.200)
	"127.0.0.0/8",     // loopback
	"169.254.0.0/16",  // link-local, metadata (169.254.169.254)
	"172.16.0.0/12",   // private
	"192.0.0.0/24",    // protocol assignments, a cloud's metadata (192.0.0.192)
	"192.168.0.0/16",  // private
	"198.18.0.0/15",   // benchmarking, used inside networks
	"224.0.0.0/3",     // multicast, reserved, broadcast
	"::/96",           // unspecified, loopback, IPv4-compatible
	"64:ff9b:1::/48",  // local-use NAT64
	"fc00::/7",        // unique local, metadata (fd00:ec2::254)
	"fe80::/10",       // link-local
	"fec0::/10",       // site-local, deprecated but routed where configured
	"ff00::/8",        // multicast
	"2001::/32",       // Teredo carries an IPv4 address
	"::ffff:0:0:0/96", // IPv4-translated
)

// embedsIPv4 lists prefixes whose address holds an IPv4 address at a byte offset: it is judged instead.
var embedsIPv4 = []struct {
	prefix netip.Prefix
	offset int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12}, // NAT64, RFC 6052
	{netip.MustParsePrefix("2002::/16"), 2},     // 6to4, RFC 3056
}

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func isPublic(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	for _, e := range embedsIPv4 {
		if e.prefix.Contains(ip) {
			b := ip.As16()
			ip = netip.AddrFrom4([4]byte(b[e.offset : e.offset+4]))
			break
		}
	}
	for _, p := range notPublic {
		if p.Contains(ip) {
			return false
		}
	}
	return ip.IsValid()
}

// dial connects to the endpoint's upstream. The address is judged between socket and connect (net.Dialer.Control), so
// that the address judged is the address used, for each one that happy eyeballs tries. An upstream written as a
// loopback literal is what its author meant and is not judged.
func (e Endpoint) dial(ctx context.Context) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	host, _, err := e.upstream()
	if err != nil {
		return nil, err
	}
	literal, err := netip.ParseAddr(host)
	loopback := err == nil && literal.Unmap().IsLoopback()
	d := net.Dialer{
		Resolver:        &net.Resolver{PreferGo: true},
		KeepAliveConfig: keepAlive,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			if loopback {
				return nil
			}
			return judge(address)
		},
	}
	// Multipath TCP would let the upstream name further addresses for the same connection.
	d.SetMultipathTCP(false)
	c, err := d.DialContext(ctx, "tcp", e.Upstream)
	if err != nil {
		return nil, err
	}
	conn := c.(*net.TCPConn)
	if !loopback && toItself(conn) {
		reset(conn)
		return nil, fmt.Errorf("%s is an address of this host: %w", conn.RemoteAddr(), errRebind)
	}
	return conn, nil
}

func judge(address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("upstream address: %w", err)
	}
	if !isPublic(ap.Addr()) {
		return fmt.Errorf("%s: %w", ap.Addr(), errRebind)
	}
	return nil
}

// toItself tells whether a connection ends on this host by one of its public addresses: the kernel then picks the
// destination as the source too. Nothing has been sent on it yet.
func toItself(c *net.TCPConn) bool {
	local, ok1 := c.LocalAddr().(*net.TCPAddr)
	remote, ok2 := c.RemoteAddr().(*net.TCPAddr)
	return !ok1 || !ok2 || local.IP.Equal(remote.IP)
}

var keepAlive = net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAliveIdle, Count: 4}
