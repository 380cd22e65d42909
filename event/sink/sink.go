// Package sink carries events from those who saw something to where they are kept.
//
// Producers hold a Sender: it never waits and counts what it could not hand over. One process of its own, without any
// privilege, holds the receiving ends and the already opened sinks and runs a Collector: bytes that came from a domain
// are decoded, folded and written there and nowhere else. A slow or dead sink costs its own lines, which are counted;
// it delays neither the producers nor the other sinks.
//
// It does not open anything after the start: new files (log rotation) come as descriptors over the control socket.
package sink

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Kind is where lines go.
type Kind string

// The kinds of sink. Terminal is human text on a descriptor such as stderr; File is JSON lines.
const (
	Terminal Kind = "terminal"
	File     Kind = "file"
	Journald Kind = "journald"
	Syslog   Kind = "syslog"
)

// Spec is one sink as a person names it.
type Spec struct {
	Kind Kind
	Path string // of a File, absolute
}

// ParseSpec reads "-", "journald", "syslog" or the path of a file, which is taken relative to dir.
func ParseSpec(text, dir string) (Spec, error) {
	switch text {
	case "":
		return Spec{}, fmt.Errorf("events: empty name of a sink; want -, journald, syslog or a file")
	case "-":
		return Spec{Kind: Terminal}, nil
	case "journald":
		return Spec{Kind: Journald}, nil
	case "syslog":
		return Spec{Kind: Syslog}, nil
	}
	if !filepath.IsAbs(text) {
		text = filepath.Join(dir, text)
	}
	return Spec{Kind: File, Path: filepath.Clean(text)}, nil
}

func (s Spec) String() string {
	switch s.Kind {
	case File:
		return s.Path
	case Terminal:
		return "-"
	}
	return string(s.Kind)
}

// sndbuf holds some thousand events of usual size: a burst while the disk is busy is not a loss.
const sndbuf = 4 << 20

// Pair returns the two ends of one producer's channel, close-on-exec. It is a SOCK_SEQPACKET pair: datagrams keep
// their borders as with SOCK_DGRAM, but only here does the receiver learn that the last sender is gone. Every producer
// gets a pair of its own, so that one that was taken over can neither speak for others nor silence them by shutdown(2).
func Pair() (send, receive *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("events: socketpair: %w", err)
	}
	// Without CAP_NET_ADMIN the default size stays, which only means earlier losses, and those are counted.
	if unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sndbuf) != nil {
		_ = unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF, sndbuf)
	}
	return os.NewFile(uintptr(fds[0]), "events"), os.NewFile(uintptr(fds[1]), "events"), nil
}
