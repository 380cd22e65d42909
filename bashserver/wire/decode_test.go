package wire

import (
	"bufio"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// other is the decoder of sharness-box, built so that it ends when it reads or writes where it must not.
type other struct {
	in  io.Writer
	out *bufio.Reader
}

func newOther(t testing.TB) *other {
	t.Helper()
	program := filepath.Join(t.TempDir(), "decode")
	cc := exec.Command("gcc", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wall", "-Wextra", "-Werror",
		"-o", program, "testdata/decode/main.c")
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(program)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	return &other{in, bufio.NewReader(out)}
}

// decode is what the other makes of a request; ok is false when it is none to it.
func (o *other) decode(t testing.TB, b []byte) (c Command, ok bool) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatalf("the decoder of sharness-box ended: %v", err)
		}
	}
	_, err := o.in.Write(append(binary.NativeEndian.AppendUint32(nil, uint32(len(b))), b...))
	must(err)
	first, err := o.out.ReadByte()
	must(err)
	if first == 0 {
		return c, false
	}
	var counts [2]uint32
	must(binary.Read(o.out, binary.NativeEndian, &counts))
	next := func() string {
		s, err := o.out.ReadString(0)
		must(err)
		return strings.TrimSuffix(s, "\x00")
	}
	c.Path, c.Cwd, c.Argv, c.Env = next(), next(), []string{}, []string{}
	for range counts[0] {
		c.Argv = append(c.Argv, next())
	}
	for range counts[1] {
		c.Env = append(c.Env, next())
	}
	return c, true
}

func (o *other) compare(t testing.TB, b []byte) {
	t.Helper()
	want, err := DecodeCommand(b)
	got, ok := o.decode(t, b)
	if ok != (err == nil) {
		t.Fatalf("sharness-box says %v, this package %v of %.200q", ok, err, b)
	}
	if ok && !reflect.DeepEqual(got, want) {
		t.Fatalf("sharness-box decodes %+v, this package %+v", got, want)
	}
}

func TestBothDecodersOfARequestAgree(t *testing.T) {
	o := newOther(t)
	b, err := sample.Encode()
	if err != nil {
		t.Fatal(err)
	}
	o.compare(t, b)
	for n := range b {
		o.compare(t, b[:n])
		for bit := range 8 {
			d := append([]byte(nil), b...)
			d[n] ^= 1 << bit
			o.compare(t, d)
		}
	}
	long := Command{Path: "/" + strings.Repeat("p", MaxPath-1), Cwd: "/" + strings.Repeat("c", MaxPath-1), Argv: []string{strings.Repeat("a", MaxPayload)}}
	for i := range MaxEnv {
		long.Env = append(long.Env, strings.Repeat("e", i%7))
	}
	if b, err = long.Encode(); err != nil {
		t.Fatal(err)
	}
	o.compare(t, b)
	// One byte more than a path or an argument may have.
	for _, at := range []int{commandHeader + 1, len(b) - 1} {
		d := append(append(append([]byte(nil), b[:at]...), 'x'), b[at:]...)
		binary.LittleEndian.PutUint32(d[4:], uint32(len(d)))
		o.compare(t, d)
	}
}

func FuzzBothDecodersOfARequest(f *testing.F) {
	o := newOther(f)
	b, _ := sample.Encode()
	f.Add(b)
	f.Add(b[:commandHeader])
	f.Add([]byte("SHC1\x13\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00/\x00/\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		o.compare(t, b)
		if len(b) >= commandHeader { // with a header that lets the rest be looked at
			copy(b, "SHC1")
			binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
			o.compare(t, b)
		}
	})
}
