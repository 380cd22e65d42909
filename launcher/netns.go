package launcher

import (
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// listenAddr is one listener that a network namespace is made with.
type listenAddr struct {
	ip      net.IP
	port    uint16
	queries bool // UDP instead of TCP: a socket on which a name server is asked
	shared  bool // another listener has the port on a certain address, or on all
}

// newNetNS makes a network namespace with loopback alone and the given listeners in it. It works on a thread that
// ends with it, since the namespace of a thread that was moved must not be handed to other goroutines.
func newNetNS(addrs []listenAddr) (ns *os.File, listeners []*os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		ns, listeners, err = makeNetNS(addrs)
	}()
	<-done
	if err != nil {
		for _, l := range listeners {
			l.Close()
		}
		return nil, nil, fmt.Errorf("network namespace: %w", err)
	}
	return ns, listeners, nil
}

func makeNetNS(addrs []listenAddr) (*os.File, []*os.File, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, nil, fmt.Errorf("unshare: %w", err)
	}
	ctl, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(ctl)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return nil, nil, err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(ctl, unix.SIOCSIFFLAGS, ifr); err != nil {
		return nil, nil, fmt.Errorf("bring lo up: %w", err)
	}
	var listeners []*os.File
	for _, a := range addrs {
		l, err := listen(a)
		if err != nil {
			return nil, listeners, err
		}
		listeners = append(listeners, l)
	}
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, listeners, err
	}
	return ns, listeners, nil
}

func listen(a listenAddr) (*os.File, error) {
	family, sa := unix.AF_INET, unix.Sockaddr(nil)
	if v4 := a.ip.To4(); v4 != nil {
		sa = &unix.SockaddrInet4{Port: int(a.port), Addr: [4]byte(v4)}
	} else {
		family = unix.AF_INET6
		sa = &unix.SockaddrInet6{Port: int(a.port), Addr: [16]byte(a.ip.To16())}
	}
	typ, proto := unix.SOCK_STREAM, unix.IPPROTO_TCP
	if a.queries {
		typ, proto = unix.SOCK_DGRAM, unix.IPPROTO_UDP
	}
	fd, err := unix.Socket(family, typ|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		return nil, fmt.Errorf("listen on %s port %d: %w", a.ip, a.port, err)
	}
	f := os.NewFile(uintptr(fd), fmt.Sprintf("listener %s port %d", a.ip, a.port))
	if a.shared {
		// Whoever asks for the certain address gets its listener. No other uid can share the port.
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			f.Close()
			return nil, fmt.Errorf("share port %d: %w", a.port, err)
		}
	}
	if err := unix.Bind(fd, sa); err != nil {
		f.Close()
		return nil, fmt.Errorf("bind %s port %d: %w", a.ip, a.port, err)
	}
	if a.queries {
		return f, nil
	}
	if err := unix.Listen(fd, 128); err != nil {
		f.Close()
		return nil, fmt.Errorf("listen on %s port %d: %w", a.ip, a.port, err)
	}
	return f, nil
}
