package attempt

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sockaddr4 is 127.0.0.1:port as struct sockaddr_in.
func sockaddr4(port uint16) []byte {
	b := make([]byte, 16)
	binary.NativeEndian.PutUint16(b, unix.AF_INET)
	binary.BigEndian.PutUint16(b[2:], port)
	copy(b[4:], []byte{127, 0, 0, 1})
	return b
}

var loopback4 = [4]byte{127, 0, 0, 1}

func tcpAddr(port uint16) unix.Sockaddr { return &unix.SockaddrInet4{Port: int(port), Addr: loopback4} }

// mapped is 127.0.0.1 as an IPv6 address.
func mapped(port uint16) unix.Sockaddr {
	return &unix.SockaddrInet6{Port: int(port), Addr: [16]byte{10: 0xff, 11: 0xff, 12: 127, 15: 1}}
}

// socketTime bounds what is done with a socket.
const socketTime = 500 * time.Millisecond

// withSocket opens a socket with a timeout and closes it after f.
func withSocket(family, kind, proto int, f func(fd int) Outcome) Outcome {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return judge(fmt.Sprintf("socket(%d, %d, %d)", family, kind, proto), err)
	}
	defer unix.Close(fd)
	tv := unix.NsecToTimeval(int64(socketTime))
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv)
	return f(fd)
}

func connectTo(family, kind, proto int, to unix.Sockaddr) Outcome {
	return withSocket(family, kind, proto, func(fd int) Outcome { return judge("connect", connect(fd, to)) })
}

// connect connects a socket of withSocket. A signal, of which the Go runtime sends itself some, ends the call of a socket with
// a timeout, and not what it began (connect(2), signal(7)).
func connect(fd int, to unix.Sockaddr) error {
	err := unix.Connect(fd, to)
	if err != unix.EINTR {
		return err
	}
	deadline := time.Now().Add(socketTime)
	for ready := 0; ready == 0; {
		left := time.Until(deadline)
		if left <= 0 {
			return unix.EINPROGRESS // as without a signal
		}
		ready, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(left.Milliseconds())+1)
		if err != nil && err != unix.EINTR {
			return err
		}
		ready = max(ready, 0)
	}
	errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil || errno == 0 {
		return err
	}
	return syscall.Errno(errno)
}

func tcp() []Attempt {
	port := func(id, door, what string, control Control, how func(t *Target, port uint16) Outcome) Attempt {
		return Attempt{door + "/" + id, door, what, control, func(t *Target) Outcome {
			p := t.TCP
			if door == "net-mptcp" {
				p = t.MPTCP
			}
			if p == 0 {
				return impossible("no bait")
			}
			return how(t, p)
		}}
	}
	const stream = unix.SOCK_STREAM
	fastOpen := func(id, what string, send func(fd int, to unix.Sockaddr) error) Attempt {
		return port(id, "net-tfo", what, Opens, func(_ *Target, p uint16) Outcome { // net.ipv4.tcp_fastopen has the client's bit by default
			return withSocket(unix.AF_INET, stream, 0, func(fd int) Outcome { return judge(what, send(fd, tcpAddr(p)), unix.EOPNOTSUPP) })
		})
	}
	return []Attempt{
		port("connect", "net-host", "TCP connect to a host port", Opens, func(_ *Target, p uint16) Outcome {
			return connectTo(unix.AF_INET, stream, 0, tcpAddr(p))
		}),
		port("connect-mapped", "net-host", "TCP connect by a mapped IPv6 address", Opens, func(_ *Target, p uint16) Outcome {
			return connectTo(unix.AF_INET6, stream, 0, mapped(p))
		}),
		port("connect-explicit", "net-host", "TCP connect with IPPROTO_TCP named", Opens, func(_ *Target, p uint16) Outcome {
			return connectTo(unix.AF_INET, stream, unix.IPPROTO_TCP, tcpAddr(p))
		}),
		port("connect-any", "net-host", "TCP connect to 0.0.0.0, which means this host", Opens, func(_ *Target, p uint16) Outcome {
			return connectTo(unix.AF_INET, stream, 0, &unix.SockaddrInet4{Port: int(p)})
		}),
		port("connect-127.1.2.3", "net-host", "TCP connect to another loopback address", Varies, func(_ *Target, p uint16) Outcome {
			return connectTo(unix.AF_INET, stream, 0, &unix.SockaddrInet4{Port: int(p), Addr: [4]byte{127, 1, 2, 3}})
		}),
		// A connected UDP socket looks for a route and sends nothing: 192.0.2.0/24 and 2001:db8::/32 are for documents.
		{"net-host/route4", "net-host", "find a route to another host", Varies, func(*Target) Outcome {
			return connectTo(unix.AF_INET, unix.SOCK_DGRAM, 0, &unix.SockaddrInet4{Port: 443, Addr: [4]byte{192, 0, 2, 1}})
		}},
		{"net-host/route6", "net-host", "find an IPv6 route to another host", Varies, func(*Target) Outcome {
			return connectTo(unix.AF_INET6, unix.SOCK_DGRAM, 0, &unix.SockaddrInet6{Port: 443, Addr: [16]byte{0x20, 1, 0x0d, 0xb8, 15: 1}})
		}},
		{"net-host/metadata", "net-host", "find a route to a cloud's metadata service", Varies, func(*Target) Outcome {
			return connectTo(unix.AF_INET, unix.SOCK_DGRAM, 0, &unix.SockaddrInet4{Port: 80, Addr: [4]byte{169, 254, 169, 254}})
		}},
		{"net-host/interfaces", "net-host", "find an interface beside lo", Varies, func(*Target) Outcome {
			return interfaces()
		}},
		port("connect", "net-mptcp", "MPTCP connect to a host port", Varies, func(_ *Target, p uint16) Outcome { // net.mptcp.enabled
			return connectTo(unix.AF_INET, stream, unix.IPPROTO_MPTCP, tcpAddr(p))
		}),
		port("connect6", "net-mptcp", "MPTCP connect by a mapped IPv6 address", Varies, func(_ *Target, p uint16) Outcome {
			return connectTo(unix.AF_INET6, stream, unix.IPPROTO_MPTCP, mapped(p))
		}),
		{"net-mptcp/socket", "net-mptcp", "make an MPTCP socket", Varies, func(*Target) Outcome {
			return withSocket(unix.AF_INET, stream, unix.IPPROTO_MPTCP, func(int) Outcome { return opened("socket made") })
		}},
		fastOpen("sendto", "sendto with MSG_FASTOPEN", func(fd int, to unix.Sockaddr) error { return unix.Sendto(fd, []byte("tfo"), unix.MSG_FASTOPEN, to) }),
		fastOpen("sendmsg", "sendmsg with MSG_FASTOPEN", func(fd int, to unix.Sockaddr) error {
			return unix.Sendmsg(fd, []byte("tfo"), nil, to, unix.MSG_FASTOPEN)
		}),
		fastOpen("sendto-with-others", "sendto with MSG_FASTOPEN among other flags", func(fd int, to unix.Sockaddr) error {
			return unix.Sendto(fd, []byte("tfo"), unix.MSG_FASTOPEN|unix.MSG_NOSIGNAL|unix.MSG_MORE, to)
		}),
		fastOpen("connect-option", "TCP_FASTOPEN_CONNECT, then connect and write", func(fd int, to unix.Sockaddr) error {
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT, 1); err != nil {
				return err
			}
			if err := connect(fd, to); err != nil {
				return err
			}
			_, err := unix.Write(fd, []byte("tfo"))
			return err
		}),
		port("sendmmsg", "net-tfo", "sendmmsg with MSG_FASTOPEN", Opens, func(t *Target, p uint16) Outcome {
			iov := t.words(8, uint64(t.bytes([]byte("tfo"))), 3)
			msg := t.words(8, uint64(t.bytes(sockaddr4(p))), 16, uint64(iov), 1, 0, 0, 0, 0)
			_, err := t.forked(sys(unix.SYS_SOCKET, unix.AF_INET, stream, 0), sys(unix.SYS_SENDMMSG, previous, msg, 1, unix.MSG_FASTOPEN))
			return judgeForked("sendmmsg", err, unix.EOPNOTSUPP)
		}),
		{"net-listen/no-bind", "net-listen", "listen without bind, where the host can connect", Opens, func(t *Target) Outcome { return listens(t, nil) }},
		{"net-listen/bind", "net-listen", "bind and listen, where the host can connect", Opens, func(t *Target) Outcome { return listens(t, &unix.SockaddrInet4{}) }},
	}
}
