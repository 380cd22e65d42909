package sink

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// Config tells the collecting process what its descriptors are.
type Config struct {
	Session string   `json:"session"`
	Sources []Source `json:"sources"`
	Sinks   []Target `json:"sinks"`
	Control int      `json:"control"`         // seqpacket socket of the supervisor; -1: none
	After   uint64   `json:"after,omitempty"` // sequence numbers begin after it: a collector that replaces a dead one does not repeat numbers
}

// Source is the receiving end of one producer.
type Source struct {
	FD      int    `json:"fd"`
	Name    string `json:"name"`
	Trusted bool   `json:"trusted,omitempty"` // may say what the session says about itself: the supervisor alone
	Gather  bool   `json:"gather,omitempty"`  // says much that is not urgent: it is read every few milliseconds
}

// Target is one opened sink.
type Target struct {
	FD   int    `json:"fd"`
	Kind Kind   `json:"kind"`
	Name string `json:"name"` // for messages
}

// FDs are all the descriptors of the process that holds c.
func (c Config) FDs() []int {
	var out []int
	for _, s := range c.Sources {
		out = append(out, s.FD)
	}
	for _, t := range c.Sinks {
		out = append(out, t.FD)
	}
	if c.Control >= 0 {
		out = append(out, c.Control)
	}
	return out
}

// Feed is the receiving end of one producer's Pair, in the supervisor.
type Feed struct {
	Name    string
	File    *os.File
	Trusted bool
	Gather  bool
}

// configFD is where the collecting process finds its Config, and where Arrange leaves room for it.
const configFD = 5

// Arrange numbers the descriptors for exec.Cmd.ExtraFiles: 3 control, 4 the first feed, 5 left nil for the
// caller's memfd of the configuration, then the sinks, then the other feeds. control may be nil.
func Arrange(session string, feeds []Feed, sinks []Opened, control *os.File) (Config, []*os.File, error) {
	if len(feeds) == 0 {
		return Config{}, nil, errors.New("events: no producer")
	}
	c := Config{Session: session, Control: -1}
	files := []*os.File{control, feeds[0].File, nil}
	if control != nil {
		c.Control = 3
	}
	next := func(f *os.File) int { files = append(files, f); return 2 + len(files) }
	source := func(f Feed, fd int) Source { return Source{FD: fd, Name: f.Name, Trusted: f.Trusted, Gather: f.Gather} }
	c.Sources = append(c.Sources, source(feeds[0], 4))
	for _, s := range sinks {
		c.Sinks = append(c.Sinks, Target{FD: next(s.File), Kind: s.Spec.Kind, Name: s.Spec.String()})
	}
	for _, f := range feeds[1:] {
		c.Sources = append(c.Sources, source(f, next(f.File)))
	}
	return c, files, nil
}

func (c Config) check() error {
	if len(c.Sources) == 0 {
		return errors.New("events: configuration names no source")
	}
	seen := map[int]bool{0: true, 1: true, 2: true, configFD: true}
	for _, fd := range c.FDs() {
		if seen[fd] || fd < 0 {
			return fmt.Errorf("events: configuration gives descriptor %d twice, or one that is taken", fd)
		}
		seen[fd] = true
	}
	for _, t := range c.Sinks {
		switch t.Kind {
		case Terminal, File, Journald, Syslog:
		default:
			return fmt.Errorf("events: configuration has unknown kind of sink %q", t.Kind)
		}
	}
	return nil
}

// Encode is the form in which Config travels.
func (c Config) Encode() ([]byte, error) { return json.Marshal(c) }
