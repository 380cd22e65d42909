package launcher

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// runningCommand is one command between RecStart and RecEnded.
type runningCommand struct {
	mu       sync.Mutex
	dom      *domain
	job      bool        // it may outlive its client
	killed   wire.Reason // why it was killed by us
	dead     bool        // killed before it ran
	exceeded uint64      // limits that pulse ended it for
	ended    bool        // nothing can be told to it any more
	hints    map[wire.Hint]bool
	signals  chan int // on their way to it; closed once it has ended
}

// maxCommands bounds the commands of a session that run at once.
const maxCommands = 128

// maxSignals is how many signals may be on their way to a command whose pid 1 is slow to take them.
const maxSignals = 64

// run is the life of one command.
func (sv *server) run(rc *wire.RecordConn, rec wire.Record, number uint64, c *runningCommand, files []*os.File) {
	defer sv.busy.Done()
	defer func() {
		sv.mu.Lock()
		delete(sv.running, rec.ID)
		if len(sv.running) == 0 && sv.lull != nil {
			sv.lull.Begin()
		}
		sv.mu.Unlock()
	}()
	mark := sv.replaced.now()
	// bashd is told before the target runs: it makes itself ready meanwhile, and not when the first output waits. That of a job
	// lets its client go, which ought to hear of a folder outside.
	started := func(sb *sandbox) error {
		r := wire.Record{Type: wire.RecStarted, ID: rec.ID, A: number}
		if sb.master != nil {
			return rc.Send(r, int(sb.master.Fd()))
		}
		return rc.Send(r)
	}
	first := started
	if c.job {
		first = func(*sandbox) error { return nil }
	}
	dom, err := sv.start(files, rec.B, first)
	closeFiles(files)
	if err != nil {
		sv.events.Send(event.Event{Type: event.StartRefused, Command: &event.Command{ID: number}, Detail: "sandbox: " + err.Error()})
		reason := wire.ReasonInternal
		switch {
		case errors.Is(err, errCwd):
			reason = wire.ReasonCwd
		case errors.Is(err, errNoSlot):
			reason = wire.ReasonBusy
		}
		_ = rc.Send(wire.Record{Type: wire.RecRefused, ID: rec.ID, A: uint64(reason)})
		return
	}
	if c.job {
		err = started(dom)
	}
	c.adopt(dom.domain)
	for _, i := range sv.replaced.since(mark) {
		sv.again(dom.domain, i)
	}
	if err != nil {
		c.kill(wire.ReasonShutdown)
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		for sig := range c.signals {
			dom.signal(sig)
		}
	}()
	sv.boxes.fill()
	began := time.Now()
	x := sv.watch(dom.domain, c, sv.timeFor(rec.A))
	if x.left && !c.job {
		sv.tellLeft(rc, rec.ID)
	}
	c.end()
	<-told // a signal that waits for pid 1 goes with it
	sv.measure(dom.domain, began, rec.A)
	end := wire.Record{Type: wire.RecEnded, ID: rec.ID, B: uint64(x.status), C: sv.limits(dom, c, x)}
	if x.signal != 0 {
		end.A, end.B = 1, uint64(x.signal)
	}
	if !x.told {
		<-dom.reaped // the kernel ends what is left in the namespace, pid 1 last
	}
	_ = rc.Send(end)
	if err := sv.boxes.end(dom); err != nil {
		sv.events.Send(event.Event{Type: event.CommandEnd, Command: &event.Command{ID: number}, Detail: "teardown: " + err.Error()})
	}
}

// takeSlot gives a sandbox a number for its group, and an id that no other has.
func (sv *server) takeSlot() (number uint64, slot, uid int, ok bool) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if slot, ok = sv.s.slots.take(); ok {
		sv.nextBox++
	}
	return sv.nextBox, slot, slotUID(sv.s.UID, slot), ok
}

// trim gives back what only many commands at once need.
func (sv *server) trim() {
	sv.retired.trim()
	sv.boxes.nets.trim()
}

func (sv *server) freeSlot(slot int) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.s.slots.free(slot)
}

// stagePids is what pid 1 of a sandbox takes of the pids limit, so that the manifest's number is the command's own.
const stagePids = 1

// maxTries bounds the sandboxes that one command may find ended before it has begun.
const maxTries = 3

// start runs a command in a sandbox. first is called when there is one that is about to run it; its error ends what runs.
func (sv *server) start(files []*os.File, size uint64, first func(*sandbox) error) (*sandbox, error) {
	var dress func(master int) error
	if len(files) == 1 {
		dress = func(master int) error {
			// Rows and columns of the client's terminal; a command may ask for them at once.
			return unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(size), Col: uint16(size >> 16)})
		}
	}
	for try := 1; ; try++ {
		sb, err := sv.boxes.take(dress)
		if err != nil {
			return nil, err
		}
		if try == 1 {
			err = first(sb)
		}
		if err == nil {
			sb.before = sv.meter(sb.cgroup)
			err = sv.boxes.run(sb, files)
		}
		if err == nil {
			return sb, nil
		}
		if err = errors.Join(err, sv.boxes.end(sb)); try == maxTries || dress != nil || !sv.boxes.retry(sb, err) {
			return nil, asCwd(err)
		}
	}
}

// watch waits for the end of a command, and ends it when its time is over. A command that is stopped stays so until it
// is continued, killed or out of time.
func (sv *server) watch(dom *domain, c *runningCommand, t manifest.Timeout) exit {
	if t != manifest.TimeoutNone {
		timer := time.AfterFunc(time.Duration(t), func() { c.stop(wire.ReasonTimeout) })
		defer timer.Stop()
	}
	for {
		if x := dom.next(); x.stopped == 0 {
			return x
		}
	}
}

func (c *runningCommand) adopt(dom *domain) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dom = dom
	if c.dead {
		dom.kill()
	}
}

// end says that the target has ended, and ends what is left with it.
func (c *runningCommand) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	close(c.signals)
	c.dom.kill()
}

func (c *runningCommand) kill(why wire.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.killed == wire.ReasonNone {
		c.killed = why
	}
	c.dead = true
	if c.dom != nil {
		c.dom.kill()
	}
}

func (c *runningCommand) reason() wire.Reason {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killed
}

// domains are those of the commands that run.
func (sv *server) domains() []*domain {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	var out []*domain
	for _, c := range sv.running {
		c.mu.Lock()
		if c.dom != nil && !c.dead {
			out = append(out, c.dom)
		}
		c.mu.Unlock()
	}
	return out
}

func (c *runningCommand) signal(sig int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	select {
	case c.signals <- sig:
	default: // as if it were pending already
	}
}

// hint says whether the command runs and has not been told h.
func (c *runningCommand) hint(h wire.Hint) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dom == nil || c.ended || c.hints[h] {
		return false
	}
	c.hints[h] = true
	return true
}
