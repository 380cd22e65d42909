package resolve

import (
	"fmt"
	"strings"
)

// LackError is a host on which no session can be built.
type LackError struct{ Lacks []Requirement }

func (e *LackError) Error() string {
	parts := make([]string, len(e.Lacks))
	for i, r := range e.Lacks {
		parts[i] = fmt.Sprintf("%s: %s (%s)", r.Name, r.Why, r.Fix)
	}
	return "this host cannot run a session: " + strings.Join(parts, "; ")
}

// OpenError is a host on which doors stay open that nobody allowed.
type OpenError struct{ Doors []Door }

// Error is one line that names each door, why it is open, and the flags that let a session start all the same.
func (e *OpenError) Error() string {
	parts := make([]string, len(e.Doors))
	flags := make([]string, len(e.Doors))
	for i, d := range e.Doors {
		parts[i] = d.ID + " (" + d.Reason() + ")"
		flags[i] = "--allow-open " + d.ID
	}
	what := "door"
	if len(parts) > 1 {
		what = "doors"
	}
	return fmt.Sprintf("%s left open on this host: %s; to start all the same: %s", what, strings.Join(parts, ", "), strings.Join(flags, " "))
}

// Err is nil when a session may start: a *LackError or an *OpenError otherwise.
func (d *Decision) Err() error {
	if len(d.Lacks) > 0 {
		return &LackError{d.Lacks}
	}
	if open := d.Open(); len(open) > 0 {
		return &OpenError{open}
	}
	return nil
}

// Reason says why the door is open: what each of its layers lacks.
func (d Door) Reason() string {
	parts := make([]string, len(d.Lacks))
	for i, l := range d.Lacks {
		parts[i] = l.Why
	}
	return strings.Join(dedupe(parts), "; ")
}

// Fix says what would close it.
func (d Door) Fix() string {
	parts := make([]string, 0, len(d.Lacks))
	for _, l := range d.Lacks {
		if l.Fix != "" {
			parts = append(parts, l.Fix)
		}
	}
	joint := ", or "
	if d.All {
		joint = ", and "
	}
	return strings.Join(dedupe(parts), joint)
}

func dedupe(in []string) []string {
	seen := map[string]bool{}
	out := in[:0:0]
	for _, s := range in {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}
