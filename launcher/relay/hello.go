package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A refusal is a ClientHello that must not reach the upstream, and the TLS alert that says so.
type refusal struct {
	alert  byte // RFC 8446 §6; alertNone: the peer does not speak TLS
	reason string
	asked  string // the server name, when there is one
}

func (r *refusal) Error() string { return "client hello: " + r.reason }

// Alert descriptions, RFC 8446 §6.2.
const (
	alertNone              = 0
	alertUnexpectedMessage = 10
	alertIllegalParameter  = 47
	alertDecodeError       = 50
	alertMissingExtension  = 109
	alertUnrecognizedName  = 112
)

// Extensions the relay has an opinion on.
const (
	extServerName = 0
	// extEarlyData is refused because 0-RTT lets a second, unseen ClientHello follow: a server that answers
	// HelloRetryRequest skips the early data and reads the next hello, whose name may be another one.
	extEarlyData = 42
)

// hidesName tells extensions that encrypt the true server name: ECH (0xfe0d, RFC 9849) and its drafts (0xfe08 and up),
// ESNI (0xffce). Browsers send 0xfe0d as GREASE too, and one cannot be told from the other; agents on Node (OpenSSL)
// and Bun (BoringSSL, ECH GREASE left off) do not send it, nor do curl, Go, Python and rustls by default.
func hidesName(ext uint16) bool {
	return ext >= 0xfe08 && ext <= 0xfe0d || ext == 0xffce
}

var errShort = errors.New("truncated")

// serverName returns the one server name that a ClientHello body (RFC 8446 §4.1.2, without the handshake header) asks
// for. Everything a server could read differently is refused: several names, repeated extensions, trailing bytes.
func serverName(body []byte) (string, error) {
	exts, err := helloExtensions(body)
	if err != nil {
		return "", &refusal{alert: alertDecodeError, reason: err.Error()}
	}
	var name []byte
	seen := map[uint16]bool{}
	for len(exts) > 0 {
		var data []byte
		if len(exts) < 4 {
			return "", &refusal{alert: alertDecodeError, reason: "extensions: truncated"}
		}
		ext := binary.BigEndian.Uint16(exts)
		data, exts, err = vector16(exts[2:])
		if err != nil {
			return "", &refusal{alert: alertDecodeError, reason: fmt.Sprintf("extension %#04x: %v", ext, err)}
		}
		if seen[ext] {
			return "", &refusal{alert: alertIllegalParameter, reason: fmt.Sprintf("extension %#04x twice", ext)}
		}
		seen[ext] = true
		switch {
		case hidesName(ext):
			return "", &refusal{alert: alertIllegalParameter, reason: "the server name is encrypted (ECH)"}
		case ext == extEarlyData:
			return "", &refusal{alert: alertIllegalParameter, reason: "early data (0-RTT) is not relayed"}
		case ext == extServerName:
			if name, err = oneName(data); err != nil {
				return "", &refusal{alert: alertIllegalParameter, reason: "server name: " + err.Error()}
			}
		}
	}
	if !seen[extServerName] {
		return "", &refusal{alert: alertMissingExtension, reason: "no server name"}
	}
	return string(name), nil
}

// helloExtensions steps over the fields in front and returns the extensions, which may be absent.
func helloExtensions(b []byte) ([]byte, error) {
	if len(b) < 2+32 {
		return nil, errShort
	}
	b = b[2+32:] // legacy_version, random
	session, b, err := vector8(b)
	if err != nil || len(session) > 32 {
		return nil, fmt.Errorf("session id: bad length")
	}
	suites, b, err := vector16(b)
	if err != nil || len(suites) == 0 || len(suites)%2 != 0 {
		return nil, fmt.Errorf("cipher suites: bad length")
	}
	methods, b, err := vector8(b)
	if err != nil || len(methods) == 0 {
		return nil, fmt.Errorf("compression methods: bad length")
	}
	if len(b) == 0 {
		return nil, nil
	}
	exts, rest, err := vector16(b)
	if err != nil || len(rest) != 0 {
		return nil, fmt.Errorf("extensions: bad length")
	}
	return exts, nil
}

// oneName reads a ServerNameList (RFC 6066 §3) of exactly one host_name.
func oneName(data []byte) ([]byte, error) {
	list, rest, err := vector16(data)
	if err != nil || len(rest) != 0 {
		return nil, fmt.Errorf("list: bad length")
	}
	if len(list) < 1 {
		return nil, fmt.Errorf("empty list")
	}
	if list[0] != 0 {
		return nil, fmt.Errorf("type %d is not a host name", list[0])
	}
	name, rest, err := vector16(list[1:])
	if err != nil || len(name) == 0 {
		return nil, fmt.Errorf("bad length")
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("several names")
	}
	return name, nil
}

func vector8(b []byte) (v, rest []byte, err error) {
	if len(b) < 1 || len(b)-1 < int(b[0]) {
		return nil, nil, errShort
	}
	n := 1 + int(b[0])
	return b[1:n], b[n:], nil
}

func vector16(b []byte) (v, rest []byte, err error) {
	if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
		return nil, nil, errShort
	}
	n := 2 + int(binary.BigEndian.Uint16(b))
	return b[2:n], b[n:], nil
}

// canonicalName lowers ASCII letters and takes one trailing dot away. Unicode folding would be wrong here: it makes the
// Kelvin sign equal to k, and what a server makes of such a name is not ours to guess.
func canonicalName(name string) string {
	b := []byte(name)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	if n := len(b); n > 1 && b[n-1] == '.' {
		b = b[:n-1]
	}
	return string(b)
}

// isHostName tells whether a canonical name has only the bytes of a DNS name.
func isHostName(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	for _, c := range []byte(name) {
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return true
}
