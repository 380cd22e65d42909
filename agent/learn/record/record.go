// Package record watches one run for package learn: a Recorder is the tracer's handler that keeps what was executed and
// mapped.
//
// It opens no file: what it writes down of an image is what the kernel had of it (inode, change time, size), and who
// reads the file afterwards compares. It is bounded in everything that an agent can make many of, and counts what found no
// room.
package record

import (
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/agent"
	"github.com/sharness/sharness/agent/learn"
)

// Config is what a recorder has to know of the session.
type Config struct {
	UID      uint32   `json:"uid"`      // the orchestrator's: what ran before it had that one was ours
	Own      []string `json:"own"`      // what the command starts with: its interpreter is no stranger
	Routed   []string `json:"routed"`   // where the view has the client
	Writable []string `json:"writable"` // folders that the agent or a command can write
	Shown    []string `json:"shown"`    // folders that are shown as the host has them: what is missing there is missing
	Stage    string   `json:"stage"`    // what becomes the orchestrator, and tries the doors before that
	Late     bool     `json:"late"`     // part of the run is over already
}

// Bounds of what is kept.
const (
	maxImages = 1 << 13
	maxProcs  = 1 << 16
	maxGone   = 1 << 12
	maxNames  = 16 // of one image, each
	maxName   = 1024

	maxAttempts = 1 << 10
)

// Recorder is a Handler. Its result goes to a writer that another process reads.
type Recorder struct {
	config Config
	out    *json.Encoder
	failed error // of out

	images map[key]*learn.Image
	tried  map[attempt]*learn.Attempt
	sent   map[string]uint64 // by signal
	procs  *procs
	seen   learn.Observation
	last   agent.Stats
}

// key is what makes two records ones of the same image.
type key struct {
	path, script, beneath string
	file                  learn.File
	denied                bool
}

// New returns a Recorder that writes to out.
func New(c Config, out io.Writer) *Recorder {
	r := &Recorder{config: c, out: json.NewEncoder(out), images: map[key]*learn.Image{}, tried: map[attempt]*learn.Attempt{},
		sent: map[string]uint64{}, procs: newProcs()}
	r.seen.Losses.Late = c.Late
	return r
}

// Life follows the tree.
func (r *Recorder) Life(l *agent.Life) {
	if l.Ended {
		r.procs.ended(&l.Proc)
		return
	}
	r.procs.begun(&l.Proc)
}

// Malformed counts.
func (r *Recorder) Malformed(error) { r.seen.Losses.Malformed++ }

// Tick tells how far it is.
func (r *Recorder) Tick(_ time.Time, s agent.Stats) {
	r.last = s
	r.write(learn.Message{Progress: &learn.Progress{Images: len(r.images), Execs: r.seen.Execs, Maps: r.seen.Maps, Lost: s.Runs.Lost}})
}

// Finish writes the result. whole is false when the tracer ended before the run did.
func (r *Recorder) Finish(whole bool) error {
	o := &r.seen
	o.Losses.Lost += r.last.Runs.Lost
	o.Losses.Orphans, o.Losses.Full = r.procs.orphans, o.Losses.Full+r.procs.full
	o.Losses.Late = o.Losses.Late || !whole
	for _, i := range r.images {
		o.Images = append(o.Images, *i)
	}
	for _, a := range r.tried {
		o.Attempts = append(o.Attempts, *a)
	}
	for name, count := range r.sent {
		o.Signals = append(o.Signals, learn.Signal{Name: name, Sent: count})
	}
	o.Sort()
	r.write(learn.Message{Observation: o})
	if r.failed != nil {
		return fmt.Errorf("write what was recorded: %w", r.failed)
	}
	return nil
}

func (r *Recorder) write(m learn.Message) {
	if r.failed == nil {
		r.failed = r.out.Encode(m)
	}
}

// Event takes what ran, and what was refused where the agent can write.
func (r *Recorder) Event(e *agent.Event) {
	p := r.procs.find(&e.Proc)
	if e.Proc.UID != r.config.UID {
		return // the stage, on its way into the domain
	}
	switch e.Kind {
	case agent.Exec:
		r.executed(e, p)
	case agent.Map:
		r.mapped(e, p)
	case agent.Denial:
		r.refused(e, p)
		r.attempted(e, p)
	case agent.Tried:
		r.attempted(e, p)
	}
}

func (r *Recorder) executed(e *agent.Event, p *proc) {
	r.seen.Execs++
	by, script := p.exe, p.script
	p.exe, p.script = e.Exe.Text, nil
	routed := slices.Contains(r.config.Routed, e.Exe.Text)
	own := slices.Contains(r.config.Own, e.Exe.Text)
	// The kernel gives the file that was named and, in the end, the interpreter that it starts for it.
	if e.Asked.Text != e.Base.Text {
		i := r.image(e, e.Asked, e.Asked.Text, e.Exe.Text, p.beneath, nil)
		if i == nil {
			return
		}
		count(i, by, e.Asked.Text, r.config.Writable)
		i.Own = own
		if path.Base(e.Exe.Text) == "env" {
			p.script = i // the next exec is of its interpreter
		} else if !own {
			p.routedBy(e.Asked.Text)
		}
		return
	}
	if script != nil { // env found the interpreter
		script.Own = own
		if own {
			return
		}
		p.routedBy(script.Path)
		return
	}
	i := r.image(e, e.Exe, e.Exe.Text, "", p.beneath, e.Image)
	if i == nil {
		return
	}
	i.Own, i.Routed = own, routed
	count(i, by, e.Asked.Text, r.config.Writable)
	if !own && !routed && (learn.Routable(e.Exe.Text) || learn.Routable(e.Asked.Text)) {
		p.routedBy(e.Exe.Text)
	}
}

func (r *Recorder) mapped(e *agent.Event, p *proc) {
	r.seen.Maps++
	if e.Base.Unreadable && e.Image == nil {
		r.seen.Unseen++
		return
	}
	if i := r.image(e, e.Base, e.Base.Text, "", p.beneath, e.Image); i != nil {
		i.Maps++
		i.Own = slices.Contains(r.config.Own, i.Path)
		i.By = add(i.By, e.Exe.Text)
	}
}

// refused keeps what was tried where the agent can write, and would otherwise be missing without a word.
func (r *Recorder) refused(e *agent.Event, p *proc) {
	if p.beneath != "" {
		return
	}
	var name string
	switch {
	case e.NR == unix.SYS_EXECVE || e.NR == unix.SYS_EXECVEAT:
		name = e.Asked.Text
		if !path.IsAbs(name) {
			name = path.Join(e.Base.Text, name)
		}
	case e.NR == unix.SYS_MMAP:
		name = e.Base.Text
	}
	name = path.Clean(name)
	if !path.IsAbs(name) || writable(name, r.config.Writable) == "" {
		return
	}
	k := key{path: name, denied: true}
	i := r.images[k]
	if i == nil {
		if i = r.fresh(k); i == nil {
			return
		}
		i.Denied = true
	}
	i.By = add(i.By, e.Exe.Text)
}

// image finds or makes the record of one image. text is what its name came from, with what is wrong with it.
func (r *Recorder) image(e *agent.Event, text agent.Text, name, script, beneath string, file *agent.Image) *learn.Image {
	k := key{path: name, script: script, beneath: beneath}
	if file != nil {
		k.file = learn.File{Ino: file.Ino, Size: file.Size, Sec: file.Changed.Sec, Nsec: file.Changed.Nsec, Links: file.Links, UID: file.UID, Mode: file.Mode}
	}
	if i := r.images[k]; i != nil {
		return i
	}
	i := r.fresh(k)
	if i == nil {
		return nil
	}
	i.Script, i.Beneath = script, beneath
	if file != nil {
		f := k.file
		i.File = &f
	}
	i.Strange = strange(text, script != "", file)
	if script != "" && i.Strange == "" && writable(path.Clean(name), r.config.Writable) != "" {
		// The name means something inside alone: there, it was a link to a file elsewhere.
		i.Strange = "is a script that was named by a link where the agent can write"
	}
	return i
}

// relative are folders in which a name means something else for each process that looks.
var relative = []string{"/proc", "/dev", "/sys"}

// strange says why a file has no name by which it could be pinned.
func strange(text agent.Text, script bool, file *agent.Image) string {
	switch {
	case text.Detached:
		return "lies in memory alone (memfd, or a deleted file)"
	case text.Outside:
		return "lies outside of what the agent sees"
	case text.Unreadable || text.Text == "":
		return "has a name that could not be read"
	case text.Truncated || len(text.Text) > maxName:
		return "has a name that is too long to be kept"
	case !visible(text.Text):
		return "has a name that is not plain text"
	case script && !path.IsAbs(text.Text):
		return "is a script that was named relative to a folder which is not known"
	case script && writable(path.Clean(text.Text), relative) != "":
		return "is a script that was named by what each process has of its own (a descriptor, its folder)"
	case !script && file == nil:
		return "is a file that the kernel side could not look at"
	}
	return ""
}

func visible(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) < 0
}

func (r *Recorder) fresh(k key) *learn.Image {
	if len(r.images) >= maxImages {
		r.seen.Losses.Full++
		return nil
	}
	i := &learn.Image{Path: clip(k.path)}
	r.images[k] = i
	return i
}

// clip makes a name fit for a message. What it changes has been marked as strange.
func clip(s string) string {
	if len(s) > maxName {
		s = s[:maxName]
	}
	return strings.ToValidUTF8(s, "\ufffd")
}

func count(i *learn.Image, by, asked string, dirs []string) {
	i.Execs++
	i.By = add(i.By, by)
	i.Asked = add(i.Asked, stable(asked, dirs))
}

// add keeps the least of the names, so that what is left does not depend on their order.
func add(names []string, name string) []string {
	if name = clip(name); name == "" {
		return names
	}
	at, found := slices.BinarySearch(names, name)
	if found {
		return names
	}
	names = slices.Insert(names, at, name)
	return names[:min(len(names), maxNames)]
}

// stable writes a name so that another run of the same gives the same: programs put numbers and random names below
// folders of their own.
func stable(name string, dirs []string) string {
	for _, dir := range []string{"/proc", "/dev/fd"} {
		if strings.HasPrefix(path.Clean(name), dir+"/") {
			return dir + "/*"
		}
	}
	if dir := writable(path.Clean(name), dirs); dir != "" {
		return dir + "/*"
	}
	return name
}

// writable is the folder that a name lies in.
func writable(name string, dirs []string) string {
	for _, dir := range dirs {
		if name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/") {
			return dir
		}
	}
	return ""
}
