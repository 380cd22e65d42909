package agent

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
)

func (p *Policy) judgeNet(v *verdict, c call, e *Event) {
	v.kind = event.NetDenied
	s := Socket{}
	switch {
	case c.topic == aboutSocket:
		s = Socket{Family: uint16(e.Args[0]), Type: uint16(e.Args[1] & 0xf), Protocol: uint16(e.Args[2])}
		v.cause = p.ifHolds(causeSeccomp)
	case e.Socket != nil:
		s = *e.Socket
	}
	to, family := address(e.Address)
	if family == 0 {
		family = s.Family
	}
	v.target = socketName(family, s)
	if to != "" {
		v.target += " " + to
	}
	v.door = socketDoor(family, s)
	switch {
	case e.Errno == unix.ENETUNREACH || e.Errno == unix.EHOSTUNREACH:
		v.cause = p.ifHolds(causeNet)
	case family == unix.AF_UNIX && c.topic != aboutSocket:
		v.door, v.cause = "unix-path", causeDAC
		if len(e.Address) > 2 && e.Address[2] == 0 {
			v.door, v.cause = "unix-abstract", p.ifHolds(causeLandlock)
		}
	case c.topic == aboutNet && e.Errno == unix.EACCES: // of connect and bind, and since ABI 10 of UDP's sends
		v.cause = p.ifHolds(causeLandlock)
	}
	switch c.name {
	case "bind":
		if v.door == "unix-path" {
			v.door, v.cause = "file-fifo", p.ifHolds(causeLandlock) // a socket made in a folder
		} else if family == unix.AF_INET || family == unix.AF_INET6 {
			v.door = "net-listen"
		}
	case "listen":
		v.door = "net-listen"
	case "recvmsg", "recvmmsg":
		v.door, v.cause, v.target = "exec-scm", p.ifHolds(causeSeccomp), ""
	case "setsockopt":
		p.judgeOption(v, e)
	case "sendto", "sendmsg", "sendmmsg":
		flags := e.Args[3]
		if c.name == "sendmsg" {
			flags = e.Args[2]
		}
		if flags&unix.MSG_FASTOPEN != 0 {
			v.door, v.cause = "net-tfo", p.ifHolds(causeSeccomp)
		}
	}
}

func (p *Policy) judgeOption(v *verdict, e *Event) {
	v.door, v.target = "", fmt.Sprintf("option %d of level %d", int32(e.Args[2]), int32(e.Args[1]))
	v.cause = causeDAC
	option := int32(e.Args[2])
	switch int32(e.Args[1]) {
	case unix.SOL_SOCKET:
		switch option {
		case unix.SO_ATTACH_FILTER, unix.SO_ATTACH_BPF, unix.SO_ATTACH_REUSEPORT_CBPF, unix.SO_ATTACH_REUSEPORT_EBPF:
			v.door, v.cause = "orch-bomb", p.ifHolds(causeSeccomp)
		}
		return
	case unix.IPPROTO_TCP:
	default:
		return
	}
	switch option {
	case unix.TCP_FASTOPEN, unix.TCP_FASTOPEN_CONNECT, unix.TCP_FASTOPEN_KEY, 34: // TCP_FASTOPEN_NO_COOKIE
		v.door, v.cause = "net-tfo", p.ifHolds(causeSeccomp)
	case unix.TCP_ULP, unix.TCP_MD5SIG, unix.TCP_MD5SIG_EXT, 38: // TCP_AO_ADD_KEY
		v.door, v.cause = "kernel", p.ifHolds(causeSeccomp)
	}
}

func socketDoor(family uint16, s Socket) string {
	switch family {
	case unix.AF_INET, unix.AF_INET6:
	case unix.AF_UNIX:
		return ""
	case unix.AF_PACKET:
		return "net-udp"
	default:
		return "net-family"
	}
	switch {
	case s.Protocol == unix.IPPROTO_MPTCP:
		return "net-mptcp"
	case s.Type == unix.SOCK_STREAM && (s.Protocol == 0 || s.Protocol == unix.IPPROTO_TCP):
		return "net-host"
	}
	return "net-udp"
}

func socketName(family uint16, s Socket) string {
	switch family {
	case unix.AF_UNIX:
		return "unix"
	case unix.AF_INET, unix.AF_INET6:
		switch {
		case s.Protocol == unix.IPPROTO_MPTCP:
			return "mptcp"
		case s.Type == unix.SOCK_STREAM && (s.Protocol == 0 || s.Protocol == unix.IPPROTO_TCP):
			return "tcp"
		case s.Type == unix.SOCK_DGRAM && (s.Protocol == 0 || s.Protocol == unix.IPPROTO_UDP):
			return "udp"
		}
		return fmt.Sprintf("ip type %d protocol %d", s.Type, s.Protocol)
	case unix.AF_NETLINK:
		return "netlink " + strconv.Itoa(int(s.Protocol))
	case unix.AF_PACKET:
		return "packet"
	case unix.AF_VSOCK:
		return "vsock"
	case unix.AF_ALG:
		return "alg"
	}
	return "family " + strconv.Itoa(int(family))
}

// address reads a socket address as far as it is one.
func address(b []byte) (text string, family uint16) {
	if len(b) < 2 {
		return "", 0
	}
	family = binary.NativeEndian.Uint16(b)
	switch {
	case family == unix.AF_INET && len(b) >= 8:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:])).String(), family
	case family == unix.AF_INET6 && len(b) >= 24:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])), binary.BigEndian.Uint16(b[2:])).String(), family
	case family == unix.AF_UNIX && len(b) > 2:
		name := b[2:]
		if name[0] == 0 {
			return "@" + string(name[1:]), family
		}
		for i, c := range name {
			if c == 0 {
				name = name[:i]
				break
			}
		}
		return string(name), family
	case family == unix.AF_VSOCK && len(b) >= 16:
		return fmt.Sprintf("%d:%d", binary.NativeEndian.Uint32(b[8:]), binary.NativeEndian.Uint32(b[4:])), family
	}
	return "", family
}
