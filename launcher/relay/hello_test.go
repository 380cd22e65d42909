package relay

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

// hello describes a ClientHello to build. Fields hold raw bytes so that malformed ones can be written down too.
type hello struct {
	extensions []extension
	tail       []byte // after the extensions
}

type extension struct {
	id   uint16
	data []byte
}

func (h hello) body() []byte {
	b := append([]byte{3, 3}, make([]byte, 32)...)
	b = append(b, 0)                   // session id
	b = append(b, 0, 2, 0x13, 1, 1, 0) // one suite, null compression
	var exts []byte
	for _, e := range h.extensions {
		exts = binary.BigEndian.AppendUint16(exts, e.id)
		exts = append(binary.BigEndian.AppendUint16(exts, uint16(len(e.data))), e.data...)
	}
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(exts))), exts...)
	return append(b, h.tail...)
}

// records cuts the handshake message into records of at most size payload bytes.
func (h hello) records(size int) []byte {
	body := h.body()
	msg := append([]byte{handshakeClientHello, 0, byte(len(body) >> 8), byte(len(body))}, body...)
	return records(msg, size)
}

func records(msg []byte, size int) []byte {
	var out []byte
	for len(msg) > 0 {
		n := min(size, len(msg))
		out = append(out, recordHandshake, 3, 1, byte(n>>8), byte(n))
		out = append(out, msg[:n]...)
		msg = msg[n:]
	}
	return out
}

func names(list ...string) extension {
	var l []byte
	for _, n := range list {
		l = append(l, 0)
		l = append(binary.BigEndian.AppendUint16(l, uint16(len(n))), n...)
	}
	return extension{extServerName, append(binary.BigEndian.AppendUint16(nil, uint16(len(l))), l...)}
}

func TestHelloIsHeldToTheEndpointsName(t *testing.T) {
	e := Endpoint{Name: "kite.example.test", TLS: "sni", Upstream: "kite.example.test:443"}
	cases := []struct {
		name  string
		exts  []extension
		alert byte // 0: passes
	}{
		{"same", []extension{names("kite.example.test")}, 0},
		{"other case", []extension{names("KITE.Example.Test")}, 0},
		{"trailing dot", []extension{names("kite.example.test.")}, 0},
		{"two dots", []extension{names("kite.example.test..")}, alertUnrecognizedName},
		{"another", []extension{names("other.example.test")}, alertUnrecognizedName},
		{"subdomain", []extension{names("a.kite.example.test")}, alertUnrecognizedName},
		{"NUL after", []extension{names("kite.example.test\x00.evil.test")}, alertUnrecognizedName},
		// strings.EqualFold would take U+212A for k.
		{"Kelvin sign", []extension{names("\u212aite.example.test")}, alertUnrecognizedName},
		{"none", nil, alertMissingExtension},
		{"empty list", []extension{names()}, alertIllegalParameter},
		{"empty name", []extension{names("")}, alertIllegalParameter},
		{"several names", []extension{names("kite.example.test", "other.example.test")}, alertIllegalParameter},
		{"same name twice", []extension{names("kite.example.test", "kite.example.test")}, alertIllegalParameter},
		{"extension twice", []extension{names("kite.example.test"), names("other.example.test")}, alertIllegalParameter},
		{"any extension twice", []extension{names("kite.example.test"), {5, nil}, {5, nil}}, alertIllegalParameter},
		{"other name type", []extension{{extServerName, []byte{0, 4, 1, 0, 1, 'a'}}}, alertIllegalParameter},
		{"bytes after the list", []extension{{extServerName, append(names("kite.example.test").data, 0)}}, alertIllegalParameter},
		{"ECH", []extension{names("kite.example.test"), {0xfe0d, []byte{0}}}, alertIllegalParameter},
		{"ECH in front", []extension{{0xfe0d, []byte{0}}, names("kite.example.test")}, alertIllegalParameter},
		{"ECH draft", []extension{names("kite.example.test"), {0xfe0a, nil}}, alertIllegalParameter},
		{"ESNI", []extension{names("kite.example.test"), {0xffce, nil}}, alertIllegalParameter},
		{"early data", []extension{names("kite.example.test"), {extEarlyData, nil}}, alertIllegalParameter},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, body, err := readHello(bytes.NewReader(hello{extensions: c.exts}.records(1000)), nil)
			if err != nil {
				t.Fatalf("readHello: %v", err)
			}
			err = e.checkHello(body)
			var r *refusal
			errors.As(err, &r)
			switch {
			case c.alert == 0 && err != nil:
				t.Errorf("got %v, want it to pass", err)
			case c.alert != 0 && (r == nil || r.alert != c.alert):
				t.Errorf("got %v (%+v), want alert %d", err, r, c.alert)
			}
		})
	}
}

func TestHelloIsReadToItsLastByteAndNoFurther(t *testing.T) {
	want := hello{extensions: []extension{names("kite.example.test"), {21, make([]byte, 1500)}}}
	for _, size := range []int{1 << 14, 700, 100, 5, 1} {
		in := want.records(size)
		r := bytes.NewReader(append(bytes.Clone(in), "next"...))
		raw, body, err := readHello(iotest.OneByteReader(r), nil)
		if err != nil {
			t.Fatalf("records of %d bytes: %v", size, err)
		}
		if !bytes.Equal(raw, in) || !bytes.Equal(body, want.body()) {
			t.Errorf("records of %d bytes: the hello came back changed", size)
		}
		if rest, _ := io.ReadAll(r); string(rest) != "next" {
			t.Errorf("records of %d bytes: %d bytes left, want 4", size, len(rest))
		}
	}
}

func TestWhatIsNotAHelloIsRefused(t *testing.T) {
	ok := hello{extensions: []extension{names("kite.example.test")}}
	body := ok.body()
	cases := []struct {
		name string
		in   []byte
	}{
		{"plain HTTP", []byte("GET / HTTP/1.1\r\n\r\n")},
		{"one byte of HTTP", []byte("G")},
		{"SSLv2 hello", []byte{0x80, 0x2e, 1, 3, 1}},
		{"alert", []byte{recordAlert, 3, 1, 0, 2, 2, 0}},
		{"record version 4", []byte{recordHandshake, 4, 0, 0, 1, 1}},
		{"empty record", []byte{recordHandshake, 3, 1, 0, 0}},
		{"ServerHello", records([]byte{2, 0, 0, 0}, 99)},
		{"other record amid the hello", append(ok.records(20)[:25], "\x15\x03\x01\x00\x02\x02\x00"...)},
		{"two messages in a record", records(append(append([]byte{1, 0, 0, byte(len(body))}, body...), 1, 0, 0, 0), 1000)},
		{"longer than a hello may be", append(records([]byte{1, 0xff, 0xff, 0xff}, 99), records(make([]byte, 16000), 16000)...)},
		{"record longer than the bound", []byte{recordHandshake, 3, 1, 0x40, 0}},
		{"many tiny records", hello{extensions: []extension{names("kite.example.test"), {21, make([]byte, 4000)}}}.records(1)},
	}
	for _, c := range cases {
		_, _, err := readHello(bytes.NewReader(c.in), nil)
		var r *refusal
		if !errors.As(err, &r) {
			t.Errorf("%s: got %v, want a refusal", c.name, err)
		}
	}
	for _, bad := range [][]byte{nil, body[:10], body[:40], body[:len(body)-1], append(bytes.Clone(body), 0)} {
		if name, err := serverName(bad); err == nil {
			t.Errorf("body %x: got %q, want a refusal", bad, name)
		}
	}
}

// TestHellosOfRealClientsAreRead uses hellos recorded from Node 20 and from curl on OpenSSL 3, and crypto/tls's own.
func TestHellosOfRealClientsAreRead(t *testing.T) {
	for _, in := range realHellos(t) {
		_, body, err := readHello(bytes.NewReader(in), nil)
		if err != nil {
			t.Fatal(err)
		}
		if name, err := serverName(body); err != nil || name != "api.example.test" {
			t.Errorf("got %q, %v, want api.example.test", name, err)
		}
	}
}

func realHellos(t testing.TB) [][]byte {
	files, err := filepath.Glob("testdata/hello-*.bin")
	if err != nil || len(files) < 2 {
		t.Fatalf("recorded hellos: %v, %v", files, err)
	}
	var out [][]byte
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, data)
	}
	return append(out, goHello(t, "api.example.test"))
}

// goHello is what crypto/tls sends first.
func goHello(t testing.TB, name string) []byte {
	a, b := net.Pipe()
	go func() {
		tls.Client(a, &tls.Config{ServerName: name}).Handshake()
		a.Close()
	}()
	buf := make([]byte, maxHelloBytes)
	n, err := b.Read(buf)
	b.Close()
	if err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}

func TestSecondHelloIsHeldToTheSameName(t *testing.T) {
	e := Endpoint{Name: "kite.example.test"}
	good := hello{extensions: []extension{names("kite.example.test")}}.records(1000)
	bad := hello{extensions: []extension{names("other.example.test")}}
	ccs, warning := []byte{recordChangeCipherSpec, 3, 3, 0, 1, 1}, []byte{recordAlert, 3, 3, 0, 2, 1, 90}
	data := []byte{23, 3, 3, 0, 3, 'a', 'b', 'c'}
	keyExchange := records([]byte{16, 0, 0, 1, 0}, 99)
	cases := []struct {
		name    string
		in      [][]byte
		refused bool
		passed  int // records that reach the upstream
	}{
		{"application data", [][]byte{ccs, data}, false, 2},
		{"TLS 1.2 key exchange", [][]byte{keyExchange}, false, 1},
		{"second hello", [][]byte{ccs, good, data}, false, 3},
		{"other name", [][]byte{bad.records(1000)}, true, 0},
		{"other name after ChangeCipherSpec", [][]byte{ccs, bad.records(1000)}, true, 1},
		{"other name after a warning", [][]byte{warning, bad.records(1000)}, true, 1},
		{"other name in pieces", [][]byte{bad.records(1)}, true, 0},
		{"third hello", [][]byte{good, bad.records(1000)}, true, 1},
		{"ECH", [][]byte{hello{extensions: []extension{names("kite.example.test"), {0xfe0d, nil}}}.records(99)}, true, 0},
		{"not TLS", [][]byte{[]byte("GET / HTTP/1.1\r\n")}, true, 0},
	}
	for _, c := range cases {
		var out bytes.Buffer
		err := relaySecondHello(iotest.OneByteReader(bytes.NewReader(bytes.Join(c.in, nil))), &out, e.checkHello)
		var r *refusal
		if errors.As(err, &r) != c.refused || (err != nil) != c.refused {
			t.Errorf("%s: got %v, want refused %v", c.name, err, c.refused)
		}
		if want := bytes.Join(c.in[:c.passed], nil); !bytes.Equal(out.Bytes(), want) {
			t.Errorf("%s: passed %x, want %x", c.name, out.Bytes(), want)
		}
	}
}

func FuzzClientHello(f *testing.F) {
	for _, h := range realHellos(f) {
		f.Add(h)
	}
	f.Add(hello{extensions: []extension{names("kite.example.test"), {0xfe0d, []byte{0}}}}.records(7))
	f.Add(hello{extensions: []extension{names("kite.example.test", "b")}, tail: []byte{0}}.records(1))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		raw, body, err := readHello(bytes.NewReader(in), nil)
		if len(raw) > maxHelloBytes {
			t.Fatalf("read %d bytes", len(raw))
		}
		if err != nil {
			return
		}
		if !bytes.HasPrefix(in, raw) {
			t.Fatal("the bytes to pass on are not the bytes that came")
		}
		name, err := serverName(body)
		if err != nil {
			return
		}
		// What passes holds the name in the clear, exactly once as a server name.
		if name == "" || !strings.Contains(string(body), name) {
			t.Fatalf("name %q is not in the hello", name)
		}
		relaySecondHello(bytes.NewReader(in), io.Discard, Endpoint{Name: name}.checkHello)
	})
}
