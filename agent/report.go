package agent

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
)

// Reporter makes events of denials: the first of a key at once, repetitions counted (event.Folder). It is a Handler.
type Reporter struct {
	policy Policy
	send   func(event.Event)
	folder *event.Folder
	tree   *tree

	read     uint64            // denials that were read
	repeats  uint64            // and those that their records stand for
	bad      uint64            // malformed records
	reported map[string]uint64 // losses already said, by stage
	last     Stats
	beat     time.Time
}

// How often the counts are written.
const heartbeat = time.Minute

// NewReporter returns a Reporter that hands events to send, which must not wait.
func NewReporter(p Policy, fold event.FoldOptions, send func(event.Event)) *Reporter {
	return &Reporter{policy: p, send: send, folder: event.NewFolder(fold), tree: newTree(p.Stage), reported: map[string]uint64{}, beat: time.Now()}
}

// Life keeps the tree.
func (r *Reporter) Life(l *Life) {
	if l.Ended {
		r.tree.ended(&l.Proc)
		return
	}
	r.tree.see(&l.Proc)
}

// Malformed counts.
func (r *Reporter) Malformed(error) { r.bad++ }

// Event takes what ran into the tree and reports what was refused.
func (r *Reporter) Event(e *Event) {
	switch e.Kind {
	case Exec:
		r.tree.ran(e)
		return
	case Map, Tried:
		return
	}
	r.read++
	r.repeats += e.Repeats
	ev := r.describe(e)
	if out := r.folder.Add(&ev, time.Now()); out != nil {
		r.send(*out)
	}
}

func (r *Reporter) describe(e *Event) event.Event {
	ev := event.Event{Schema: event.Schema, Time: e.Time, CauseSource: "inferred", Ancestors: r.tree.ancestors(&e.Proc), Process: process(e)}
	if e.Repeats > 0 {
		ev.Count = 1 + e.Repeats
	}
	if len(r.policy.Stage) > 0 && r.tree.probing(e) {
		ev.Phase = "probe"
	}
	if e.Kind == Killed {
		killed(&ev, e)
		return ev
	}
	c, known := calls[e.NR]
	if !known {
		c = is(fmt.Sprintf("call %d", e.NR), e.NR, aboutKernel, 0)
	}
	v := r.policy.judge(c, e)
	if e.LSM {
		// Landlock is the one that the session has set up; a host may have others.
		v.cause, ev.CauseSource = r.policy.ifHolds(causeLandlock), "kernel"
	}
	ev.Type, ev.Door, ev.Cause, ev.Blocker = v.kind, v.door, v.cause, v.blocker
	ev.Syscall, ev.Errno = c.name, unix.ErrnoName(e.Errno)
	ev.Target = target(&v, e)
	ev.Hint = r.policy.hint(&v)
	if v.probe {
		ev.Data = map[string]any{"probe": true}
	}
	if c.topic == aboutExec {
		addArguments(&ev, e.More)
	}
	return ev
}

func process(e *Event) *event.Process {
	p := &event.Process{PID: e.Proc.PID, TID: e.Proc.TID, StartNS: e.Proc.StartNS, UID: e.Proc.UID, Comm: e.Proc.Comm, Exe: e.Exe.Text}
	if e.Proc.NSPID != e.Proc.PID {
		p.NSPID = e.Proc.NSPID
	}
	return p
}

// addArguments says what a refused exec was called with, when that is asked for. What was cut ends with event.Cut, so that
// who takes secrets out knows that one may have been cut too.
func addArguments(ev *event.Event, list Text) {
	if list.Text == "" && !list.Unreadable {
		return
	}
	args := []string{}
	for arg := range strings.SplitSeq(strings.TrimSuffix(list.Text, "\x00"), "\x00") {
		if len(arg) == maxArg {
			arg += event.Cut
		}
		args = append(args, arg)
	}
	if ev.Data == nil {
		ev.Data = map[string]any{}
	}
	ev.Data["argv"] = args
	if list.Truncated || list.Unreadable {
		ev.Data["argv_truncated"] = true
	}
}

// maxArg is how long an argument is that was cut: ARG_MAX of event.h without its NUL.
const maxArg = 127

// Where a target's text is from. The memory of a program is not to be trusted: another thread may have written it since.
const (
	sourceUser       = "user_memory"
	sourceDescriptor = "descriptor"
	sourceArguments  = "arguments"
	sourceUnreadable = "unreadable"
)

func target(v *verdict, e *Event) *event.Target {
	t := &event.Target{Asked: e.Asked.Text, Resolved: v.path, Old: v.old, Truncated: e.Asked.Truncated || e.Base.Truncated, Source: sourceUser}
	if v.old != "" {
		t.Truncated = t.Truncated || e.More.Truncated
	}
	switch {
	case e.Asked.Unreadable:
		t.Source = sourceUnreadable
	case v.target != "" && v.path == "":
		t.Asked, t.Source = v.target, sourceArguments
		if e.Address != nil {
			t.Source = sourceUser
		}
	case e.Asked.Text == "" && v.path != "":
		t.Asked, t.Source = v.target, sourceDescriptor
	case e.Asked.Text == "":
		return nil
	}
	return t
}

// x32Bit marks the numbers of an ABI that shares its architecture with the native one.
const x32Bit = 1 << 30

// killed is a process that a filter ended, by its SIGSYS. The session's filters end a process for a call of another
// architecture's and for nothing else (launcher/filter): where it was one of this, the program had a filter of its own.
func killed(ev *event.Event, e *Event) {
	ev.Type, ev.Cause, ev.CauseSource = event.SyscallDenied, causeSeccomp, "kernel"
	c, known := calls[e.NR]
	switch {
	case e.Arch == auditArch && e.NR&x32Bit != 0:
		ev.Door, ev.Syscall = "exec-abi", fmt.Sprintf("x32 call %d", e.NR&^x32Bit)
	case e.Arch != auditArch:
		ev.Door, ev.Syscall = "exec-abi", fmt.Sprintf("call %d of architecture 0x%x", e.NR, e.Arch)
	default:
		ev.Syscall, ev.Cause = fmt.Sprintf("call %d", e.NR), causeUnknown
		if known {
			ev.Syscall = c.name
		}
		ev.Detail = "ended by a seccomp filter of its own, not by the session's"
		return
	}
	ev.Detail = "ended by its seccomp filter"
}

// Tick writes summaries that are due, losses, and now and then a heartbeat.
func (r *Reporter) Tick(now time.Time, s Stats) {
	r.last = s
	for _, ev := range r.folder.Tick(now) {
		r.send(*ev)
	}
	r.losses(now, s)
	if now.Sub(r.beat) >= heartbeat {
		r.beat = now
		r.send(event.Event{Time: now, Type: event.Heartbeat, Data: r.data()})
	}
}

// Finish writes everything that is held back, and the counts. Call it after Run has returned.
func (r *Reporter) Finish(now time.Time) {
	for _, ev := range r.folder.Flush(now) {
		r.send(*ev)
	}
	// What was shed and never got a successor to carry its number.
	r.lost(now, "repeats", r.last.Denied().Shed-min(r.repeats, r.last.Denied().Shed), "repetitions of denials that are in the log")
	r.send(event.Event{Time: now, Type: event.Heartbeat, Data: r.data()})
}

func (r *Reporter) losses(now time.Time, s Stats) {
	for class, c := range s.Denials {
		r.lost(now, "ring "+class, c.Lost, "denials that came faster than they were read")
	}
	r.lost(now, "ring runs", s.Runs.Lost, "execs, forks and ends that came faster than they were read: ancestors may be wrong")
	r.lost(now, "malformed record", r.bad, "records of the tracing programs that could not be read")
	r.lost(now, "tree full", r.tree.full, "processes that found no room in the tree")
}

// lost says once what is new in a count that only grows.
func (r *Reporter) lost(now time.Time, stage string, total uint64, detail string) {
	if total <= r.reported[stage] {
		return
	}
	count := total - r.reported[stage]
	r.reported[stage] = total
	r.send(event.Event{Time: now, Type: event.EventsLost, Count: count, Cause: stage, Detail: detail})
}

// data: denied = read + lost + shed, read = emitted + folded + dropped.
func (r *Reporter) data() map[string]any {
	n, d := r.folder.Counts(), r.last.Denied()
	return map[string]any{"tracer": true, "runs": r.last.Runs.Produced, "runs_lost": r.last.Runs.Lost,
		"denied": d.Produced, "denied_lost": d.Lost, "denied_shed": d.Shed, "read": r.read,
		"emitted": n.Emitted, "folded": n.Folded, "dropped": n.Dropped, "overflow": n.Overflow, "orphans": r.tree.orphans, "caught": r.last.Caught, "hooks": r.last.Hooks}
}
