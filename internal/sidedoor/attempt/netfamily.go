package attempt

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// families makes a socket of every family beside unix, inet, inet6 and netlink route. A kernel without the family
// refuses as well as a filter does.
func families() []Attempt {
	const door = "net-family"
	names := map[int]string{unix.AF_AX25: "ax25", unix.AF_IPX: "ipx", unix.AF_APPLETALK: "appletalk", unix.AF_X25: "x25", unix.AF_KEY: "key",
		unix.AF_RDS: "rds", unix.AF_PPPOX: "pppox", unix.AF_LLC: "llc", unix.AF_IB: "ib", unix.AF_MPLS: "mpls", unix.AF_CAN: "can", unix.AF_TIPC: "tipc",
		unix.AF_BLUETOOTH: "bluetooth", unix.AF_RXRPC: "rxrpc", unix.AF_PHONET: "phonet", unix.AF_IEEE802154: "ieee802154", unix.AF_CAIF: "caif",
		unix.AF_ALG: "alg", unix.AF_NFC: "nfc", unix.AF_VSOCK: "vsock", unix.AF_KCM: "kcm", unix.AF_QIPCRTR: "qipcrtr", unix.AF_SMC: "smc", unix.AF_XDP: "xdp", 45: "mctp"}
	var a []Attempt
	for family := 3; family < 48; family++ {
		switch family {
		case unix.AF_INET6, unix.AF_NETLINK, unix.AF_PACKET:
			continue
		}
		name := names[family]
		if name == "" {
			name = fmt.Sprint(family)
		}
		a = append(a, Attempt{door + "/" + name, door, "make a socket of family " + name, Varies, func(*Target) Outcome {
			var all []Outcome
			for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_RAW, unix.SOCK_SEQPACKET, unix.SOCK_RDM} {
				all = append(all, withSocket(family, kind, 0, func(int) Outcome { return opened("socket of type %d made", kind) }))
			}
			return worst(all...)
		}})
	}
	for proto, name := range []string{2: "usersock", 3: "firewall", 4: "sock-diag", 5: "nflog", 6: "xfrm", 7: "selinux", 8: "iscsi", 9: "audit", 10: "fib-lookup",
		11: "connector", 12: "netfilter", 13: "ip6-fw", 14: "dnrtmsg", 15: "kobject-uevent", 16: "generic", 18: "scsitransport", 19: "ecryptfs", 20: "rdma", 21: "crypto"} {
		if name == "" {
			continue
		}
		control := Varies
		if proto == unix.NETLINK_KOBJECT_UEVENT || proto == unix.NETLINK_GENERIC {
			control = Opens // every kernel has them
		}
		a = append(a, Attempt{door + "/netlink-" + name, door, "make a netlink socket: " + name, control, func(*Target) Outcome {
			return worst(
				withSocket(unix.AF_NETLINK, unix.SOCK_RAW, proto, func(int) Outcome { return opened("socket made") }),
				withSocket(unix.AF_NETLINK, unix.SOCK_DGRAM, proto, func(int) Outcome { return opened("socket made") }))
		}})
	}
	return append(a,
		Attempt{door + "/high-bits", door, "make an AF_ALG socket with bits above 32 set in the family", Varies, func(t *Target) Outcome {
			_, err := t.forked(sys(unix.SYS_SOCKET, 1<<32|unix.AF_ALG, unix.SOCK_SEQPACKET, 0))
			return judgeForked("socket", err)
		}},
		Attempt{door + "/high-bits-mptcp", door, "make an MPTCP socket with bits above 32 set in the protocol", Varies, func(t *Target) Outcome {
			_, err := t.forked(sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 1<<32|unix.IPPROTO_MPTCP))
			return judgeForked("socket", err)
		}},
		Attempt{door + "/socketpair", door, "make a pair of sockets of family tipc", Varies, func(t *Target) Outcome {
			_, err := t.forked(sys(unix.SYS_SOCKETPAIR, unix.AF_TIPC, unix.SOCK_STREAM, 0, t.bytes(make([]byte, 8))))
			return judgeForked("socketpair", err, unix.EOPNOTSUPP)
		}},
		Attempt{door + "/route-change", door, "change the interface lo", Refused, func(*Target) Outcome {
			return withSocket(unix.AF_INET, unix.SOCK_DGRAM, 0, func(fd int) Outcome {
				var ifr struct {
					name [16]byte
					mtu  int32
					_    [20]byte
				}
				copy(ifr.name[:], "lo")
				if err := ioctlPointer(fd, unix.SIOCGIFMTU, &ifr); err != nil {
					return judge("SIOCGIFMTU", err)
				}
				return judge("SIOCSIFMTU, to what it is", ioctlPointer(fd, unix.SIOCSIFMTU, &ifr))
			})
		}},
	)
}

// ioctlPointer is ioctl with a pointer to what x/sys/unix has no helper for.
func ioctlPointer[T any](fd int, request uintptr, arg *T) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(arg))); errno != 0 {
		return errno
	}
	return nil
}
