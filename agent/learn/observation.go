// Package learn makes a manifest of what an agent was seen to run.
//
// An Observation is what the tracer recorded of one run (package record); Propose folds it, together with what this host
// says about the files, into a manifest that a person then accepts. Both are data: the package reads no file and makes no
// system call, so that the same run gives the same manifest, byte for byte.
//
// What it promises is to leave nothing out in silence: what may not be pinned is refused with a reason, and anything that
// was lost on the way makes the result incomplete, which enforce does not accept. It does not know what an agent would
// have run on another day.
package learn

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Observation is one run as the tracer recorded it. Everything in it may have been chosen by the agent.
type Observation struct {
	Images   []Image   `json:"images"`
	Attempts []Attempt `json:"attempts,omitempty"`
	Signals  []Signal  `json:"signals,omitempty"`
	// Unseen are changes of memory to executable of which the kernel side could not tell whether they were of a file, because
	// another thread of the process was mapping. Compilers in the process do that all the time, to memory of no file.
	Unseen uint64 `json:"unseen,omitempty"`
	Unkept uint64 `json:"unkept,omitempty"` // attempts beyond what is kept; they are hints, and nothing lacks without them
	Execs  uint64 `json:"execs"`
	Maps   uint64 `json:"maps"` // executable mappings of files
	Losses Losses `json:"losses"`
}

// Attempt is something that the agent tried and that its view, or a wall, did not let it have.
type Attempt struct {
	Want   string   `json:"want"`   // read, write, exec, connect
	Target string   `json:"target"` // an absolute path, or an endpoint as package agent names it
	By     []string `json:"by,omitempty"`
}

// Signal counts a signal that processes of the agent sent to others of its own: those outside cannot be reached.
type Signal struct {
	Name string `json:"name"` // SIGTERM, or a number
	Sent uint64 `json:"sent"` // each receiver once
}

// Losses are the ways in which an observation can lack something. All zero means that it is whole.
type Losses struct {
	Lost      uint64 `json:"lost,omitempty"`      // records that the ring had no room for
	Malformed uint64 `json:"malformed,omitempty"` // records that could not be read
	Orphans   uint64 `json:"orphans,omitempty"`   // processes whose beginning was not seen
	Full      uint64 `json:"full,omitempty"`      // images or processes beyond what is kept
	Late      bool   `json:"late,omitempty"`      // the recorder began, or ended, in the middle of the run
}

// Missing says in words what an observation lacks; nothing when it is whole.
func (l Losses) Missing() []string {
	var all []string
	add := func(n uint64, text string) {
		if n > 0 {
			all = append(all, fmt.Sprintf("%d %s", n, text))
		}
	}
	add(l.Lost, "records were lost: they came faster than they were read (--ring gives them more room)")
	add(l.Malformed, "records could not be read")
	add(l.Orphans, "processes appeared whose beginning was not seen")
	add(l.Full, "images or processes were more than can be kept")
	if l.Late {
		all = append(all, "the recorder did not see the whole run")
	}
	return all
}

// Image is a file that was executed or mapped, by one path and one content.
type Image struct {
	Path   string `json:"path"`             // resolved, as the kernel has it; of a script, its name as it was passed
	Script string `json:"script,omitempty"` // the interpreter, when Path is a script
	Routed bool   `json:"routed,omitempty"` // the client of the bash-server, in the place of Path
	Denied bool   `json:"denied,omitempty"` // it was refused, because it lies where the agent can write
	// Own is what the command starts with: its own interpreter may do what another shell may not.
	Own bool `json:"own,omitempty"`
	// Beneath is the shell or interpreter, not the command's own, that ran it: it will be routed, and this with it.
	Beneath string   `json:"beneath,omitempty"`
	Asked   []string `json:"asked,omitempty"` // names by which it was executed, sorted
	By      []string `json:"by,omitempty"`    // images that executed or mapped it, sorted
	Execs   uint64   `json:"execs,omitempty"`
	Maps    uint64   `json:"maps,omitempty"`
	File    *File    `json:"file,omitempty"` // nil for scripts and for what was refused
	Strange string   `json:"strange,omitempty"`
}

// File is an image as the kernel had it when it ran. While inode, change time and size are the same, so is the content.
type File struct {
	Ino   uint64 `json:"ino"`
	Size  uint64 `json:"size"`
	Sec   int64  `json:"sec"`  // of the last change of the inode
	Nsec  int64  `json:"nsec"` // likewise
	Links uint32 `json:"links"`
	UID   uint32 `json:"uid"`
	Mode  uint32 `json:"mode"`
}

// Same says whether both are the same state of the same file. Owner and links follow from the change time.
func (f File) Same(g File) bool {
	return f.Ino == g.Ino && f.Size == g.Size && f.Sec == g.Sec && f.Nsec == g.Nsec
}

// Progress is how far a run has come.
type Progress struct {
	Images int    `json:"images"`
	Execs  uint64 `json:"execs"`
	Maps   uint64 `json:"maps"`
	Lost   uint64 `json:"lost"`
}

// Message is one line of what a recorder writes: progress now and then, and at the end what it observed.
type Message struct {
	Progress    *Progress    `json:"progress,omitempty"`
	Observation *Observation `json:"observation,omitempty"`
}

// MaxReport bounds what a recorder may write in all.
const MaxReport = 64 << 20

var errNoObservation = errors.New("the recorder ended without a result")

// Read reads a recorder's messages to their end. progress is called for each that tells it, and may be nil.
func Read(r io.Reader, progress func(Progress)) (*Observation, error) {
	d := json.NewDecoder(io.LimitReader(r, MaxReport))
	d.DisallowUnknownFields()
	var result *Observation
	for {
		var m Message
		err := d.Decode(&m)
		switch {
		case errors.Is(err, io.EOF) && result != nil:
			return result, nil
		case errors.Is(err, io.EOF):
			return nil, errNoObservation
		case err != nil:
			return nil, fmt.Errorf("read what was recorded: %w", err)
		case m.Observation != nil && m.Progress == nil && result == nil:
			result = m.Observation
		case m.Progress != nil && m.Observation == nil && result == nil:
			if progress != nil {
				progress(*m.Progress)
			}
		default:
			return nil, errors.New("read what was recorded: a message out of order")
		}
	}
}

// Sort puts everything into the one order in which it is written.
func (o *Observation) Sort() {
	slices.SortFunc(o.Attempts, func(a, b Attempt) int { return cmp.Or(cmp.Compare(a.Want, b.Want), cmp.Compare(a.Target, b.Target)) })
	slices.SortFunc(o.Signals, func(a, b Signal) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(o.Images, func(a, b Image) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Script, b.Script), cmp.Compare(a.Beneath, b.Beneath),
			cmp.Compare(ino(a), ino(b)))
	})
}

func ino(i Image) uint64 {
	if i.File == nil {
		return 0
	}
	return i.File.Ino
}
