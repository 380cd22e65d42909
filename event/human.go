package event

import (
	"fmt"
	"strings"
)

// Human returns e as one line for a person, safe for a terminal whatever its strings hold.
func Human(e *Event) string {
	var b strings.Builder
	b.WriteString(e.Time.Local().Format("15:04:05"))
	add := func(format, s string) {
		if s != "" {
			fmt.Fprintf(&b, format, Escape(s))
		}
	}
	if e.Seq != 0 {
		fmt.Fprintf(&b, " %d", e.Seq)
	}
	add(" %s", string(e.Type))
	add(" [%s]", e.Door)
	if e.Type == SessionStart {
		add(" %s", e.Session)
	}
	if p := e.Process; p != nil {
		name := p.Comm
		if name == "" {
			name = p.Exe
		}
		fmt.Fprintf(&b, " %s[%d]", Escape(name), p.PID)
	}
	add(" %s", e.Syscall)
	if t := e.Target; t != nil {
		add(" %s", t.Asked)
		if t.Resolved != "" && t.Resolved != t.Asked {
			if t.Asked != "" {
				b.WriteString(" =")
			}
			add(" %s", t.Resolved)
		}
		if t.Truncated && !strings.HasSuffix(b.String(), Cut) {
			b.WriteString("…")
		}
		add(" from %s", t.Old)
	}
	add(" argv: %s", strings.Join(e.Argv(), " "))
	add(" %s", e.Errno)
	add(" layer=%s", e.Layer)
	add(" by %s", strings.TrimPrefix(e.Cause, "by "))
	if e.Blocker != "" && (e.Target == nil || e.Blocker != e.Target.Resolved) {
		add(" at %s", e.Blocker)
	}
	if c := e.Command; c != nil {
		fmt.Fprintf(&b, " #%d", c.ID)
		switch {
		case c.Signal != 0:
			fmt.Fprintf(&b, " signal %d", c.Signal)
		case c.ExitCode != nil:
			fmt.Fprintf(&b, " exit %d", *c.ExitCode)
		}
		if e.Type == CommandEnd {
			fmt.Fprintf(&b, " %d ms", c.DurationMS)
		}
		add(" limits: %s", strings.Join(c.LimitsHit, " "))
	}
	add(" (%s)", e.Phase)
	if e.Count > 1 {
		fmt.Fprintf(&b, " ×%d", e.Count)
	}
	add(": %s", e.Detail)
	if e.Hint != nil {
		add(" -- %s", e.Hint.Person)
	}
	return b.String()
}
