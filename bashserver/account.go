package bashserver

import (
	"errors"
	"time"

	"github.com/sharness/sharness/bashserver/redact"
	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/event"
)

// announce reports that a command runs.
func (j *job) announce() {
	if j.p.routed {
		j.c.s.events.send(event.Event{Type: event.ExecRouted, Command: &event.Command{ID: j.number}, Target: j.target})
	}
	j.c.s.events.send(event.Event{Type: event.CommandStart, Command: &event.Command{ID: j.number}, Target: j.target, Data: j.logged})
}

// reportRefusal reports that a request was refused before it was a command. What clients say is in no event but for the
// program and the folder they named.
func (c *conn) reportRefusal(err error, no *refusal) {
	if no.status == statusNoJob {
		return
	}
	e := event.Event{Type: event.CommandEnd, Target: c.asked, Data: c.logged, Detail: "not started: " + no.text}
	if errors.As(err, &denial{}) {
		e = event.Event{Type: event.SyscallDenied, Door: "srv-bytes", Layer: "server", Cause: "bash-server", CauseSource: "observed",
			Process: &event.Process{PID: int(c.peer), UID: c.uid}, Target: c.asked, Detail: "request refused: " + no.text}
	}
	c.s.events.send(e)
}

// closing reports how a command ended, and what was taken out of its output.
func (j *job) closing(r wire.Record, took time.Duration, taken []redact.Count) {
	redactions := j.reportTaken(taken)
	for _, l := range limits {
		if j.limits&l.bit == 0 {
			continue
		}
		// The sentence keeps one limit from being counted as a repetition of another.
		j.c.s.events.send(event.Event{Type: event.LimitHit, Command: &event.Command{ID: j.number}, Detail: "a command met its limit: " + l.name + " (" + j.own(l).key + ")",
			Data: map[string]any{"limit": l.name, "key": j.own(l).key}, Hint: &event.Hint{Model: j.sentence(l)}})
	}
	e := &event.Command{ID: j.number, DurationMS: took.Milliseconds(), LimitsHit: limitNames(j.limits), Redactions: redactions}
	if r.A == uint64(wire.KindSignal) {
		e.Signal = int(r.B)
	} else {
		code := int(r.B)
		e.ExitCode = &code
	}
	j.c.s.events.send(event.Event{Type: event.CommandEnd, Command: e})
}

// maxPath bounds a path in an event.
const maxPath = 1000

// cut bounds a path in an event, and marks it: who takes secrets out has to know.
func cut(s string) string {
	if len(s) <= maxPath {
		return s
	}
	return s[:maxPath] + event.Cut
}
