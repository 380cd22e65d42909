package bashserver

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/event"
)

// job is one command: its client's descriptors on one side, its own pipes on the other.
type job struct {
	c      *conn
	p      program
	client [3]*clientFD
	tty    *terminal // nil without one
	master *os.File  // of the command's terminal
	in     *input
	out    []*output // stdout, stderr; one where both are one
	sinks  []*sink   // beside out
	theirs []*os.File
	budget *budget
	ended  atomic.Bool
	number uint64 // the supervisor's, once started
	target *event.Target
	logged map[string]any
	killed wire.Reason
	told   int // the last signal of those that end, from the client
	limits uint64
	notes  []string // said of ours
	begun  time.Time
	over   chan struct{} // closed when the output limit is reached
	leave  func()        // gives its place to another; again is nothing

	job      *background   // nil: it ends with its client
	stop     chan struct{} // of a job: closed when its end is asked for
	answered chan struct{} // of a job: closed when its client has been told
}

// prepare checks what the client sent and makes the pipes.
func (c *conn) prepare(p program) (*job, error) {
	j := &job{c: c, p: p, over: make(chan struct{})}
	j.budget = &budget{over: func() { close(j.over) }}
	j.budget.left.Store(c.s.cfg.OutputLimit)
	if p.verb == verbBackground {
		j.job = &background{log: &ring{max: c.s.cfg.JobLog}, over: make(chan struct{})}
		j.budget.left.Store(math.MaxInt64) // its log is bounded
	}
	fds := c.frames.TakeFDs()
	for i, fd := range fds {
		var err error
		if j.client[i], err = newClientFD(fd, i, c.s.poll); err != nil {
			wire.CloseAll(fds[i:])
			j.close()
			return nil, err
		}
	}
	if p.tty || !p.json && j.job == nil && j.client[0].terminal() && j.client[1].terminal() && j.client[2].terminal() {
		j.sinks = []*sink{j.sink(1)}
		j.begun = time.Now()
		return j, nil // its pipe is the master that comes with RecStarted
	}
	if err := j.pipes(); err != nil {
		j.close()
		return nil, err
	}
	return j, nil
}

func (j *job) sink(i int) *sink {
	if j.job != nil {
		return &sink{log: j.job.log}
	}
	if j.p.json {
		return &sink{quit: j.c.quit}
	}
	return &sink{to: j.client[i], quit: j.c.quit}
}

func (j *job) wantsTerminal() bool { return len(j.theirs) == 0 }

// pipes makes the three pipes of a command without a terminal.
func (j *job) pipes() error {
	ours, theirs, err := pipe(false)
	if err != nil {
		return err
	}
	j.theirs = append(j.theirs, theirs)
	j.in = &input{src: j.client[0], dst: ours, start: -1}
	if j.client[0].regular() && j.job == nil {
		fd, err := unix.FcntlInt(theirs.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return fmt.Errorf("fcntl: %w", err)
		}
		j.in.peek = os.NewFile(uintptr(fd), "pipe")
		if at, err := unix.Seek(j.client[0].fd, 0, unix.SEEK_CUR); err == nil {
			j.in.start = at
		}
	}
	for i := 1; i < 3; i++ {
		if i == 2 && (j.job != nil || !j.p.json && j.client[1].same(j.client[2])) {
			j.theirs = append(j.theirs, j.theirs[1])
			break
		}
		ours, theirs, err := pipe(true)
		if err != nil {
			return err
		}
		j.theirs = append(j.theirs, theirs)
		j.addOutput(ours, j.sink(i))
	}
	return nil
}

func (j *job) addOutput(pipe *os.File, to *sink) {
	if len(j.sinks) == len(j.out) {
		j.sinks = append(j.sinks, to)
	}
	j.out = append(j.out, &output{pipe: pipe, filter: j.newFilter(to), budget: j.budget, ended: &j.ended,
		done: make(chan struct{})})
}

// start hands the command to the supervisor.
func (j *job) start(cmd wire.Command) error {
	mem, err := wire.SealCommand(cmd)
	if err != nil {
		return err
	}
	defer mem.Close()
	r := wire.Record{Type: wire.RecStart, ID: j.c.id}
	fds := []int{int(mem.Fd())}
	if j.wantsTerminal() {
		r.A |= wire.FlagTerminal
		if r.B = terminalSize(j.client[1].fd); r.B == 0 { // before the command asks for it
			r.B = defaultSize
		}
	}
	if j.job != nil {
		r.A |= wire.FlagJob
	}
	if j.p.routed && !isShell(j.p.path) {
		r.A |= wire.FlagNoTimeout
	}
	for _, f := range j.theirs {
		fds = append(fds, int(f.Fd()))
	}
	j.begun = time.Now()
	if err := j.c.s.ctl.Send(r, fds...); err != nil {
		return fmt.Errorf("the supervisor cannot be reached: %w", err)
	}
	for i, f := range j.theirs { // ours would keep the pipes from ending
		if i == 0 || f != j.theirs[i-1] {
			f.Close()
		}
	}
	j.target = &event.Target{Asked: j.c.asked.Asked, Resolved: cmd.Path, Source: "request"}
	// No argument is written down: tokens live there.
	j.logged = map[string]any{"cwd": cut(j.c.s.secrets.String(cmd.Cwd, false)), "args": len(cmd.Argv)}
	if j.job != nil {
		j.logged["job"] = true
	}
	return nil
}

// wait goes through the life of a command and returns how it ended.
func (j *job) wait() (wire.Frame, error) {
	j.c.busy.Go(j.c.listen)
	gone, over := j.c.quit, j.over
	if j.job != nil {
		gone = nil // its client may go
	}
	started := false
	var early []int // signals that came before there was anything to signal
	for {
		select {
		case m := <-j.c.records:
			switch {
			case m.Type == wire.RecStarted && !started:
				if err := j.started(m); err != nil {
					j.kill(wire.ReasonInternal)
				}
				started = true
				if j.job != nil {
					j.detach()
				}
				for _, sig := range early {
					j.signal(sig)
				}
			case m.Type == wire.RecRefused: // maybe after RecStarted: the target could not be executed
				return wire.Frame{}, j.refused(wire.Reason(m.A))
			case m.Type == wire.RecEnded && started:
				return j.finish(m.Record)
			default:
				wire.CloseAll(m.fds)
			}
		case sig := <-j.c.signals:
			if started {
				j.signal(sig)
			} else if len(early) < signalBurst {
				early = append(early, sig)
			}
		case <-j.stop:
			j.stop = nil
			j.kill(wire.ReasonStopped)
		case <-gone:
			gone = nil
			j.kill(wire.ReasonClientGone)
		case <-over:
			over = nil
			j.limits |= wire.LimitOutput
			j.kill(wire.ReasonOutputLimit)
		}
	}
}

// started begins to copy.
func (j *job) started(m message) error {
	j.number = m.A
	j.announce()
	if j.wantsTerminal() {
		if len(m.fds) != 1 {
			return errors.New("no terminal came")
		}
		if err := unix.SetNonblock(m.fds[0], true); err != nil {
			wire.CloseAll(m.fds)
			return err
		}
		j.master = os.NewFile(uintptr(m.fds[0]), "terminal")
		j.addOutput(j.master, j.sinks[0])
		j.in = &input{src: j.client[0], dst: j.master, tty: true}
		copySize(j.client[1].fd, j.master)
		j.raw()
	} else {
		wire.CloseAll(m.fds)
	}
	for _, o := range j.out {
		go o.copy()
	}
	if j.job != nil || j.client[0].null() { // nothing to read: the end at once, and no goroutine
		j.in.eof()
	} else {
		j.in.resume()
	}
	return nil
}

// raw makes the client's terminal raw; without that it is used as it is, which shows but harms nothing.
func (j *job) raw() { j.tty, _ = makeRaw(j.client[1].fd) }

func (j *job) kill(why wire.Reason) {
	if j.killed == wire.ReasonNone {
		j.killed = why
		j.c.s.ctl.Send(wire.Record{Type: wire.RecKill, ID: j.c.id, A: uint64(why)})
	}
}

// signal passes a signal on, and follows the client's own job control: a stopped client leaves its terminal alone.
func (j *job) signal(sig int) {
	if j.in == nil { // being killed for want of a terminal
		return
	}
	switch unix.Signal(sig) {
	case unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT:
		j.told = sig
	case unix.SIGTSTP:
		j.in.halt()
		if j.tty != nil {
			j.tty.restore()
			j.tty = nil
		}
	case unix.SIGCONT:
		if j.wantsTerminal() && j.tty == nil {
			j.raw()
			copySize(j.client[1].fd, j.master)
		}
		if !j.client[0].null() {
			j.in.resume()
		}
	case unix.SIGWINCH:
		if j.wantsTerminal() {
			copySize(j.client[1].fd, j.master)
			return // the kernel signals whoever has the inner terminal
		}
	}
	j.c.s.ctl.Send(wire.Record{Type: wire.RecSignal, ID: j.c.id, A: uint64(sig)})
}

// lastOutput is how long what is left of the output waits for a reader, when a signal of its client has ended the command.
const lastOutput = time.Second

// finish drains, reports, and says how the command ended.
func (j *job) finish(r wire.Record) (wire.Frame, error) {
	j.ended.Store(true)
	close(j.c.ending)
	took := time.Since(j.begun)
	if j.told != 0 && (r.A == uint64(wire.KindSignal) && r.B == uint64(j.told) || r.A == uint64(wire.KindStatus) && r.B == uint64(128+j.told)) {
		// Without us the client would be gone. What it printed last has a moment to find a reader.
		unread := time.AfterFunc(lastOutput, j.c.cancel)
		defer unread.Stop()
	}
	j.endInput()
	for _, o := range j.out {
		o.end()
	}
	j.limits |= r.C
	select {
	case <-j.over: // by the last of the output
		j.limits |= wire.LimitOutput
	default:
	}
	for _, l := range limits {
		if j.limits&l.bit != 0 {
			j.note(j.sentence(l))
		}
	}
	if r.A > uint64(wire.KindSignal) || r.B > 255 {
		r.A, r.B = uint64(wire.KindStatus), 255
	}
	if j.limits&wire.LimitTimeout != 0 && !failed(r) {
		// It was told to end, and ended well: what it had to do, it has not done. A hook that is cut off must not pass for one
		// that agrees.
		r.A, r.B = uint64(wire.KindSignal), uint64(unix.SIGTERM)
	}
	for _, h := range j.hints(r) {
		j.note(j.c.s.cfg.hint(h))
	}
	taken := j.taken()
	if j.tty != nil {
		j.tty.restore()
		j.tty = nil
	}
	j.closing(r, took, taken)
	if j.job != nil {
		j.job.took, j.job.how, j.job.limits = took, r, j.limits
		// Whoever sees that it has ended may start the next at once.
		j.leave()
		j.c.s.jobs.ended(j.job)
		<-j.answered // it may be faster than its client is told
		return wire.Frame{}, errAnswered
	}
	if j.p.json {
		out, errs := j.sinks[0], j.sinks[len(j.sinks)-1]
		if out == errs {
			errs = &sink{} // on a terminal both are one
		}
		rep := &report{exitCode: int(r.B), stdout: out.captured, stderr: errs.captured,
			truncated:  out.truncated || errs.truncated || j.limits&wire.LimitOutput != 0,
			durationMS: took.Milliseconds(), limits: limitNames(j.limits), notes: j.notes, taken: taken}
		if r.A == uint64(wire.KindSignal) {
			rep.signal, rep.exitCode = int(r.B), 128+int(r.B)
		}
		rep.write(&sink{to: j.client[1], quit: j.c.quit})
	}
	if j.p.routed && failed(r) && ended(j.limits) {
		// Agents run their hooks through a routed shell, and only status 2 blocks what a hook was asked about. One that
		// met a limit of ours has not judged: the limit may have killed it, or a process whose end it passes on (137).
		return wire.ExitFrame(wire.KindStatus, statusNotRun), nil
	}
	return wire.ExitFrame(wire.Kind(r.A), uint32(r.B)), nil
}

// failed says whether a command ended otherwise than well.
func failed(r wire.Record) bool { return r.A == uint64(wire.KindSignal) || r.B != 0 }

// hint is what is said, with the way to a job where that leads further.
func (c *Config) hint(h wire.Hint) string {
	if h == wire.HintLeft && c.Jobs > 0 && c.JobsLast {
		text := hints[h] + ", or let the agent itself, not a command, start it with: sharness-bash --background -c CMD"
		if !c.OneNetwork {
			text += "; later commands reach it only where the manifest has sandbox.network: session"
		}
		return text
	}
	return hints[h]
}

// hints are what the supervisor said meanwhile, each once: of this command, and, if it failed, of things that were refused to
// somebody.
func (j *job) hints(r wire.Record) []wire.Hint {
	j.c.s.mu.Lock()
	defer j.c.s.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(j.c.hints)), func(h wire.Hint) bool { return h != wire.HintLeft && !failed(r) })
}

// note says something of our own where the command's stderr goes.
func (j *job) note(text string) {
	j.notes = append(j.notes, text)
	end := "\n"
	if j.wantsTerminal() {
		end = "\r\n" // it may be raw
	}
	j.sinks[len(j.sinks)-1].Write([]byte("sharness: " + text + end))
}

// close gives everything back. The sandbox has ended or never was.
func (j *job) close() {
	for _, f := range j.theirs {
		f.Close()
	}
	j.endInput()
	for _, o := range j.out {
		o.pipe.Close()
	}
	for _, c := range j.client {
		if c != nil {
			c.close()
		}
	}
}

// stuckTime is how long the end of a command waits for the copier of its stdin, which ends at once but in one case.
const stuckTime = time.Second

// endInput stops the copying of stdin. A copier that is stuck keeps its descriptor and the connection's place.
func (j *job) endInput() {
	if j.in == nil {
		return
	}
	left := j.in.end()
	j.in, j.client[0] = nil, nil
	select {
	case <-left:
	case <-time.After(stuckTime):
		j.c.busy.Go(func() { <-left })
	}
}

// refused turns the supervisor's reason into words.
func (j *job) refused(why wire.Reason) error {
	j.ended.Store(true)
	if j.tty != nil {
		j.tty.restore()
		j.tty = nil
	}
	text := "the sandbox could not be made; the log of the session says why: sudo sharness events"
	switch why {
	case wire.ReasonBusy:
		text = "the bash-server is busy"
	case wire.ReasonCwd:
		text = "the working directory is outside the workspace; start it in a folder in there"
	case wire.ReasonShutdown:
		text = "the session is ending"
	}
	j.c.asked, j.c.logged = j.target, j.logged
	return &refusal{statusNotRun, text}
}

// hints are what RecHint may say.
var hints = map[wire.Hint]string{
	wire.HintLeft: "what the command had left running was ended with it; to keep a server running, run it as a command that does not end",
	wire.HintGit:  "the repository's configuration is protected and will not change on retry; the user can change it, outside: sharness git-config -- …",
	wire.HintRepo: "a protected name was made in the workspace and moved aside",
}
