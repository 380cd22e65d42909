package agent

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Want is what a call that failed was after.
type Want string

// The wants there are.
const (
	WantRead    Want = "read"
	WantWrite   Want = "write"
	WantExec    Want = "exec"
	WantConnect Want = "connect"
)

// Wanted says what a Tried or a Denial was after: a path, made absolute as far as data can, or an endpoint ("tcp
// 127.0.0.1:80", "unix /run/x"; "udp" alone is an answer that did not come). ok is false for what is about neither.
func (e *Event) Wanted() (want Want, target string, ok bool) {
	c, known := calls[e.NR]
	if !known || e.Errno == 0 || e.Asked.Truncated || e.Base.Truncated || e.Asked.Unreadable {
		return "", "", false
	}
	switch c.topic {
	case aboutExec:
		want = WantExec
	case aboutLook:
		want = WantRead
	case aboutPath, aboutMode:
		if want = WantRead; writes(c.name, e) {
			want = WantWrite
		}
	case aboutNet:
		return e.wantedPeer(c.name)
	default:
		return "", "", false
	}
	target = e.Asked.Text
	if !strings.HasPrefix(target, "/") {
		if target == "" || !strings.HasPrefix(e.Base.Text, "/") || e.Base.Unreadable || e.Base.Outside || e.Base.Detached {
			return "", "", false
		}
		target = e.Base.Text + "/" + target
	}
	return want, path.Clean(target), true
}

func (e *Event) wantedPeer(name string) (Want, string, bool) {
	if name != "connect" && name != "recvfrom" && !strings.HasPrefix(name, "send") {
		return "", "", false
	}
	s := Socket{}
	if e.Socket != nil {
		s = *e.Socket
	}
	to, family := address(e.Address)
	if family == 0 {
		family = s.Family
	}
	if family != unix.AF_INET && family != unix.AF_INET6 && family != unix.AF_UNIX {
		return "", "", false
	}
	target := socketName(family, s)
	if to != "" {
		target += " " + to
	}
	return WantConnect, target, true
}

// Sent is the number of the signal that a Tried says was sent; 0 when it is none, or a question.
func (e *Event) Sent() int {
	c, known := calls[e.NR]
	if !known || c.topic != aboutSignal || e.Errno != 0 {
		return 0
	}
	switch c.name {
	case "tgkill", "rt_tgsigqueueinfo":
		return int(int32(e.Args[2]))
	case "process_mrelease":
		return 0
	}
	return int(int32(e.Args[1]))
}
