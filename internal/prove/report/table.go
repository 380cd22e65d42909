package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/sidedoor/probe"
)

// table is what a person sees while it goes.
type table struct {
	w   io.Writer
	all bool // a line for each attempt
	h   *Header
}

func (t *table) header(h *Header) {
	t.h = h
	fmt.Fprintf(t.w, "sharness prove %s: Linux %s %s, %s, cgroups %s, Landlock ABI %d\n", h.Version, h.Kernel, h.Machine, h.Distribution, h.Cgroups, h.LandlockABI)
}

const row = "%-15s %-9s %-8s %-32s %-30s %-7s %8s\n"

func (t *table) begin(r *RunReport) {
	switch r.Mode {
	case Control:
		fmt.Fprintf(t.w, "\n%s: the same attempts as an ordinary user, without sharness …\n", strings.ToUpper(r.Name))
		return
	case Ablation:
		return
	case Survey:
		fmt.Fprintf(t.w, "\nMANIFEST %s: what its agent may do; the probe took its place, in a workspace and with a state of its own\n", event.Escape(t.h.Manifest))
		return
	case Sandbox:
		fmt.Fprintf(t.w, "\n%s: as a command in a sandbox of the bash-server\n", strings.ToUpper(r.Name))
	default:
		fmt.Fprintf(t.w, "\n%s: as the orchestrator of a session\n", strings.ToUpper(r.Name))
	}
	fmt.Fprintf(t.w, row, "DOOR", "CONTROL", "VERDICT", "ERRNO", "LAYER", "EVENTS", "MS")
}

// settle is how long an event may take to come; 99 in 100 take 0.14 ms.
const settle = 300 * time.Millisecond

// settled prints the doors that are through: all of them when the run has ended.
func (t *table) settled(m *matching, ended bool) {
	if m.run.Mode != Session && m.run.Mode != Sandbox {
		return
	}
	as := m.run.Attempts
	for m.printed < len(as) {
		next := m.printed
		for next < len(as) && as[next].Door == as[m.printed].Door {
			next++
		}
		if !ended && (next == len(as) || time.Since(m.arrived[next]) < settle) {
			return
		}
		if !ended {
			m.assign(m.printed, next)
		}
		t.door(as[m.printed:next], m.run)
		m.printed = next
	}
}

func (t *table) door(as []Attempt, r *RunReport) {
	d := summarize(as, t.h.door(as[0].Door), r)
	fmt.Fprintf(t.w, row, d.id, d.control(), d.verdict, fitting(d.errno), d.layers(), d.events(), fmt.Sprintf("%.1f", d.ms))
	for _, a := range as {
		bad := a.Verdict == probe.Open && a.Allowed == "" || a.Verdict == probe.Error || a.Wanted && !a.Seen
		if t.all || bad || a.permitted() {
			note := ""
			switch {
			case a.Wanted && !a.Seen:
				note = "; no event came"
			case a.permitted():
				note = "; it may: " + a.Allowed
			}
			fmt.Fprintf(t.w, "  %-40s %-10s %-13s %s%s\n", a.ID, a.Verdict, a.Errno, a.Detail, note)
		}
	}
}

func (t *table) end(r *RunReport) {
	c, n := r.count(), len(r.Attempts)
	switch r.Mode {
	case Control:
		fmt.Fprintf(t.w, "  %d of %d attempts get through, %.1f s\n", c.open+c.allowed, n, r.Duration)
	case Survey:
		t.findings(r)
	case Ablation:
		fmt.Fprintf(t.w, "  %-24s %4d open of %d, %.1f s\n", r.Name, c.open+c.allowed, n, r.Duration)
	default:
		fmt.Fprintf(t.w, "%s: %d open, %d allowed, %d closed, %d absent, %d impossible, %d broke; %d of %d denials told; %.1f s\n", attempts(n),
			c.open, c.allowed, c.closed, c.absent, c.impossible, c.broke, c.seen, c.wanted, r.Duration)
	}
}

// findings are grouped by kind; long lists are cut, and are whole in the JSON.
func (t *table) findings(r *RunReport) {
	const most = 40
	for _, k := range []struct {
		kind probe.Kind
		what string
	}{{probe.Start, "may start"}, {probe.Read, "may read"}, {probe.Write, "may write"}, {probe.Reach, "may reach"}, {probe.Env, "is given the variables"}, {probe.Sees, "sees"}} {
		n := 0
		for _, f := range r.Findings {
			if f.Kind != k.kind {
				continue
			}
			if n == 0 {
				fmt.Fprintf(t.w, "  %s\n", k.what)
			}
			if n++; n <= most {
				fmt.Fprintf(t.w, "    %s  %s\n", f.Name, f.Detail)
			}
		}
		switch {
		case n == 0:
			fmt.Fprintf(t.w, "  %s\n    nothing\n", k.what)
		case n > most:
			fmt.Fprintf(t.w, "    … and %d more: --json\n", n-most)
		}
	}
}

// door finds a door of the header.
func (h *Header) door(id string) Door {
	for _, d := range h.Doors {
		if d.ID == id {
			return d
		}
	}
	return Door{ID: id}
}

// doorSummary is one line of a table: a door in one run.
type doorSummary struct {
	id, allowed              string
	verdict                  probe.Verdict
	permitted                bool // something is open, and may be
	attempts, positive       int
	wanted, seen             int
	errno, measured, byTable []string
	ms                       float64
}

// summarize folds the attempts on one door. The verdict is the worst one.
func summarize(as []Attempt, door Door, r *RunReport) doorSummary {
	d := doorSummary{id: door.ID, allowed: door.Allowed, verdict: probe.Impossible, byTable: door.By}
	rank := []probe.Verdict{probe.Impossible, probe.Absent, probe.Closed, probe.Error, probe.Open}
	for _, a := range as {
		d.attempts++
		d.ms += a.MS
		switch {
		case a.permitted():
			d.permitted = true
		case slices.Index(rank, a.Verdict) > slices.Index(rank, d.verdict):
			d.verdict = a.Verdict
		}
		if a.ControlVerdict == probe.Open {
			d.positive++
		}
		if a.Errno != "" && !slices.Contains(d.errno, a.Errno) {
			d.errno = append(d.errno, a.Errno)
		}
		if a.Measured && !slices.Contains(d.measured, a.Layer) {
			d.measured = append(d.measured, a.Layer)
		}
		if a.Wanted {
			d.wanted++
			if a.Seen {
				d.seen++
			}
		}
	}
	if d.permitted && d.verdict != probe.Open && d.verdict != probe.Error {
		d.verdict = permittedVerdict
	}
	slices.Sort(d.errno)
	slices.Sort(d.measured)
	return d
}

// permittedVerdict is shown of a door at which something is open by somebody's word.
const permittedVerdict probe.Verdict = "allowed"

func (a Attempt) permitted() bool { return a.Verdict == probe.Open && a.Allowed != "" }

func (d doorSummary) control() string { return fmt.Sprintf("%d/%d", d.positive, d.attempts) }

// fitting are so many errnos as the table's column has room for; the page and the JSON have all.
func fitting(errnos []string) string {
	const room = 32
	text := orDash(strings.Join(errnos, " "))
	for n := len(errnos) - 1; len(text) > room && n > 0; n-- {
		text = strings.Join(errnos[:n], " ") + " +" + strconv.Itoa(len(errnos)-n)
	}
	return text
}

// attempts counts them in words.
func attempts(n int) string {
	if n == 1 {
		return "1 attempt"
	}
	return strconv.Itoa(n) + " attempts"
}

func (d doorSummary) errnos() string { return orDash(strings.Join(d.errno, " ")) }

// layers are those that events name, or in brackets those that the decision counts on.
func (d doorSummary) layers() string {
	if len(d.measured) > 0 {
		return strings.Join(d.measured, " ")
	}
	if len(d.byTable) > 0 {
		return "(" + strings.Join(d.byTable, " ") + ")"
	}
	return "-"
}

func (d doorSummary) events() string {
	if d.wanted == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", d.seen, d.wanted)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
