package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/launcher/pin"
)

func newWhyCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "why [LOG] SEQ",
		Short: "Explain one event: what was refused, by which layer, and what would change it",
		Long: `why explains the event that sharness events shows with the number SEQ: who attempted what, through which side door,
which layer refused it, which line of the manifest would change that, and whether that is wise.

LOG is a file, the name of a manifest, or of a session; without it, the log in ` + logDir + ` that was written
last. Of a log with several sessions the last one is meant, unless LOG names another.

The exit status is 1 when there is no such event.`,
		Example: "  sudo sharness why 42\n  sudo sharness why claude 42\n  sharness why agent.jsonl 42",
		Args:    cobra.RangeArgs(1, 2),

		ValidArgsFunction: logNames,
		SilenceUsage:      true,
		SilenceErrors:     true,
		RunE: func(cmd *cobra.Command, args []string) error {
			seq, err := strconv.ParseUint(args[len(args)-1], 10, 64)
			if err != nil {
				return refuse("why: SEQ is the number that sharness events shows, not %q", args[len(args)-1])
			}
			path, session, err := chooseLog(args[:len(args)-1])
			if err != nil {
				return refuse("why: %w", err)
			}
			told, err := findEvent(path, session, seq)
			if err != nil {
				return &exitError{125, fmt.Errorf("why: %w", err)}
			}
			if told.event == nil {
				return &exitError{1, fmt.Errorf("why: %s: session %s has no event %d, the last one that was written is %d", path, told.session, seq, told.last)}
			}
			_, err = io.WriteString(cmd.OutOrStdout(), told.explain())
			return err
		},
	}
}

// told is an event with what its session says about itself.
type told struct {
	session string
	event   *event.Event // nil: there is none with that number
	last    uint64       // number
	start   *event.Event // of the session; nil: the log does not have it
	layers  []string     // that were applied
}

// findEvent reads one session of a log: the last one, if session is empty.
func findEvent(path, session string, seq uint64) (*told, error) {
	log, err := openTail(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.file.Close() }()
	t := &told{session: session}
	if session == "" {
		if t.session, err = log.toLastSession(); err != nil {
			return nil, err
		}
	}
	for {
		line, err := log.next()
		switch {
		case errors.Is(err, io.EOF):
			return t, nil
		case errors.Is(err, event.ErrTooBig):
			continue
		case err != nil:
			return nil, err
		}
		e, err := event.Parse(line)
		if err != nil || e.Session != t.session && t.session != "" {
			continue
		}
		t.last = e.Seq
		switch e.Type {
		case event.SessionStart:
			t.start = e
		case event.LayerApplied:
			t.layers = append(t.layers, e.Layer)
		}
		if e.Seq == seq {
			t.event = e
		}
	}
}

// explain is the answer, a paragraph a question. Names in the event are an attacker's: they are escaped.
func (t *told) explain() string {
	e := t.event
	var b strings.Builder
	say := func(what, text string) {
		fmt.Fprintf(&b, "%-9s %s\n", what, strings.ReplaceAll(text, "\n", "\n          "))
	}
	fmt.Fprintf(&b, "%s\n\n", event.Human(bare(e)))
	if e.Process != nil {
		say("who", who(e))
	}
	if e.Target != nil {
		say("what", what(e))
	}
	if d, known := sidedoor.ByID(e.Door); known {
		say("door", fmt.Sprintf("%s: %s\n%s", d.ID, d.Title, doorPage(d.ID)))
	}
	if text := t.refusedBy(); text != "" {
		say("layer", text)
	}
	for _, a := range adviseOn(e, t.fact("workspace")) {
		if a.line != "" {
			say("manifest", a.line)
		}
		name := pin.Quote(event.Escape(t.manifest()))
		switch {
		case a.command != "":
			say("", "sudo sharness manifest allow -m "+name+" "+a.command)
		case a.line != "":
			say("", "to be written into "+event.Escape(t.manifestFile())+"; what it says now: sharness manifest show -m "+name)
		}
		say("wise?", a.wise)
	}
	if e.Hint != nil && e.Hint.Model != "" {
		say("to model", event.Escape(e.Hint.Model))
	}
	return b.String()
}

// doorPage is where the page of a door lies: where make install puts it, or beside a build. Elsewhere its name in the source.
func doorPage(id string) string {
	page := filepath.Join("docs/side-doors", id+".md")
	self, err := os.Executable()
	if err != nil {
		return page
	}
	up := filepath.Dir(filepath.Dir(self))
	for _, file := range []string{filepath.Join(up, "share/doc/sharness/side-doors", id+".md"), filepath.Join(up, page)} {
		if _, err := os.Stat(file); err == nil {
			return file
		}
	}
	return page
}

// bare is an event without what explain says itself.
func bare(e *event.Event) *event.Event {
	c := *e
	c.Hint = nil
	return &c
}

func who(e *event.Event) string {
	p := e.Process
	text := fmt.Sprintf("%s, pid %d", event.Escape(p.Comm), p.PID)
	if p.NSPID != 0 {
		text += fmt.Sprintf(" (inside %d)", p.NSPID)
	}
	if p.TID != 0 && p.TID != p.PID {
		text += fmt.Sprintf(", its thread %d", p.TID)
	}
	text += fmt.Sprintf(", uid %d", p.UID)
	if p.Exe != "" {
		text += ", which runs " + event.Escape(p.Exe)
	}
	if len(e.Ancestors) > 0 {
		text += "; started by " + event.Escape(strings.Join(e.Ancestors, ", by "))
	}
	return text
}

// sources say how far a target is to be trusted.
var sources = map[string]string{
	"user_memory": "read from the program's memory, which another thread of it may have changed meanwhile",
	"descriptor":  "the file behind the descriptor",
	"arguments":   "from the arguments of the call",
	"unreadable":  "the path could not be read: a filter refused before the kernel looked at it",
}

func what(e *event.Event) string {
	text := event.Escape(e.Syscall)
	t := e.Target
	if t.Asked != "" {
		text += " " + event.Escape(t.Asked)
	}
	if t.Resolved != "" && t.Resolved != t.Asked {
		text += ", which is " + event.Escape(t.Resolved)
	}
	if t.Old != "" {
		text += ", from " + event.Escape(t.Old)
	}
	if argv := e.Argv(); len(argv) > 0 {
		text += ", called with: " + event.Escape(strings.Join(argv, " "))
	}
	if e.Blocker != "" && e.Blocker != t.Resolved {
		text += "; what is not allowed is " + event.Escape(e.Blocker) + ", which the kernel starts it with"
	}
	if t.Truncated {
		text += " (cut: there was more)"
	}
	if s := sources[t.Source]; s != "" {
		text += "\n" + s
	}
	return strings.TrimSpace(text)
}

// causes say what a cause is, in the order in which a reader would ask.
var causes = map[string]string{
	"dac":     "the ordinary rights of the session's own uid",
	"unknown": "not known: nothing that this session was given explains it; the file may not exist for it, or have no right for anybody",
}

// certainty says where the knowledge of a cause is from.
var certainty = map[string]string{
	"inferred": "inferred from the manifest: an errno does not say who refused",
	"kernel":   "the kernel says so",
	"observed": "it was a component of sharness",
}

// refusedBy names the layer that refused, and those that would have.
func (t *told) refusedBy() string {
	e := t.event
	text := event.Escape(e.Layer)
	if e.Cause != "" && e.Type.Denial() {
		if text = causes[e.Cause]; text == "" {
			text = event.Escape(e.Cause)
		}
		if c := certainty[e.CauseSource]; c != "" {
			text += " (" + c + ")"
		}
	}
	d, known := sidedoor.ByID(e.Door)
	if !known || !e.Type.Denial() {
		return text
	}
	var held []string
	for _, l := range d.Layers {
		for _, applied := range t.layers {
			if string(l) == applied && applied != e.Cause {
				held = append(held, applied)
			}
		}
	}
	if len(held) > 0 {
		text += "; this door is closed by " + strings.Join(held, ", ") + " too"
	}
	return text
}

// fact is a word that the session says about itself at its start.
func (t *told) fact(name string) string {
	if t.start == nil {
		return ""
	}
	word, _ := t.start.Data[name].(string) // another type is a newer log's: left alone
	return word
}

// manifestFile is where that manifest lies.
func (t *told) manifestFile() string {
	if file := t.fact("manifest_file"); file != "" {
		return file
	}
	return manifestFile(t.manifest())
}

// manifest is what -m takes for the manifest of the session: its name if it is the one of that name, else its file.
func (t *told) manifest() string {
	if file := t.fact("manifest_file"); file != "" && file != filepath.Join(manifestDir, t.fact("manifest")+".yaml") {
		return file
	}
	if name := t.fact("manifest"); name != "" {
		return name
	}
	return "NAME"
}
