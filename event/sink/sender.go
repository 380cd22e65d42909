package sink

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
)

// Sender is a producer's end. Its methods may be called from several goroutines, and on a nil Sender, which sends
// nothing: a program without a sink runs all the same.
type Sender struct {
	file *os.File
	name string

	mu       sync.Mutex
	lost     uint64 // since the last report that came through
	lostEver uint64
	told     time.Time // when that was
}

// NewSender takes over file, the sending end of a Pair. name says whose losses are reported.
func NewSender(file *os.File, name string) *Sender { return &Sender{file: file, name: name} }

// Send hands e over without ever waiting. It fills in schema and, when it is zero, the time. What could not be handed
// over is counted, and reported as events.lost with the next event that goes through, once in event.LossPause.
func (s *Sender) Send(e event.Event) {
	if s == nil {
		return
	}
	e.Schema = event.Schema
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Time = e.Time.UTC()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost > 0 && time.Since(s.told) >= event.LossPause && s.tell() {
		s.lost, s.told = 0, time.Now()
	}
	if !s.write(e) {
		s.lost++
		s.lostEver++
	}
}

// tell reports what was lost.
func (s *Sender) tell() bool {
	return s.write(event.Event{Schema: event.Schema, Time: time.Now().UTC(), Type: event.EventsLost, Count: s.lost, Cause: "queue",
		Detail: fmt.Sprintf("%s: the sink did not take them in time", s.name)})
}

func (s *Sender) write(e event.Event) bool {
	line, err := event.Encode(&e)
	if err != nil {
		return false
	}
	raw, err := s.file.SyscallConn()
	if err != nil {
		return false
	}
	sent := false
	err = raw.Control(func(fd uintptr) {
		for {
			err := unix.Sendto(int(fd), line, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
			if err == unix.EINTR {
				continue
			}
			sent = err == nil
			return
		}
	})
	return err == nil && sent
}

// Lost is how many events could not be handed over so far.
func (s *Sender) Lost() uint64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lostEver
}

// Close tries once more to report losses, then closes the descriptor.
func (s *Sender) Close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost > 0 {
		s.tell()
	}
	return s.file.Close()
}
