package attempt

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/sidedoor/probe"
)

func dialUnix(path string, kind int) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	tv := unix.NsecToTimeval(int64(3 * time.Second))
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv)
	for {
		switch err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err {
		case nil:
			return fd, nil
		case unix.EINTR: // nothing was begun
		default:
			unix.Close(fd)
			return -1, err
		}
	}
}

func dial(path string, kind int) Outcome {
	fd, err := dialUnix(path, kind)
	if err == nil {
		unix.Close(fd)
	}
	return judge("connect "+path, err, unix.EPROTOTYPE)
}

func unixSockets() []Attempt {
	const door = "unix-path"
	a := []Attempt{
		{door + "/bait-stream", door, "connect to a daemon's socket outside", Opens, func(t *Target) Outcome {
			if t.Stream == "" {
				return impossible("no bait")
			}
			return dial(t.Stream, unix.SOCK_STREAM)
		}},
		{door + "/bait-datagram", door, "sendto a daemon's datagram socket outside", Opens, func(t *Target) Outcome {
			if t.Datagram == "" {
				return impossible("no bait")
			}
			return withSocket(unix.AF_UNIX, unix.SOCK_DGRAM, 0, func(fd int) Outcome {
				return judge("sendto", unix.Sendto(fd, []byte("unix"), 0, &unix.SockaddrUnix{Name: t.Datagram}))
			})
		}},
		{door + "/bait-symlink", door, "connect to it through a symbolic link in the workspace", Opens, func(t *Target) Outcome {
			if t.Stream == "" {
				return impossible("no bait")
			}
			link := t.scratch("sock")
			if err := os.Symlink(t.Stream, link); err != nil {
				return judge("symlink", err)
			}
			return dial(link, unix.SOCK_STREAM)
		}},
		{door + "/any", door, "connect to any socket that can be found", Varies, scanSockets},
	}
	abstract := []Attempt{
		{"unix-abstract/stream", "unix-abstract", "connect to an abstract socket outside", Opens, func(t *Target) Outcome {
			if t.Abstract == "" {
				return impossible("no bait")
			}
			return dial("@"+t.Abstract, unix.SOCK_STREAM)
		}},
		{"unix-abstract/seqpacket", "unix-abstract", "connect to a seqpacket abstract socket outside", Opens, func(t *Target) Outcome {
			if t.Abstract == "" {
				return impossible("no bait")
			}
			return dial("@"+t.Abstract+"-seqpacket", unix.SOCK_SEQPACKET)
		}},
		{"unix-abstract/datagram", "unix-abstract", "sendto an abstract datagram socket outside", Opens, func(t *Target) Outcome {
			if t.Abstract == "" {
				return impossible("no bait")
			}
			return withSocket(unix.AF_UNIX, unix.SOCK_DGRAM, 0, func(fd int) Outcome {
				return judge("sendto", unix.Sendto(fd, []byte("abstract"), 0, &unix.SockaddrUnix{Name: "@" + t.Abstract + "-datagram"}))
			})
		}},
		{"unix-abstract/known", "unix-abstract", "connect to abstract sockets of known daemons", Varies, func(*Target) Outcome {
			var all []Outcome
			for _, n := range []string{"/tmp/.X11-unix/X0", "/tmp/.ICE-unix/1", "/containerd-shim/moby/shim.sock", "/org/kernel/linux/storage/multipathd", "ISCSIADM_ABSTRACT_NAMESPACE"} {
				all = append(all, dial("@"+n, unix.SOCK_STREAM))
			}
			return worst(all...)
		}},
	}
	uid := os.Getuid()
	for _, p := range []string{"/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/crio/crio.sock",
		"/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/notify", "/run/systemd/journal/socket", "/run/systemd/io.systemd.DynamicUser",
		"/run/snapd.socket", "/run/cups/cups.sock", "/run/udev/control", "/run/acpid.socket", "/run/libvirt/libvirt-sock", "/run/lxd.socket", "/dev/log", "/tmp/.X11-unix/X0",
		"/run/user/%d/bus", "/run/user/%d/systemd/private", "/run/user/%d/gnupg/S.gpg-agent", "/run/user/%d/keyring/ssh", "/run/user/%d/wayland-0",
		"/run/user/%d/pipewire-0", "/run/user/%d/podman/podman.sock", "/run/nscd/socket", "/run/sharness/control.sock"} {
		path := p
		if strings.Contains(p, "%d") {
			path = fmt.Sprintf(p, uid)
		}
		a = append(a, Attempt{door + "/" + nameOf(strings.ReplaceAll(p, "%d", "UID")), door, "connect to " + p, Varies, func(*Target) Outcome {
			return worst(dial(path, unix.SOCK_STREAM), dial(path, unix.SOCK_DGRAM), dial(path, unix.SOCK_SEQPACKET))
		}})
	}
	return append(a, abstract...)
}

// scanSockets connects to every socket in sight beside the bash-server's, which is there to be connected to, and bait of
// others. It looks at a bounded number of names.
func scanSockets(t *Target) Outcome {
	const maxNames = 20000
	names, found := 0, 0
	best := absent("no socket is in sight")
	for _, root := range []string{"/run", "/tmp", "/var/run", "/var/lib", "/home", "/root", "/dev/shm", t.Workspace, t.State} {
		filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			names++
			if names > maxNames {
				return fs.SkipAll
			}
			if err != nil || d.Type()&fs.ModeSocket == 0 || path == serverSocket() || d.Name() == probe.StreamName && path != t.Stream {
				return nil
			}
			found++
			for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET} {
				best = worst(best, dial(path, kind))
			}
			return nil
		})
	}
	if best.Verdict == Closed {
		best.Detail = fmt.Sprintf("%d sockets in sight, none lets itself be connected: %s", found, best.Detail)
	}
	return best
}

func bindUnix(path string) Outcome {
	return withSocket(unix.AF_UNIX, unix.SOCK_STREAM, 0, func(fd int) Outcome {
		return judge("bind "+path, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	})
}
