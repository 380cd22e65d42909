package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestFrameSurvivesTheWire(t *testing.T) {
	for _, want := range []Frame{
		{Hello, []byte{1, 0}},
		{Execfn, []byte("/bin/sh")},
		{Arg, nil},
		{Arg, bytes.Repeat([]byte("x"), MaxPayload)},
		{Start, nil},
		ExitFrame(KindSignal, 15),
		ErrorFrame(126, "no"),
	} {
		got, err := ReadFrame(bytes.NewReader(AppendFrame(nil, want)))
		if err != nil || got.Type != want.Type || !bytes.Equal(got.Payload, want.Payload) {
			t.Errorf("frame %d: got %d with %d bytes, %v", want.Type, got.Type, len(got.Payload), err)
		}
	}
}

func TestFrameHeaderIsRefused(t *testing.T) {
	for name, h := range map[string][]byte{
		"type zero":         {0, 0, 0, 0, 0, 0, 0, 0},
		"unknown type":      {9, 0, 0, 0, 0, 0, 0, 0},
		"reserved byte":     {6, 0, 1, 0, 0, 0, 0, 0},
		"start with bytes":  {6, 0, 0, 0, 1, 0, 0, 0},
		"empty cwd":         {3, 0, 0, 0, 0, 0, 0, 0},
		"arg over its cap":  {4, 0, 0, 0, 1, 0, 2, 0},
		"four gigabytes":    {4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff},
		"path over its cap": {2, 0, 0, 0, 0, 16, 0, 0},
	} {
		if _, err := ReadFrame(bytes.NewReader(append(h, make([]byte, 64)...))); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: got %v, want a protocol error", name, err)
		}
	}
}

func TestStreamEndInsideAFrameIsUnexpected(t *testing.T) {
	b := AppendFrame(nil, Frame{Arg, []byte("hello")})
	for n := 1; n < len(b); n++ {
		if _, err := ReadFrame(bytes.NewReader(b[:n])); err != io.ErrUnexpectedEOF {
			t.Errorf("after %d bytes: got %v", n, err)
		}
	}
}

// A client may announce 128 KiB and send nothing: that must not cost the server 128 KiB.
func TestAnnouncedLengthAllocatesNothing(t *testing.T) {
	h := []byte{4, 0, 0, 0, 0, 0, 2, 0}
	got := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			ReadFrame(bytes.NewReader(h))
		}
	})
	if got.AllocedBytesPerOp() > 4*chunk { // the buffer, its growth and the race detector
		t.Errorf("%d bytes allocated for a header alone", got.AllocedBytesPerOp())
	}
}

func TestErrorTextIsCut(t *testing.T) {
	if f := ErrorFrame(2, strings.Repeat("x", MaxError+10)); len(f.Payload) != 4+MaxError {
		t.Errorf("payload of %d bytes", len(f.Payload))
	}
}

func TestSignalsThatNobodyCanTypeAreRefused(t *testing.T) {
	for n := uint32(0); n < 70; n++ {
		_, err := DecodeSignal(Frame{Signal, []byte{byte(n), 0, 0, 0}})
		want := n == 1 || n == 2 || n == 3 || n == 10 || n == 12 || n == 15 || n == 18 || n == 20 || n == 28
		if (err == nil) != want {
			t.Errorf("signal %d: %v", n, err)
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(AppendFrame(AppendFrame(nil, Frame{Hello, []byte{1, 0}}), Frame{Execfn, []byte("/bin/sh")}))
	f.Add(requestBytes(Request{Execfn: "/bin/sh", Exe: "/usr/bin/dash", Cwd: "/", Argv: []string{"sh", ""}, Env: []string{"A=1"}}))
	f.Add([]byte{4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var a Assembler
		r := bytes.NewReader(b)
		for {
			fr, err := ReadFrame(r)
			if err != nil {
				if err != io.EOF && err != io.ErrUnexpectedEOF && !errors.Is(err, ErrProtocol) {
					t.Fatalf("foreign error %v", err)
				}
				return
			}
			if len(fr.Payload) > 4+MaxPayload {
				t.Fatalf("payload of %d bytes", len(fr.Payload))
			}
			done, err := a.Add(fr)
			if err != nil {
				return
			}
			if a.Bytes() > MaxRequest {
				t.Fatalf("request of %d bytes", a.Bytes())
			}
			if done {
				q := a.Request()
				if q.Cwd[0] != '/' || q.Execfn == "" || len(q.Argv) == 0 {
					t.Fatalf("incomplete request %+v", q)
				}
				if used := b[:len(b)-r.Len()]; !bytes.Equal(requestBytes(q), used) {
					t.Fatalf("request %+v encodes differently", q)
				}
				return
			}
		}
	})
}
