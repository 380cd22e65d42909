// Package relay carries the connections of a domain to the endpoints its manifest allows, and to nothing else.
//
// Each endpoint is a listening socket inside the domain's network namespace, handed to the relay as a descriptor. The
// relay itself lives in the host's network namespace, as a user of its own without capabilities. It promises that a
// connection accepted on an endpoint reaches that endpoint's upstream and no other address, that an upstream name which
// resolves into the host or its private network is not followed (rebind.go), and, for TLS endpoints, that the
// ClientHello asks for the endpoint's name in the clear (hello.go).
//
// It does not cover what travels inside TLS. The Host header, the API key and the tenant behind an allowed name are the
// upstream's to judge. It logs addresses and names, never data. Names are resolved with the host's own configuration
// by Go's resolver: the binary is built without cgo so that no NSS module is loaded into it.
package relay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"strconv"

	"github.com/sharness/sharness/manifest"
)

// MaxConfigBytes bounds the encoded Config.
const MaxConfigBytes = 1 << 20

// Config is everything a relay is told. It travels as JSON in a sealed memfd.
type Config struct {
	Session   string     `json:"session"`
	Endpoints []Endpoint `json:"endpoints"`
	Limits    Limits     `json:"limits"`
	Learn     *Learn     `json:"learn,omitempty"`

	LandlockABI int      `json:"landlock_abi"` // of the host; see Drop
	Seccomp     [][]byte `json:"seccomp"`      // filter.Compile of a helper with Files and Network
}

// Endpoint is one listener and the one upstream behind it.
type Endpoint struct {
	Name     string       `json:"name"`     // what the client must ask for; ASCII case and one trailing dot do not matter
	Port     uint16       `json:"port"`     // the port inside the domain, for events
	TLS      manifest.TLS `json:"tls"`      // sni or none
	Upstream string       `json:"upstream"` // host:port
}

// Limits bounds what a domain can make the relay hold. Zero means the default.
type Limits struct {
	MaxConns    int `json:"max_conns"`    // all endpoints together, default 256
	PerEndpoint int `json:"per_endpoint"` // default 64
}

const (
	defaultMaxConns    = 256
	defaultPerEndpoint = 64
)

// ReadConfig decodes and checks a Config. Unknown fields are errors: they would be rules that nobody keeps.
func ReadConfig(data []byte) (Config, error) {
	var c Config
	if len(data) > MaxConfigBytes {
		return c, fmt.Errorf("relay config: %d bytes, at most %d are read", len(data), MaxConfigBytes)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("relay config: %w", err)
	}
	if d.More() {
		return c, fmt.Errorf("relay config: data after the document")
	}
	return c, c.check()
}

func (c *Config) check() error {
	if c.Limits.MaxConns < 0 || c.Limits.PerEndpoint < 0 {
		return fmt.Errorf("relay config: negative limit")
	}
	if c.Limits.MaxConns == 0 {
		c.Limits.MaxConns = defaultMaxConns
	}
	if c.Limits.PerEndpoint == 0 {
		c.Limits.PerEndpoint = defaultPerEndpoint
	}
	for i, e := range c.Endpoints {
		if err := e.check(); err != nil {
			return fmt.Errorf("relay config: endpoint %d: %w", i, err)
		}
	}
	return nil
}

func (e Endpoint) check() error {
	if e.TLS != manifest.TLSSNI && e.TLS != manifest.TLSNone {
		return fmt.Errorf("tls %q is neither sni nor none", e.TLS)
	}
	if e.TLS == manifest.TLSSNI && !isHostName(canonicalName(e.Name)) {
		return fmt.Errorf("name %q cannot be a TLS server name", e.Name)
	}
	_, _, err := e.upstream()
	return err
}

func (e Endpoint) upstream() (host string, port uint16, err error) {
	host, p, err := net.SplitHostPort(e.Upstream)
	if err != nil {
		return "", 0, fmt.Errorf("upstream: %w", err)
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil || n == 0 || host == "" {
		return "", 0, fmt.Errorf("upstream %q is not host:port", e.Upstream)
	}
	return host, uint16(n), nil
}
