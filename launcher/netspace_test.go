package launcher

import (
	"errors"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/sharness/sharness/internal/kerneltest"
	"golang.org/x/sys/unix"
)

// inside runs fn on a thread in the namespace, which ends with it.
func inside(t *testing.T, ns *os.File, fn func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func inode(t *testing.T, ns *os.File) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(ns.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// lingering leaves a connection of loopback in TIME_WAIT, with every socket closed.
func lingering() error {
	l, err := socketAt(unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	defer unix.Close(l)
	if err := unix.Listen(l, 1); err != nil {
		return err
	}
	at, err := unix.Getsockname(l)
	if err != nil {
		return err
	}
	c, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Connect(c, at); err != nil {
		return err
	}
	s, _, err := unix.Accept(l)
	if err != nil {
		return err
	}
	return errors.Join(unix.Close(c), unix.Close(s))
}

func datagram() error {
	c, err := socketAt(unix.SOCK_DGRAM)
	if err != nil {
		return err
	}
	defer unix.Close(c)
	return unix.Sendto(c, []byte("x"), 0, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{127, 0, 0, 1}})
}

func socketAt(typ int) (int, error) {
	s, err := unix.Socket(unix.AF_INET, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(s, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		unix.Close(s)
		return -1, err
	}
	return s, nil
}

func TestNetworkNamespaceIsUsedAgainOnlyIfNothingHappenedInIt(t *testing.T) {
	kerneltest.RequireRoot(t)
	left := -1
	for _, c := range []struct {
		name  string
		does  func() error
		again bool
	}{
		{"nothing", func() error { return nil }, true},
		{"a port that was bound", func() error {
			s, err := socketAt(unix.SOCK_STREAM)
			return errors.Join(err, unix.Close(s))
		}, true},
		{"a connection that lingers", lingering, false},
		{"a datagram", datagram, false},
		{"a refused connection", func() error {
			_, err := net.DialTimeout("tcp", "127.0.0.1:9", time.Second)
			if !errors.Is(err, unix.ECONNREFUSED) {
				return errors.Join(errors.New("not refused"), err)
			}
			return nil
		}, false},
		{"a socket that somebody still holds", func() (err error) {
			left, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			return err
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNetspaces()
			defer n.close()
			first, err := n.take()
			if err != nil {
				t.Fatal(err)
			}
			keep := dup(first.File) // a number cannot be given away again while it is held
			defer keep.Close()
			inside(t, first.File, c.does)
			n.give(first)
			next, err := n.take()
			if err != nil {
				t.Fatal(err)
			}
			defer next.Close()
			if got := inode(t, next.File) == inode(t, keep); got != c.again {
				t.Errorf("used again: %v, want %v", got, c.again)
			}
			if left >= 0 {
				unix.Close(left)
				left = -1
			}
		})
	}
}
