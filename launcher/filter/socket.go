package filter

import (
	seccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// socketRules are the sockets that a domain may make; all others get EPERM. Left out on purpose: AF_VSOCK (no network
// namespace binds it), IPPROTO_MPTCP (Landlock's TCP rights do not see it), raw, packet, ICMP, SCTP, AF_ALG, AF_XDP
// and every family that most machines only ever load for an exploit. Of netlink, getifaddrs needs NETLINK_ROUTE.
func socketRules() []rule {
	rules := inetRules()
	for _, typ := range []uint64{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET} {
		rules = append(rules, allow("socket", equal(0, unix.AF_UNIX), socketType(typ)))
	}
	return append(rules,
		allow("socket", equal(0, unix.AF_NETLINK), equal(2, unix.NETLINK_ROUTE)))
}

// inetRules allow TCP and UDP by their default or their own protocol number.
func inetRules() []rule {
	var rules []rule
	for _, family := range []uint64{unix.AF_INET, unix.AF_INET6} {
		for _, proto := range []uint64{0, unix.IPPROTO_TCP} {
			rules = append(rules, allow("socket", equal(0, family), socketType(unix.SOCK_STREAM), equal(2, proto)))
		}
		for _, proto := range []uint64{0, unix.IPPROTO_UDP} {
			rules = append(rules, allow("socket", equal(0, family), socketType(unix.SOCK_DGRAM), equal(2, proto)))
		}
	}
	return rules
}

// socketType compares everything but the two flags that ride in the type argument.
func socketType(typ uint64) seccomp.ScmpCondition {
	return masked(1, ^uint64(unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK), typ)
}
