package bashserver

import (
	"fmt"
	"io"
	"runtime"

	"golang.org/x/sys/unix"
)

// clientFD is one of a client's descriptors 0-2. Reading and writing never wait inside the kernel where that can be
// had (RWF_NOWAIT: sockets and pipes since Linux 6.4), else only after epoll said that they would not have to. One
// goroutine reads, one at a time writes.
type clientFD struct {
	fd       int
	stat     unix.Stat_t
	flags    int // F_GETFL
	blocking bool
	p        *poller
}

// file systems whose files are knobs: what a client can open but not turn must not be turned by us for it.
var knobs = map[int64]bool{unix.PROC_SUPER_MAGIC: true, unix.SYSFS_MAGIC: true, unix.CGROUP_SUPER_MAGIC: true,
	unix.CGROUP2_SUPER_MAGIC: true, unix.DEBUGFS_MAGIC: true, unix.TRACEFS_MAGIC: true}

// newClientFD checks what a client sent as descriptor number n. It does not take fd over when it fails.
func newClientFD(fd, n int, p *poller) (*clientFD, error) {
	c := &clientFD{fd: fd, p: p}
	if err := unix.Fstat(fd, &c.stat); err != nil {
		return nil, fmt.Errorf("descriptor %d: fstat: %w", n, err)
	}
	var err error
	if c.flags, err = unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil {
		return nil, fmt.Errorf("descriptor %d: fcntl: %w", n, err)
	}
	kind := c.stat.Mode & unix.S_IFMT
	if kind != unix.S_IFREG && kind != unix.S_IFIFO && kind != unix.S_IFSOCK && kind != unix.S_IFCHR || c.flags&unix.O_PATH != 0 {
		return nil, fmt.Errorf("descriptor %d is no file, pipe, socket or terminal", n)
	}
	if kind == unix.S_IFREG && n > 0 {
		var fs unix.Statfs_t
		if err := unix.Fstatfs(fd, &fs); err != nil {
			return nil, fmt.Errorf("descriptor %d: fstatfs: %w", n, err)
		}
		if knobs[fs.Type] {
			return nil, fmt.Errorf("descriptor %d is a file of the kernel's", n)
		}
	}
	c.blocking = kind == unix.S_IFCHR || kind == unix.S_IFREG
	return c, nil
}

func (c *clientFD) regular() bool { return c.stat.Mode&unix.S_IFMT == unix.S_IFREG }

// null says whether it is /dev/null, which has nothing to read and nothing to wait for.
func (c *clientFD) null() bool {
	return c.stat.Mode&unix.S_IFMT == unix.S_IFCHR && c.stat.Rdev == unix.Mkdev(1, 3)
}

func (c *clientFD) terminal() bool {
	if c.stat.Mode&unix.S_IFMT != unix.S_IFCHR {
		return false
	}
	_, err := unix.IoctlGetTermios(c.fd, unix.TCGETS)
	return err == nil
}

// same says whether both name one file in one way, so that one pipe must serve both to keep the order of output.
func (c *clientFD) same(d *clientFD) bool {
	return c.stat.Dev == d.stat.Dev && c.stat.Ino == d.stat.Ino && c.stat.Rdev == d.stat.Rdev &&
		c.stat.Mode == d.stat.Mode && c.flags == d.flags
}

// read reads at the file's own position. It gives io.EOF at the end and errStopped when stop closes first.
func (c *clientFD) read(b []byte, stop <-chan struct{}) (int, error) {
	return c.attempt(unix.EPOLLIN|unix.EPOLLRDHUP, stop, func(nowait bool) (int, error) {
		n, err := 0, error(nil)
		if nowait {
			n, err = unix.Preadv2(c.fd, [][]byte{b}, -1, unix.RWF_NOWAIT)
		} else {
			n, err = unix.Read(c.fd, b)
		}
		if n == 0 && err == nil {
			err = io.EOF
		}
		return n, err
	})
}

// write writes all of b at the file's own position, unless stop closes first.
func (c *clientFD) write(b []byte, stop <-chan struct{}) error {
	for len(b) > 0 {
		n, err := c.attempt(unix.EPOLLOUT, stop, func(nowait bool) (int, error) {
			if nowait {
				return unix.Pwritev2(c.fd, [][]byte{b}, -1, unix.RWF_NOWAIT)
			}
			if c.regular() {
				return unix.Write(c.fd, b)
			}
			// What a pipe that is ready takes at once.
			return unix.Write(c.fd, b[:min(len(b), 4096)])
		})
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (c *clientFD) attempt(events uint32, stop <-chan struct{}, call func(nowait bool) (int, error)) (int, error) {
	for {
		if c.blocking {
			if err := c.p.wait(c.fd, events, stop); err != nil {
				return 0, err
			}
		}
		n, err := call(!c.blocking)
		switch err {
		case unix.EINTR:
		case unix.EOPNOTSUPP:
			if c.blocking {
				return 0, err
			}
			c.blocking = true
		case unix.EAGAIN:
			if c.blocking { // somebody else was faster; ask epoll again
				runtime.Gosched()
				continue
			}
			if err := c.p.wait(c.fd, events, stop); err != nil {
				return 0, err
			}
		default:
			return max(n, 0), err
		}
	}
}

func (c *clientFD) close() { unix.Close(c.fd) }
