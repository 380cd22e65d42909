package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/event"
	"golang.org/x/sys/unix"
)

// hintPause is how long a hint of one kind is not repeated. A command can make their cause as fast as it likes.
const hintPause = time.Second

// attend serves one bashd to its end. One that breaks the protocol is killed; its keeper starts another, and cannot know
// why.
func (sv *server) attend(rc *wire.RecordConn, p *helperProcess) {
	err := sv.control(rc)
	if errors.Is(err, errHungUp) && p.ends(time.Second) {
		return // its keeper says how
	}
	sv.events.Send(event.Event{Type: event.LayerApplied, Layer: "sharness-bashd", Detail: fmt.Sprintf("sharness-bashd is killed: %v", err)})
	p.signal(unix.SIGKILL)
}

// errHungUp says that bashd closed its control socket: it is about to end, or ought to be.
var errHungUp = errors.New("it closed its control socket")

// control serves the records of one bashd until it is gone. What it holds is closed with it: its connections end, and
// its commands are killed, since nobody would read what they print. Connections that never reached it go to the next.
func (sv *server) control(rc *wire.RecordConn) error {
	defer sv.forget(rc)
	for {
		rec, fds, err := rc.Recv()
		if errors.Is(err, unix.ECONNRESET) {
			continue // it had not read all of ours; what it said last still comes
		}
		if errors.Is(err, io.EOF) {
			return errHungUp
		}
		if err != nil {
			return err
		}
		if err := sv.handle(rc, rec, fds); err != nil {
			return err
		}
	}
}

func (sv *server) forget(rc *wire.RecordConn) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if sv.bashd == rc {
		sv.bashd = nil
	}
	rc.Close()
	// Another bashd may have been started meanwhile, and holds connections of its own.
	for id, holder := range sv.open {
		if holder != rc {
			continue
		}
		delete(sv.open, id)
		if fd, ok := sv.sent[id]; ok {
			delete(sv.sent, id)
			if sv.closed {
				unix.Close(fd)
			} else {
				sv.busy.Go(func() { sv.serve(fd) })
			}
		}
		if c := sv.running[id]; c != nil {
			c.kill(wire.ReasonShutdown)
		}
	}
	sv.changed.Broadcast()
}

// taken closes what was kept of a connection that bashd has.
func (sv *server) taken(id uint64) {
	if fd, ok := sv.sent[id]; ok {
		delete(sv.sent, id)
		unix.Close(fd)
	}
}

// handle acts on one record. bashd is not trusted: every id must be one that it was given and not used already, and check has
// looked at the rest.
func (sv *server) handle(rc *wire.RecordConn, rec wire.Record, fds []int) error {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	files := make([]*os.File, len(fds))
	for i, fd := range fds {
		files[i] = os.NewFile(uintptr(fd), "bashd")
	}
	taken := false
	defer func() {
		if !taken {
			closeFiles(files)
		}
	}()
	if sv.open[rec.ID] != rc {
		return fmt.Errorf("record %d names connection %d, which bashd does not hold", rec.Type, rec.ID)
	}
	if err := check(rec, files); err != nil {
		return fmt.Errorf("connection %d: %w", rec.ID, err)
	}
	// Whatever it says of a connection, it has it.
	sv.taken(rec.ID)
	c := sv.running[rec.ID]
	switch rec.Type {
	case wire.RecStart:
		if c != nil {
			return fmt.Errorf("connection %d has a command already", rec.ID)
		}
		job := rec.A&wire.FlagJob != 0
		if len(sv.running) >= maxCommands || sv.closed || job && sv.jobs() >= jobsOf(sv.s.Manifest) {
			return rc.Send(wire.Record{Type: wire.RecRefused, ID: rec.ID, A: uint64(wire.ReasonBusy)})
		}
		c = &runningCommand{job: job, hints: map[wire.Hint]bool{}, signals: make(chan int, maxSignals)}
		sv.running[rec.ID] = c
		if sv.lull != nil {
			sv.lull.End()
		}
		sv.busy.Add(1)
		taken = true
		sv.nextCmd++
		go sv.run(rc, rec, sv.nextCmd, c, files)
	case wire.RecSignal:
		if c != nil {
			c.signal(int(rec.A))
		}
	case wire.RecKill:
		switch why := wire.Reason(rec.A); {
		case c == nil:
		case why == wire.ReasonStopped:
			c.stop(why)
		default:
			c.kill(why)
		}
	case wire.RecDone:
		if c != nil {
			c.kill(wire.ReasonClientGone)
		}
		delete(sv.open, rec.ID)
		sv.changed.Broadcast()
	}
	return nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// hint tells bashd what something that was just refused in a view means. Which command it was is not known: it goes to
// all that run, to each once, and bashd shows it to those that fail.
func (sv *server) hint(h wire.Hint) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	now := time.Now()
	if now.Sub(sv.hinted[h]) < hintPause {
		return
	}
	sv.hinted[h] = now
	for id, c := range sv.running {
		if rc := sv.open[id]; rc != nil && c.hint(h) {
			_ = rc.Send(wire.Record{Type: wire.RecHint, ID: id, A: uint64(h)}) // may be dropped
		}
	}
}
