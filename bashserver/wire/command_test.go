package wire

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var sample = Command{Path: "/usr/bin/bash", Argv: []string{"bash", "-c", "", "a\nb\xff"}, Env: []string{"A=1", "B="}, Cwd: "/w"}

func TestCommandSurvivesTheMemfd(t *testing.T) {
	for _, want := range []Command{sample, {Path: "/b", Argv: []string{""}, Env: []string{}, Cwd: "/"}} {
		f, err := SealCommand(want)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		got, err := ReadCommand(f)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
}

func TestSealedCommandCannotChange(t *testing.T) {
	f, err := SealCommand(sample)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("write: got %v, want EPERM", err)
	}
	if err := f.Truncate(0); !errors.Is(err, unix.EPERM) {
		t.Errorf("truncate: got %v, want EPERM", err)
	}
}

func TestUnsealedMemfdIsRefused(t *testing.T) {
	fd, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "x")
	defer f.Close()
	b, _ := sample.Encode()
	f.Write(b)
	if _, err := ReadCommand(f); !errors.Is(err, ErrProtocol) {
		t.Errorf("got %v, want a protocol error", err)
	}
}

func TestCommandThatCannotRunIsNotEncoded(t *testing.T) {
	for name, c := range map[string]Command{
		"relative path": {Path: "b", Argv: []string{"b"}, Cwd: "/"},
		"relative cwd":  {Path: "/b", Argv: []string{"b"}, Cwd: "w"},
		"no argv":       {Path: "/b", Cwd: "/"},
		"NUL":           {Path: "/b", Argv: []string{"a\x00"}, Cwd: "/"},
		"long argument": {Path: "/b", Argv: []string{strings.Repeat("x", MaxPayload+1)}, Cwd: "/"},
		"long path":     {Path: "/" + strings.Repeat("x", MaxPath), Argv: []string{"b"}, Cwd: "/"},
		"too much": {Path: "/b", Cwd: "/", Argv: strings.Split(strings.Repeat(strings.Repeat("x", MaxPayload)+" ",
			MaxCommand/MaxPayload), " ")},
	} {
		if b, err := c.Encode(); err == nil {
			t.Errorf("%s: %d bytes", name, len(b))
		}
	}
}

func TestDamagedCommandIsRefused(t *testing.T) {
	b, err := sample.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for n := range b {
		if _, err := DecodeCommand(b[:n]); !errors.Is(err, ErrProtocol) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	for i := range commandHeader {
		d := append([]byte(nil), b...)
		d[i] ^= 0x80
		if _, err := DecodeCommand(d); !errors.Is(err, ErrProtocol) {
			t.Errorf("header byte %d changed: %v", i, err)
		}
	}
}

func FuzzCommand(f *testing.F) {
	b, _ := sample.Encode()
	f.Add(b)
	f.Add(b[:commandHeader])
	f.Add([]byte("SHC1\x13\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00/\x00/\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCommand(b)
		if err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Fatalf("foreign error %v", err)
			}
			return
		}
		again, err := c.Encode()
		if err != nil || string(again) != string(b) {
			t.Fatalf("decodes but encodes differently: %v", err)
		}
	})
}
