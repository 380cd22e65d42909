package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/sharness/sharness/manifest"
)

func TestAddressesOfTheHostAndItsNetworkAreNotPublic(t *testing.T) {
	for _, s := range []string{
		"127.0.0.1", "127.9.9.9", "0.0.0.0", "0.1.2.3", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1",
		"169.254.169.254", "100.100.100.200", "192.0.0.192", "198.18.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1",
		"::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:0:7f00:1",
		"fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1",
		"64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2001::1",
	} {
		if isPublic(netip.MustParseAddr(s)) {
			t.Errorf("%s is taken for public", s)
		}
	}
	for _, s := range []string{"1.1.1.1", "172.32.0.1", "100.128.0.1", "160.79.104.10", "2606:4700::6810:1",
		"64:ff9b::101:101", "2002:101:101::1", "::ffff:1.1.1.1"} {
		if !isPublic(netip.MustParseAddr(s)) {
			t.Errorf("%s is not taken for public", s)
		}
	}
}

// TestNameThatResolvesToTheHostIsNotFollowed uses localhost, which every resolver answers with loopback.
func TestNameThatResolvesToTheHostIsNotFollowed(t *testing.T) {
	_, port, _ := net.SplitHostPort(untouched(t))
	for _, host := range []string{"localhost", "0.0.0.0", "[::]", "169.254.169.254", "10.0.0.1"} {
		e := Endpoint{Name: testName, TLS: manifest.TLSNone, Upstream: host + ":" + port}
		c, err := e.dial(context.Background())
		if !errors.Is(err, errRebind) {
			t.Errorf("%s: got %v, want errRebind", host, err)
		}
		if c != nil {
			c.Close()
		}
	}
}

func TestLoopbackLiteralIsReached(t *testing.T) {
	e := Endpoint{Name: "127.0.0.1", TLS: manifest.TLSNone, Upstream: upstream(t, echo)}
	c, err := e.dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
