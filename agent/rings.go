package agent

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/bpf"
)

// execInterval is how long a record of what runs may lie in its ring: those come without a wake-up, which would cost
// more than the rest of the record. The kernel side wakes the reader when a quarter is full.
const execInterval = 50 * time.Millisecond

// rings are the channels from the kernel side.
type rings struct {
	exec    *ringbuf.Reader
	denials []*ringbuf.Reader
	epoll   int
	wake    int // eventfd that ends a wait
}

func openRings(m *bpf.TraceMaps) (r *rings, err error) {
	r = &rings{epoll: -1, wake: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return r, fmt.Errorf("epoll_create1: %w", err)
	}
	if r.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return r, fmt.Errorf("eventfd: %w", err)
	}
	if err := r.watch(r.wake); err != nil {
		return r, err
	}
	if r.exec, err = r.open(m.ExecRing); err != nil {
		return r, err
	}
	for _, ring := range []*ebpf.Map{m.DenialExecRing, m.DenialProcessRing, m.DenialNetRing, m.DenialFileRing} {
		reader, err := r.open(ring)
		if err != nil {
			return r, err
		}
		r.denials = append(r.denials, reader)
	}
	return r, nil
}

func (r *rings) open(m *ebpf.Map) (*ringbuf.Reader, error) {
	reader, err := ringbuf.NewReader(m)
	if err != nil {
		return nil, err
	}
	reader.SetDeadline(time.Unix(1, 0)) // never waits: the wait is for all rings at once
	return reader, r.watch(m.FD())
}

func (r *rings) watch(fd int) error {
	if err := unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// wait returns when a denial came, the ring of what runs fills up, a while has passed, or stop was called.
func (r *rings) wait() error {
	var events [8]unix.EpollEvent
	_, err := unix.EpollWait(r.epoll, events[:], int(execInterval/time.Millisecond))
	if err != nil && err != unix.EINTR {
		return fmt.Errorf("epoll_wait: %w", err)
	}
	return nil
}

func (r *rings) stop() {
	one := [8]byte{1}
	_, _ = unix.Write(r.wake, one[:]) // fails only when it was woken 2^64 times before
}

// drain hands over what lies in one ring, without waiting.
func drain(reader *ringbuf.Reader, rec *ringbuf.Record, handle func(raw []byte)) error {
	if reader.AvailableBytes() == 0 {
		return nil
	}
	for {
		err := reader.ReadInto(rec)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read ring: %w", err)
		}
		handle(rec.RawSample)
	}
}

func (r *rings) close() error {
	var errs []error
	for _, reader := range append(r.denials, r.exec) {
		if reader != nil {
			errs = append(errs, reader.Close())
		}
	}
	for _, fd := range []int{r.epoll, r.wake} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}
