package bashserver

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
)

// reporter sends events to the process that writes them. It never waits: what finds no room is counted, and the count
// goes out before the next event that does, once in event.LossPause: each count is a line.
type reporter struct {
	f    *os.File
	mu   sync.Mutex
	lost uint64
	told time.Time // when the last count went out
}

func (r *reporter) send(e event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost > 0 && time.Since(r.told) >= event.LossPause {
		r.tell()
	}
	if !r.datagram(e) {
		r.lost++
	}
}

// tell says how many events found no room.
func (r *reporter) tell() {
	if r.datagram(event.Event{Type: event.EventsLost, Count: r.lost, Cause: "queue", Detail: "the bash-server's events came faster than they were written"}) {
		r.lost, r.told = 0, time.Now()
	}
}

// close tells what has not been told.
func (r *reporter) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost > 0 {
		r.tell()
	}
}

func (r *reporter) datagram(e event.Event) bool {
	e.Schema, e.Time = event.Schema, time.Now().UTC()
	b, err := event.Encode(&e)
	if err != nil {
		return false
	}
	_, err = unix.SendmsgN(int(r.f.Fd()), b, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	return err == nil
}
