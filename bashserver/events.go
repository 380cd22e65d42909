package bashserver

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
)

// reporter sends events to the process that writes them. It never waits: what finds no room is counted, and the count
// goes out before the next event that does.
type reporter struct {
	f    *os.File
	mu   sync.Mutex
	lost uint64
}

func (r *reporter) send(e event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost > 0 && r.datagram(event.Event{Type: event.EventsLost, Count: r.lost, Detail: "the bash-server's events came faster than they were written"}) {
		r.lost = 0
	}
	if !r.datagram(e) {
		r.lost++
	}
}

func (r *reporter) datagram(e event.Event) bool {
	e.Schema, e.Time = event.Schema, time.Now().UTC()
	b, err := json.Marshal(e)
	if err != nil || len(b) > event.MaxBytes {
		return false
	}
	_, err = unix.SendmsgN(int(r.f.Fd()), b, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	return err == nil
}
