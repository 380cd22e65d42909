package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/internal/sidedoor/probe"
)

// Options say where the report goes. Nil writers are not wanted.
type Options struct {
	Table, JSON, Markdown io.Writer
	All                   bool
}

// Write reads the stream to its end, writes everything, and says whether all is well.
func Write(in io.Reader, o Options) (ok bool, err error) {
	r := &reader{table: &table{w: o.Table, all: o.All}}
	if err := r.read(in); err != nil {
		return false, err
	}
	rep := &r.report
	rep.judge()
	if o.JSON != nil {
		enc := json.NewEncoder(o.JSON)
		enc.SetIndent("", " ")
		if err := enc.Encode(rep); err != nil {
			return false, fmt.Errorf("write JSON: %w", err)
		}
	}
	if o.Markdown != nil {
		if err := rep.markdown(o.Markdown); err != nil {
			return false, fmt.Errorf("write page: %w", err)
		}
	}
	rep.summary(o.Table)
	return rep.Closed, nil
}

// judge finds everything that is not as it has to be.
func (r *Report) judge() {
	r.Problems = []string{}
	say := func(format string, args ...any) { r.Problems = append(r.Problems, fmt.Sprintf(format, args...)) }
	if len(r.Runs) == 0 {
		say("nothing was attempted")
	}
	for _, run := range r.Runs {
		r.judgeRun(run, say)
	}
	for _, l := range r.Left {
		say("left behind: %s", event.Escape(l))
	}
	r.Closed = len(r.Problems) == 0
	r.Matrix = r.matrix()
}

func (r *Report) judgeRun(run *RunReport, say func(string, ...any)) {
	about := func(format string, args ...any) { say(run.Name+": "+format, args...) }
	switch {
	case run.Refused != "":
		about("the session did not start: %s", event.Escape(run.Refused))
		return
	case run.Failed != "":
		about("the session failed: %s", event.Escape(run.Failed))
	case run.Mode == Survey && len(run.Findings) == 0 || run.Mode != Survey && len(run.Attempts) == 0:
		about("the probe said nothing: %s", orDash(strings.TrimSpace(run.Words)))
	}
	for _, b := range run.Broken {
		about("cannot be read: %s", event.Escape(b))
	}
	for _, a := range run.Attempts {
		switch {
		case a.Verdict == probe.Error:
			about("%s broke and proves nothing: %s", a.ID, a.Detail)
		case run.Mode == Control:
			if a.Control == probe.Opens && a.Verdict != probe.Open && a.Verdict != probe.Impossible {
				about("%s does not get through without sharness either: %s", a.ID, a.Detail)
			}
		case run.Mode == Ablation:
		case a.Verdict == probe.Open && a.Allowed == "":
			about("%s is OPEN: %s", a.ID, a.Detail)
		case a.Wanted && !a.Seen && run.Untraced == "":
			about("%s was refused with %s, and no event says so", a.ID, a.Errno)
		}
	}
	if run.Mode != Session && run.Mode != Sandbox {
		return
	}
	if run.Untraced != "" {
		about("denials are not reported on this host: %s", run.Untraced)
	}
	if run.Lost > 0 {
		about("%d events were lost", run.Lost)
	}
	if control := r.run(run.Control); control != nil && run.Mode == Session && len(run.Attempts) < len(control.Attempts) {
		about("%d of %d attempts were made: the probe ended early", len(run.Attempts), len(control.Attempts))
	}
	for _, a := range run.Arrived {
		about("arrived outside: %s", event.Escape(a))
	}
	for _, c := range run.Changed {
		about("the workspace changed: %s", event.Escape(c))
	}
}

// summary is the last word on the terminal.
func (r *Report) summary(w io.Writer) {
	fmt.Fprintln(w)
	if r.Matrix != nil {
		r.Matrix.print(w)
	}
	const most = 40
	for i, p := range r.Problems {
		if i == most {
			fmt.Fprintf(w, "  … and %d more\n", len(r.Problems)-most)
			break
		}
		fmt.Fprintf(w, "  %s\n", p)
	}
	if !r.Closed {
		fmt.Fprintf(w, "NOT PROVEN: not as it has to be, of the above: %d.\n", len(r.Problems))
		return
	}
	but := ""
	if n := len(r.permitted()); n > 0 {
		but = fmt.Sprintf(", but for %s that may get through (above, with the reason)", attempts(n))
	}
	what := "every door"
	notTried := r.notTried()
	if notTried != "" {
		what = "every door that was attacked"
	}
	fmt.Fprintf(w, "PROVEN: %s is closed%s, every denial with an errno was told, nothing arrived outside, nothing was left behind.\n%s", what, but, notTried)
}

// notTried names the doors that no run attacked, unless others were asked for by name.
func (r *Report) notTried() string {
	if r.Chosen {
		return ""
	}
	tried := map[string]bool{}
	for _, run := range r.attacked() {
		for _, a := range run.Attempts {
			tried[a.Door] = true
		}
	}
	var commands, none []string
	for _, d := range r.Header.Doors {
		known, _ := sidedoor.ByID(d.ID)
		switch {
		case tried[d.ID]:
		case known.Group == sidedoor.Command:
			commands = append(commands, d.ID)
		default:
			none = append(none, d.ID)
		}
	}
	var parts []string
	if len(commands) > 0 {
		parts = append(parts, strings.Join(commands, " ")+" (those of commands: sudo sharness prove --sandbox)")
	}
	if len(none) > 0 {
		parts = append(parts, strings.Join(none, " ")+" (no attempt is made: docs/side-doors)")
	}
	if len(parts) == 0 {
		return ""
	}
	return "Not attacked: " + strings.Join(parts, "; ") + ".\n"
}

// permitted are the attempts of all runs that may get through, and do.
func (r *Report) permitted() (out []Attempt) {
	for _, run := range r.attacked() {
		for _, a := range run.Attempts {
			if a.permitted() {
				out = append(out, a)
			}
		}
	}
	return out
}
