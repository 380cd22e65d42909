package wire

import (
	"errors"
	"reflect"
	"testing"
)

// requestFrames is what a client sends for q.
func requestFrames(q Request) []Frame {
	fs := []Frame{{Hello, []byte{Version, 0}}, {Execfn, []byte(q.Execfn)}}
	if q.Exe != "" {
		fs = append(fs, Frame{Exe, []byte(q.Exe)})
	}
	fs = append(fs, Frame{Cwd, []byte(q.Cwd)})
	for _, a := range q.Argv {
		fs = append(fs, Frame{Arg, []byte(a)})
	}
	for _, e := range q.Env {
		fs = append(fs, Frame{EnvVar, []byte(e)})
	}
	return append(fs, Frame{Start, nil})
}

func requestBytes(q Request) (b []byte) {
	for _, f := range requestFrames(q) {
		b = AppendFrame(b, f)
	}
	return b
}

func TestAssemblerReturnsWhatWasSent(t *testing.T) {
	for _, want := range []Request{
		{Execfn: "/bin/sh", Cwd: "/w", Argv: []string{"sh", "-c", ""}, Env: []string{"A=1", "odd"}},
		{Execfn: "./sh", Exe: "/usr/bin/dash", Cwd: "/", Argv: []string{""}},
	} {
		var a Assembler
		frames := requestFrames(want)
		for i, f := range frames {
			done, err := a.Add(f)
			if err != nil || done != (i == len(frames)-1) {
				t.Fatalf("frame %d: done %v, %v", i, done, err)
			}
		}
		if got := a.Request(); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestAssemblerRefuses(t *testing.T) {
	hello, fn, cwd := Frame{Hello, []byte{1, 0}}, Frame{Execfn, []byte("/s")}, Frame{Cwd, []byte("/")}
	arg, env, start := Frame{Arg, []byte("a")}, Frame{EnvVar, []byte("A=1")}, Frame{Start, nil}
	exe := Frame{Exe, []byte("/e")}
	many := func(f Frame, n int, before ...Frame) []Frame {
		for range n {
			before = append(before, f)
		}
		return before
	}
	for name, frames := range map[string][]Frame{
		"no hello":            {fn},
		"two hellos":          {hello, hello},
		"another version":     {{Hello, []byte{2, 0}}},
		"cwd first":           {hello, cwd},
		"two exes":            {hello, fn, exe, exe},
		"relative cwd":        {hello, fn, {Cwd, []byte("x")}},
		"no argument":         {hello, fn, cwd, start},
		"environment first":   {hello, fn, cwd, env},
		"argument late":       {hello, fn, cwd, arg, env, arg},
		"NUL in an argument":  {hello, fn, cwd, {Arg, []byte("a\x00b")}},
		"signal before start": {hello, fn, cwd, arg, {Signal, []byte{15, 0, 0, 0}}},
		"frame after start":   {hello, fn, cwd, arg, start, arg},
		"server's frame":      {hello, fn, cwd, ExitFrame(0, 0)},
		"too many arguments":  many(arg, MaxArgs+1, hello, fn, cwd),
		"too many variables":  many(env, MaxEnv+1, hello, fn, cwd, arg),
		"too many bytes":      many(Frame{Arg, make1(MaxPayload)}, MaxRequest/MaxPayload, hello, fn, cwd),
	} {
		var a Assembler
		var err error
		for i, f := range frames {
			if _, err = a.Add(f); err != nil && i != len(frames)-1 {
				t.Errorf("%s: frame %d of %d refused: %v", name, i, len(frames), err)
			}
		}
		if !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: got %v, want a protocol error", name, err)
		}
	}
}

func make1(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'x'
	}
	return b
}
