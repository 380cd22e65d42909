package bait

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/sidedoor/probe"
)

// ports listens on the host's loopback by TCP, MPTCP and UDP.
func (p *Planted) ports() error {
	for _, multipath := range []bool{false, true} {
		var lc net.ListenConfig
		lc.SetMultipathTCP(multipath) // a listener is multipath by default, and then takes both
		l, err := lc.Listen(context.Background(), "tcp4", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		name, port := "TCP", &p.Bait.TCP
		if multipath {
			name, port = "MPTCP", &p.Bait.MPTCP
		}
		*port = uint16(l.Addr().(*net.TCPAddr).Port)
		p.accept(name, l)
	}
	u, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	p.Bait.UDP = uint16(u.LocalAddr().(*net.UDPAddr).Port)
	p.receive("UDP", u)
	return nil
}

// socketEnv are the variables by which programs find somebody else's daemon, as if all of these were the socket in dir.
func socketEnv(dir string) []string {
	sock := filepath.Join(dir, probe.StreamName)
	return []string{
		"SSH_AUTH_SOCK=" + sock, "GPG_AGENT_INFO=" + sock + ":1:1", "DBUS_SESSION_BUS_ADDRESS=unix:path=" + sock, "DOCKER_HOST=unix://" + sock,
		"DISPLAY=" + sock, "WAYLAND_DISPLAY=" + sock, "XAUTHORITY=" + sock, "XDG_RUNTIME_DIR=" + dir, "TMUX=" + sock + ",1,0", "STY=1." + sock, "KUBECONFIG=" + sock,
		"SUDO_COMMAND=" + sock,
	}
}

// unixSockets listens by pathname and by abstract name.
func (p *Planted) unixSockets() error {
	p.Bait.Stream, p.Bait.Datagram = filepath.Join(p.config.Dir, probe.StreamName), filepath.Join(p.config.Dir, "datagram.sock")
	p.Bait.Abstract = "sharness-" + p.Bait.SecretValue
	for _, s := range []struct{ network, address string }{
		{"unix", p.Bait.Stream}, {"unix", "@" + p.Bait.Abstract}, {"unixpacket", "@" + p.Bait.Abstract + "-seqpacket"},
	} {
		l, err := net.Listen(s.network, s.address)
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		p.accept("unix socket "+s.address, l)
	}
	for _, address := range []string{p.Bait.Datagram, "@" + p.Bait.Abstract + "-datagram"} {
		c, err := net.ListenPacket("unixgram", address)
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		p.receive("unix socket "+address, c)
	}
	p.closing(func() error { return ignoreMissing(os.Remove(p.Bait.Datagram)) })
	// Everyone may connect: only the walls are to be in the way.
	return errors.Join(os.Chmod(p.Bait.Stream, 0o777), os.Chmod(p.Bait.Datagram, 0o777))
}

func (p *Planted) accept(name string, l net.Listener) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.note("a connection to %s%s", name, peer(c))
			c.Close()
		}
	}()
	p.closing(func() error {
		err := l.Close()
		<-done
		return err
	})
}

// peer says who connected to a unix socket (SO_PEERCRED, unix(7)).
func peer(c net.Conn) string {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ""
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return ""
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil || err != nil {
		return ""
	}
	return fmt.Sprintf(", by process %d of uid %d", cred.Pid, cred.Uid)
}

func (p *Planted) receive(name string, c net.PacketConn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 2048)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			p.note("%d bytes to %s", n, name)
			if from != nil && name == "UDP" {
				c.WriteTo([]byte("answer"), from)
			}
		}
	}()
	p.closing(func() error {
		err := c.Close()
		<-done
		return err
	})
}

func ignoreMissing(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
