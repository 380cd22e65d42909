package filter

import "golang.org/x/sys/unix"

// From linux/tcp.h and linux/sockios.h; x/sys/unix lacks them.
const (
	tcpFastopenNoCookie = 34
	tcpAOAddKey         = 38
	siocGIFVLAN         = 0x8982
	siocSIFVLAN         = 0x8983
)

// fastOpen: TCP Fast Open sends data in the SYN without a connect that Landlock would see. TCP_ULP attaches other
// protocols to a connected socket and is surface that TLS libraries do without.
func fastOpen() []rule {
	var rules []rule
	for _, flags := range []argument{{"sendto", 3}, {"sendmsg", 2}, {"sendmmsg", 3}} {
		rules = append(rules, deny(flags.call, has(flags.index, unix.MSG_FASTOPEN)))
	}
	return append(rules, options(unix.IPPROTO_TCP, unix.TCP_FASTOPEN, unix.TCP_FASTOPEN_CONNECT, unix.TCP_FASTOPEN_KEY,
		tcpFastopenNoCookie, unix.TCP_ULP)...)
}

// socketPrograms: the kernel compiles a program that is attached to a socket, out of net.core.bpf_jit_limit, which is one
// number for the whole host, and where CONFIG_BPF_JIT_ALWAYS_ON says so there is no other way to have one. One command's
// sockets would use it up, and nobody without CAP_BPF could load a seccomp filter, of ours neither. Who wants such programs
// (tcpdump, DHCP, balancers) has no socket here that they are for.
func socketPrograms() []rule {
	return options(unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, unix.SO_ATTACH_BPF, unix.SO_ATTACH_REUSEPORT_CBPF, unix.SO_ATTACH_REUSEPORT_EBPF)
}

// moduleLoaders: for these the kernel runs modprobe, as root and outside, before it asks for any capability: the bridge and
// VLAN ioctls of whatever socket, and keys of TCP, whose algorithm is a module by a name of the caller's choice. The keys are
// memory that no cgroup is charged for besides. Routers want them, and who sets up a network.
func moduleLoaders() []rule {
	rules := options(unix.IPPROTO_TCP, unix.TCP_MD5SIG, unix.TCP_MD5SIG_EXT, tcpAOAddKey)
	for _, req := range []uint64{unix.SIOCGIFBR, unix.SIOCSIFBR, unix.SIOCBRADDBR, unix.SIOCBRDELBR, unix.SIOCBRADDIF, unix.SIOCBRDELIF,
		siocGIFVLAN, siocSIFVLAN} {
		rules = append(rules, deny("ioctl", int32Is(1, req)))
	}
	return rules
}

// options denies setting options of one level.
func options(level uint64, names ...uint64) []rule {
	var rules []rule
	for _, name := range names {
		rules = append(rules, deny("setsockopt", int32Is(1, level), int32Is(2, name)))
	}
	return rules
}
