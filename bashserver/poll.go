package bashserver

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// poller waits for clients' descriptors. They must stay as they are, blocking or not, because their open file
// descriptions are the client's too: Go's own poller cannot take them, and a thread for each would make an idle stdin
// expensive. One epoll instance and one goroutine serve all; Go's poller waits for the instance, since a thread that sleeps in
// epoll_wait keeps the processor from the goroutine that it has just woken.
type poller struct {
	epfd int
	file *os.File // epfd
	mu   sync.Mutex
	wake map[int32]chan struct{} // by descriptor
}

// errStopped says that a wait was given up because its stop channel closed.
var errStopped = errors.New("stopped")

func newPoller() (*poller, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if err := unix.SetNonblock(epfd, true); err != nil { // os.NewFile asks that
		return nil, errors.Join(fmt.Errorf("fcntl: %w", err), unix.Close(epfd))
	}
	p := &poller{epfd: epfd, file: os.NewFile(uintptr(epfd), "epoll"), wake: map[int32]chan struct{}{}}
	go p.loop()
	return p, nil
}

func (p *poller) loop() {
	events := make([]unix.EpollEvent, 64)
	raw, err := p.file.SyscallConn()
	for {
		n := 0
		if err == nil {
			rerr := raw.Read(func(uintptr) bool {
				n, err = unix.EpollWait(p.epfd, events, 0)
				return n != 0
			})
			err = errors.Join(rerr, err)
		}
		if errors.Is(err, unix.EINTR) {
			err = nil
			continue
		}
		if err != nil {
			panic(fmt.Sprintf("bashserver: epoll_wait on our own descriptor: %v", err))
		}
		p.mu.Lock()
		for _, e := range events[:n] {
			if c := p.wake[e.Fd]; c != nil {
				close(c)
				delete(p.wake, e.Fd)
			}
		}
		p.mu.Unlock()
	}
}

// wait returns when fd is ready for events, at once for a file that is always ready, or with errStopped. One wait for
// a descriptor at a time.
func (p *poller) wait(fd int, events uint32, stop <-chan struct{}) error {
	c := make(chan struct{})
	p.mu.Lock()
	p.wake[int32(fd)] = c
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.wake, int32(fd))
		p.mu.Unlock()
		unix.EpollCtl(p.epfd, unix.EPOLL_CTL_DEL, fd, nil)
	}()
	err := unix.EpollCtl(p.epfd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events | unix.EPOLLONESHOT, Fd: int32(fd)})
	if err == unix.EPERM { // a regular file, /dev/null: never makes anybody wait
		return nil
	}
	if err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	select {
	case <-c:
		return nil
	case <-stop:
		return errStopped
	}
}
