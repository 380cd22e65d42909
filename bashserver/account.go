package bashserver

import (
	"time"

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

// closing reports how a command ended and returns how many secrets were redacted.
func (j *job) closing(r wire.Record, took time.Duration) uint64 {
	counts := make([]uint64, len(j.c.s.cfg.Secrets))
	var sum uint64
	for _, o := range j.out {
		for i, n := range o.filter.Counts {
			counts[i] += n
			sum += n
		}
	}
	for i, n := range counts {
		if n > 0 {
			name := j.c.s.cfg.Secrets[i].Name
			j.c.s.events.send(event.Event{Type: event.SecretRedacted, Command: &event.Command{ID: j.number}, Count: n,
				Detail: "the value of " + name + " was taken out of a command's output", Data: map[string]any{"name": name}})
		}
	}
	for _, l := range limits {
		if j.limits&l.bit == 0 {
			continue
		}
		// The sentence keeps one limit from being counted as a repetition of another.
		j.c.s.events.send(event.Event{Type: event.LimitHit, Command: &event.Command{ID: j.number}, Detail: "a command met its limit: " + l.name,
			Data: map[string]any{"limit": l.name, "key": l.key}, Hint: &event.Hint{Model: j.sentence(l)}})
	}
	e := &event.Command{ID: j.number, DurationMS: took.Milliseconds(), LimitsHit: limitNames(j.limits), Redactions: sum}
	if r.A == uint64(wire.KindSignal) {
		e.Signal = int(r.B)
	} else {
		code := int(r.B)
		e.ExitCode = &code
	}
	j.c.s.events.send(event.Event{Type: event.CommandEnd, Command: e})
	return sum
}

// cut bounds a path in an event.
func cut(s string) string { return s[:min(len(s), 1024)] }
