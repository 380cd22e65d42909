package filter

import "golang.org/x/sys/unix"

// From linux/tcp.h; x/sys/unix lacks it.
const tcpFastopenNoCookie = 34

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

// options denies setting options of one level.
func options(level uint64, names ...uint64) []rule {
	var rules []rule
	for _, name := range names {
		rules = append(rules, deny("setsockopt", int32Is(1, level), int32Is(2, name)))
	}
	return rules
}
