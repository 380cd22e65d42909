package protect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Message is the type of a record between the supervisor and the watcher. The table is closed.
type Message uint64

// The messages there are.
const (
	// watcher to supervisor
	Ready    Message = 1 // absent names are watched; A: watches that could not be set (those are polled); B, C: Config.Started, in seconds and nanoseconds
	Swept    Message = 2 // answer to Sweep; A: taken away so far, B: repositories created, C: what could not be done
	Replaced Message = 3 // A: index in Set.Existing; somebody outside replaced it, which detached it in every view
	Hint     Message = 4 // A: HintGitConfig; something just failed in a view, and its stderr deserves the hint
	// supervisor to watcher
	Sweep Message = 16 // no process of the session is left: check everything once more
)

// HintGitConfig says that a command tried to change the configuration of a protected repository.
const HintGitConfig uint64 = 1

// Record is one message; four little-endian u64 on a seqpacket socket, without descriptors.
type Record struct {
	Type    Message
	A, B, C uint64
}

const recordBytes = 32

// Send writes one record. It does not wait: a supervisor that does not read loses the record (unix.EAGAIN).
func (r Record) Send(f *os.File) error {
	var b [recordBytes]byte
	for i, v := range []uint64{uint64(r.Type), r.A, r.B, r.C} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	if err := unix.Sendto(int(f.Fd()), b[:], unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, nil); err != nil {
		return fmt.Errorf("watcher control: send: %w", err)
	}
	return nil
}

// Receive waits for one record. io.EOF means that the other side is gone. Every other error ends the connection.
func Receive(f *os.File) (Record, error) {
	var b [recordBytes + 1]byte
	n, _, err := unix.Recvfrom(int(f.Fd()), b[:], 0)
	for err == unix.EINTR || err == unix.ECONNRESET { // reset says, once, that it had not read all of ours; what it said last still comes
		n, _, err = unix.Recvfrom(int(f.Fd()), b[:], 0)
	}
	switch {
	case err != nil:
		return Record{}, fmt.Errorf("watcher control: receive: %w", err)
	case n == 0:
		return Record{}, io.EOF
	case n != recordBytes:
		return Record{}, fmt.Errorf("watcher control: record of %d bytes", n)
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	r := Record{Message(word(0)), word(1), word(2), word(3)}
	switch r.Type {
	case Ready, Swept, Replaced, Hint, Sweep:
		return r, nil
	}
	return Record{}, errors.New("watcher control: unknown record")
}
