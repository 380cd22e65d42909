package attempt

import (
	"golang.org/x/sys/unix"
)

// udp sends to bait that answers: a datagram into an empty namespace is no success.
func udp() []Attempt {
	const door = "net-udp"
	port := func(id, what string, control Control, how func(port uint16) Outcome) Attempt {
		return Attempt{door + "/" + id, door, what, control, func(t *Target) Outcome {
			if t.UDP == 0 {
				return impossible("no bait")
			}
			return how(t.UDP)
		}}
	}
	answered := func(fd int) Outcome {
		buf := make([]byte, 64)
		_, _, err := unix.Recvfrom(fd, buf, 0)
		for err == unix.EINTR {
			_, _, err = unix.Recvfrom(fd, buf, 0)
		}
		if err != nil {
			return judge("sent, and waited for the answer", err, unix.EAGAIN)
		}
		return opened("an answer came")
	}
	a := []Attempt{
		port("connected", "connect and send a datagram to a host port", Opens, func(p uint16) Outcome {
			return withSocket(unix.AF_INET, unix.SOCK_DGRAM, 0, func(fd int) Outcome {
				if err := connect(fd, tcpAddr(p)); err != nil {
					return judge("connect", err)
				}
				if _, err := unix.Write(fd, []byte("udp")); err != nil {
					return judge("send", err)
				}
				return answered(fd)
			})
		}),
		port("sendto", "sendto a host port", Opens, func(p uint16) Outcome {
			return withSocket(unix.AF_INET, unix.SOCK_DGRAM, 0, func(fd int) Outcome {
				if err := unix.Sendto(fd, []byte("udp"), 0, tcpAddr(p)); err != nil {
					return judge("sendto", err)
				}
				return answered(fd)
			})
		}),
		port("sendto-mapped", "sendto a host port by a mapped IPv6 address", Opens, func(p uint16) Outcome {
			return withSocket(unix.AF_INET6, unix.SOCK_DGRAM, 0, func(fd int) Outcome {
				if err := unix.Sendto(fd, []byte("udp"), 0, mapped(p)); err != nil {
					return judge("sendto", err)
				}
				return answered(fd)
			})
		}),
		port("dns", "a DNS question, the secret in its label", Opens, func(p uint16) Outcome {
			query := []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x06secret\x07example\x00\x00\x01\x00\x01")
			return withSocket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP, func(fd int) Outcome {
				if err := unix.Sendto(fd, query, 0, tcpAddr(p)); err != nil {
					return judge("sendto", err)
				}
				return answered(fd)
			})
		}),
		{door + "/route-53", door, "find a route to a name server", Varies, func(*Target) Outcome {
			return connectTo(unix.AF_INET, unix.SOCK_DGRAM, 0, &unix.SockaddrInet4{Port: 53, Addr: [4]byte{192, 0, 2, 53}})
		}},
	}
	for _, s := range []struct {
		name                string
		family, kind, proto int
		control             Control
	}{
		{"icmp-ping", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP, Varies}, // net.ipv4.ping_group_range
		{"icmp6-ping", unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6, Varies},
		{"icmp-raw", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP, Refused},
		{"raw", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW, Refused},
		{"raw-tcp", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP, Refused},
		{"raw6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_RAW, Refused},
		{"sctp-stream", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP, Varies},
		{"sctp-seqpacket", unix.AF_INET, unix.SOCK_SEQPACKET, unix.IPPROTO_SCTP, Varies},
		{"dccp", unix.AF_INET, unix.SOCK_DCCP, unix.IPPROTO_DCCP, Varies},
		{"udplite", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE, Varies},
		{"udplite6", unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE, Varies},
		{"packet-raw", unix.AF_PACKET, unix.SOCK_RAW, 0, Refused},
		{"packet-dgram", unix.AF_PACKET, unix.SOCK_DGRAM, 0, Refused},
		{"packet-old", unix.AF_INET, unix.SOCK_PACKET, 0, Refused},
		{"smc-inet", unix.AF_INET, unix.SOCK_STREAM, 256, Varies}, // IPPROTO_SMC
		{"l2tp", unix.AF_INET, unix.SOCK_DGRAM, 115, Varies},
	} {
		a = append(a, Attempt{door + "/" + s.name, door, "make a socket: " + s.name, s.control, func(*Target) Outcome {
			return withSocket(s.family, s.kind, s.proto, func(int) Outcome { return opened("socket made") })
		}})
	}
	return a
}
