package report

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/internal/sidedoor/probe"
)

// matching joins what the probe said with what the log says: attempts are made one after the other, so that each denial
// belongs to the attempt at whose time it happened.
type matching struct {
	run     *RunReport
	header  *Header
	control map[string]*Attempt // nil: there is none
	tried   map[string]bool
	events  []*event.Event
	cut     []time.Time // before each attempt: what is older belongs to one before it
	printed int         // attempts that are in the table
	repeats uint64      // denials that were left out as repetitions of one that is in the log, and have no line that counts them
	arrived []time.Time // when each result came
}

func newMatching(run, control *RunReport) *matching {
	m := &matching{run: run, tried: map[string]bool{}}
	if control != nil {
		m.control = map[string]*Attempt{}
		for i := range control.Attempts {
			m.control[control.Attempts[i].ID] = &control.Attempts[i]
		}
	}
	return m
}

func (m *matching) result(r *probe.Result) {
	cut := r.Start
	if n := len(m.run.Attempts); n > 0 {
		// Half way between the end of the last and the beginning of this: two clocks were read.
		last := m.run.Attempts[n-1]
		end := last.Start.Add(time.Duration(last.MS * float64(time.Millisecond)))
		cut = end.Add(r.Start.Sub(end) / 2)
	}
	a := Attempt{Result: *r}
	a.Detail, a.ID, a.Door, a.What = event.Escape(r.Detail), event.Escape(r.ID), event.Escape(r.Door), event.Escape(r.What)
	a.Wanted = m.run.Traced && told(r, m.run.Files)
	a.Allowed = m.header.allows(r)
	m.judgeControl(&a)
	m.tried[r.ID] = true
	m.run.Attempts = append(m.run.Attempts, a)
	m.cut = append(m.cut, cut)
	m.arrived = append(m.arrived, time.Now())
}

// allows says why an attempt may get through: its door is open by somebody's word, or the manifest lists the very file.
func (h *Header) allows(r *probe.Result) string {
	if d := h.door(r.Door); d.Allowed != "" {
		return d.Allowed
	}
	if h.Memfd && sidedoor.OpenedByMemfd(r.ID) {
		return "manifest"
	}
	// Pid 1 of the domain is the orchestrator's parent, and has its uid.
	if rest := h.door("pid1").Rest; rest != "" && (r.Door == "pid1" || r.ID == "sig/parent") {
		return rest
	}
	if path, ok := strings.CutPrefix(r.What, "execute "); ok && h.Manifest != "" && r.Door == "exec-direct" {
		if real, err := filepath.EvalSymlinks(path); err == nil && slices.Contains(h.Pinned, real) {
			return "the manifest pins " + real
		}
	}
	return ""
}

// judgeControl says what the same attempt did without sharness, or why that says nothing.
func (m *matching) judgeControl(a *Attempt) {
	if m.control == nil {
		return
	}
	c := m.control[a.ID]
	switch {
	case c == nil:
		a.ControlNote = "not made without sharness"
		return
	case c.Verdict == probe.Open:
	case a.Control == probe.NoServer:
		a.ControlNote = "impossible without a session: there is no bash-server"
	case a.Control == probe.Refused && c.Verdict != probe.Impossible:
		a.ControlNote = "impossible for an ordinary user: the kernel refuses it to all but root (" + c.Detail + ")"
	default:
		a.ControlNote = "impossible on this host: " + c.Detail
	}
	a.ControlVerdict = c.Verdict
}

func (m *matching) event(e *event.Event) {
	switch {
	case e.Type == event.EventsLost && e.Cause == "repeats":
		m.repeats += max(e.Count, 1)
	case e.Type == event.EventsLost:
		m.run.Lost += max(e.Count, 1)
	case e.Type == event.LayerOpen && e.Layer == "trace":
		m.run.Untraced = event.Escape(e.Detail)
	case e.Errno == "" && e.CauseSource != "kernel" || e.Process == nil || e.Phase == "probe":
	default:
		m.events = append(m.events, e)
	}
}

// finish assigns every event.
func (m *matching) finish() { m.assign(0, len(m.run.Attempts)) }

// assign looks for the events of some attempts. Where the reader of the log was behind, repetitions of a denial are counted
// in a later line of the same kind, or in the last (docs/tracing.md, Losses).
func (m *matching) assign(from, to int) {
	counted := map[string]uint64{}
	before := map[string]bool{}
	for _, e := range m.events {
		counted[e.Errno] += max(e.Count, 1) - 1
	}
	for i := from; i < to; i++ {
		a := &m.run.Attempts[i]
		a.Seen, a.Counted, a.Events = false, false, 0
		for _, e := range m.events {
			if e.Time.Before(m.cut[i]) || i+1 < len(m.cut) && !e.Time.Before(m.cut[i+1]) {
				continue
			}
			a.Events++
			if e.Errno == a.Errno && !a.Seen {
				a.Seen, a.EventDoor = true, event.Escape(e.Door)
				a.Layer, a.Measured = layerOf(e.Cause), layerOf(e.Cause) != ""
			}
		}
		if a.Wanted && !a.Seen && before[a.Door+a.Errno] {
			switch {
			case counted[a.Errno] > 0:
				counted[a.Errno]--
				a.Seen, a.Counted = true, true
			case m.repeats > 0 && to-from == len(m.run.Attempts):
				m.repeats--
				a.Seen, a.Counted = true, true
			}
		}
		before[a.Door+a.Errno] = before[a.Door+a.Errno] || a.Seen
	}
}

// layerOf is the layer that an event names; what the kernel refuses by itself is none.
func layerOf(cause string) string {
	if slices.Contains([]string{"landlock", "view", "seccomp", "net", "mount", "memfd", "protect"}, cause) {
		return cause
	}
	return ""
}
