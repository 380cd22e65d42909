package bashserver

import (
	"errors"
	"io"
	"time"

	"github.com/sharness/sharness/bashserver/redact"
	"github.com/sharness/sharness/event"
)

// filter is what a stream of output goes through: first its secrets are taken out, then it is looked at as text, so that
// no sequence comes about by what was taken out.
type filter struct {
	secrets *redact.Filter
	text    *redact.Text
}

// newFilter makes the filter of one stream. What goes into JSON or the log of a job obeys no escape sequence; a terminal
// carries no binary, so nothing of it is refused.
func (j *job) newFilter(to io.Writer) filter {
	text := redact.NewText(to)
	text.Neutralise = j.c.s.cfg.Neutralise || j.p.json || j.job != nil
	text.Refuse = j.c.s.cfg.RefuseBinary && !j.wantsTerminal()
	return filter{j.c.s.secrets.Filter(text), text}
}

// Write and the next two are redact.Filter's.
func (f filter) Write(p []byte) (int, error) { return f.secrets.Write(p) }

func (f filter) idle() error { return f.secrets.Idle() }

func (f filter) wait() time.Duration { return f.secrets.Wait() }

func (f filter) close() error { return errors.Join(f.secrets.Close(), f.text.Close()) }

// What is said of output that is not what the command wrote.
const (
	noteRefused = "binary output was refused; write it to a file, or print it as base64 or hex"
	noteDamaged = "secrets or escape sequences were taken out of binary output, which is not whole any more"
)

// taken sums up what all streams of a command lost, and says what a reader has to know.
func (j *job) taken() []redact.Count {
	var sum []redact.Count
	refused, damaged := false, false
	for _, o := range j.out {
		counts := o.filter.secrets.Counts()
		for _, c := range counts {
			sum = redact.Add(sum, c)
		}
		text := o.filter.text
		refused = refused || text.Binary && text.Refuse
		damaged = damaged || text.Binary && !text.Refuse && (len(counts) > 0 || text.Neutralised > 0)
	}
	if refused {
		j.note(noteRefused)
	}
	if damaged {
		j.note(noteDamaged)
	}
	return sum
}

// report tells of each name by itself, with its number and never the value.
func (j *job) reportTaken(counts []redact.Count) (sum uint64) {
	for _, c := range counts {
		sum += c.N
		detail, kind := "the value of "+c.Name+" was taken out of a command's output", "value"
		if c.Rule {
			detail, kind = "what looks like a secret was taken out of a command's output, by the rule "+c.Name, "rule"
		}
		j.c.s.events.send(event.Event{Type: event.SecretRedacted, Command: &event.Command{ID: j.number}, Count: c.N, Detail: detail,
			Data: map[string]any{"name": c.Name, "by": kind}})
	}
	return sum
}
