package launcher

import (
	"time"

	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// jobsOf is how many commands may run on without a client.
func jobsOf(m *manifest.Manifest) int {
	if m.Sandbox.Background.Keep == manifest.KeepNone {
		return 0
	}
	return m.Sandbox.Background.Jobs
}

// jobsLast is true if a command that takes too long would get further as a job.
func jobsLast(m *manifest.Manifest) bool {
	job, command := m.Sandbox.Background.Timeout, m.Sandbox.Timeout
	return job == manifest.TimeoutNone || command != manifest.TimeoutNone && job > command
}

// jobs counts those that run; under mu.
func (sv *server) jobs() (n int) {
	for _, c := range sv.running {
		if c.job {
			n++
		}
	}
	return n
}

// timeFor is the time of a command that was asked for with these flags.
func (sv *server) timeFor(flags uint64) manifest.Timeout {
	switch m := sv.s.Manifest.Sandbox; {
	case flags&wire.FlagJob != 0:
		return m.Background.Timeout
	case flags&wire.FlagNoTimeout != 0:
		return manifest.TimeoutNone
	default:
		return m.Timeout
	}
}

// stopGrace is what a command has to end by itself once it was told to.
const stopGrace = 2 * time.Second

// stop ends a command that may tidy up first: TERM to its group, awake if it was stopped, and after a while KILL to all of it.
// One whose client is gone is killed at once: nobody is there to see what it would still do.
func (c *runningCommand) stop(why wire.Reason) {
	c.mu.Lock()
	if c.killed == wire.ReasonNone {
		c.killed = why
	}
	running := c.dom != nil
	c.mu.Unlock()
	if !running { // it has not begun
		c.kill(why)
		return
	}
	c.signal(int(unix.SIGTERM))
	c.signal(int(unix.SIGCONT))
	time.AfterFunc(stopGrace, func() { c.kill(why) })
}

// leftPause is how long it is not repeated that something was left running. Some tools always leave something.
const leftPause = time.Minute

// tellLeft tells a client that what its command had left running ends with it: whoever started a server with & waits for it in
// vain.
func (sv *server) tellLeft(rc *wire.RecordConn, id uint64) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	now := time.Now()
	if last, said := sv.hinted[wire.HintLeft]; said && now.Sub(last) < leftPause {
		return
	}
	sv.hinted[wire.HintLeft] = now
	_ = rc.Send(wire.Record{Type: wire.RecHint, ID: id, A: uint64(wire.HintLeft)}) // may be dropped
}
