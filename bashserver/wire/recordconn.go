package wire

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// RecordConn is one end of the seqpacket socket between bashd and supervisor. Send may be called by many at once,
// Recv by one.
//
// Send never waits: the socket takes some hundred records (SO_SNDBUF, each counts with its skb), and two sides that both
// wait for room in it, each in the goroutine that ought to read, would wait for good. What finds no room stands in a queue.
type RecordConn struct {
	c        *net.UnixConn
	raw      syscall.RawConn
	patience time.Duration // 0: for good

	mu       sync.Mutex
	queue    []parcel
	draining bool  // a goroutine sends what is in queue, and it alone sends
	failed   error // why nothing can be sent any more
}

// parcel is a record that waits, with duplicates of its descriptors.
type parcel struct {
	rec Record
	fds []int
}

// How many records may wait. Those that can be done without are refused first, so that there is always room for what
// a connection cannot: it has few of them, and there are few connections.
const (
	maxOptional = 256
	maxQueue    = 4096
)

// ErrBusy says that a record that can be done without (RecConn, RecHint, RecSignal) was not taken, since the other
// side is behind. The connection goes on.
var ErrBusy = errors.New("control socket: too many records wait")

var errDeaf = errors.New("control socket: the other side does not read")

func optional(t RecordType) bool { return t == RecConn || t == RecHint || t == RecSignal }

// Patience is how long a supervisor lets bashd not read before it gives up on it.
const Patience = 5 * time.Second

// NewRecordConn takes the socket over; f is closed. A peer that reads nothing for patience ends the connection; with 0
// it may take as long as it likes.
func NewRecordConn(f *os.File, patience time.Duration) (*RecordConn, error) {
	c, err := unixConn(f)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return &RecordConn{c: c, raw: raw, patience: patience}, nil
}

// Send sends one record with its descriptors, which stay open here, now or as soon as the peer has read what was sent
// before. ErrBusy leaves the connection as it is; after another error nothing more can be sent.
func (r *RecordConn) Send(rec Record, fds ...int) error {
	low, high, ok := recordFDs(rec.Type)
	if !ok || len(fds) < low || len(fds) > high {
		panic(fmt.Sprintf("wire: record %d with %d descriptors made by ourselves", rec.Type, len(fds)))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed != nil {
		return r.failed
	}
	if !r.draining {
		if err := r.try(rec, fds); !errors.Is(err, unix.EAGAIN) {
			return err
		}
	}
	if optional(rec.Type) && len(r.queue) >= maxOptional {
		return ErrBusy
	}
	if len(r.queue) >= maxQueue {
		r.fail(errDeaf)
		return errDeaf
	}
	p := parcel{rec: rec}
	for _, fd := range fds {
		// The caller closes its own, maybe long before they are sent.
		d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			CloseAll(p.fds)
			return fmt.Errorf("control socket: duplicate: %w", err)
		}
		p.fds = append(p.fds, d)
	}
	r.queue = append(r.queue, p)
	if !r.draining {
		r.draining = true
		go r.drain()
	}
	return nil
}

// try sends without waiting; it gives EAGAIN when there is no room.
func (r *RecordConn) try(rec Record, fds []int) (err error) {
	werr := r.raw.Write(func(s uintptr) bool {
		err = sendRecord(int(s), rec, fds)
		return true
	})
	return errors.Join(werr, err)
}

func sendRecord(s int, rec Record, fds []int) error {
	b := rec.Encode()
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for {
		_, err := unix.SendmsgN(s, b[:], oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) // a packet is sent whole or not
		if err != unix.EINTR {
			return os.NewSyscallError("sendmsg", err)
		}
	}
}

// drain sends the queue, and ends with it.
func (r *RecordConn) drain() {
	for {
		r.mu.Lock()
		if r.failed != nil || len(r.queue) == 0 {
			r.draining = false
			r.mu.Unlock()
			return
		}
		p := r.queue[0]
		r.queue[0] = parcel{}
		r.queue = r.queue[1:]
		r.mu.Unlock()
		err := r.deliver(p)
		CloseAll(p.fds)
		if err != nil {
			r.mu.Lock()
			r.fail(err)
			r.mu.Unlock()
		}
	}
}

// tries divide the patience. A process that was stopped finds its deadline gone when it is continued, whatever its
// peer has done meanwhile: only several in a row mean something.
const tries = 5

// deliver waits until the peer takes one record.
func (r *RecordConn) deliver(p parcel) error {
	for n := 0; ; n++ {
		if r.patience > 0 {
			if err := r.c.SetWriteDeadline(time.Now().Add(r.patience / tries)); err != nil {
				return err
			}
		}
		var err error
		werr := r.raw.Write(func(s uintptr) bool {
			err = sendRecord(int(s), p.rec, p.fds)
			return !errors.Is(err, unix.EAGAIN)
		})
		if errors.Is(werr, os.ErrDeadlineExceeded) && n < tries-1 {
			continue
		}
		if errors.Is(werr, os.ErrDeadlineExceeded) {
			return errDeaf
		}
		// Send tries without a deadline.
		return errors.Join(werr, err, r.c.SetWriteDeadline(time.Time{}))
	}
}

// fail ends the connection, and Recv with it. r.mu is held.
func (r *RecordConn) fail(err error) {
	if r.failed == nil {
		r.failed = err
	}
	for _, p := range r.queue {
		CloseAll(p.fds)
	}
	r.queue = nil
	r.c.Close()
}

// Recv reads one record. The descriptors are close-on-exec and belong to the caller. io.EOF means that the other side
// is gone; an error that wraps ErrProtocol that it must be dropped.
func (r *RecordConn) Recv() (Record, []int, error) {
	var b [RecordBytes + 1]byte // one more: a longer packet shows as a wrong size instead of being cut
	n, fds, err := RecvRights(r.c, b[:], MaxRecordFDs)
	if errors.Is(err, net.ErrClosed) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.failed != nil {
			err = r.failed
		}
		return Record{}, nil, err
	}
	if err != nil {
		return Record{}, nil, err
	}
	rec, err := DecodeRecord(b[:n])
	if err == nil {
		if low, high, _ := recordFDs(rec.Type); len(fds) < low || len(fds) > high {
			err = protocolError("record %d with %d descriptors", rec.Type, len(fds))
		}
	}
	if err != nil {
		CloseAll(fds)
		return Record{}, nil, err
	}
	return rec, fds, nil
}

// Close closes the socket; what waits is not sent.
func (r *RecordConn) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail(net.ErrClosed)
	return nil
}
