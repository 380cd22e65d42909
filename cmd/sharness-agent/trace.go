package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/agent"
	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/internal/confine"
)

// Trace makes the process a tracer too. It is then started as root with all capabilities, and without them before it
// reads a byte of an event.
type Trace struct {
	agent.Options
	Policy agent.Policy `json:"policy"`
	UID    int          `json:"uid"` // to drop to
	GID    int          `json:"gid"`
	Ready  int          `json:"ready"` // the writing end of a pipe: one Report, then closed; the domain is to start only after it
	Names  int          `json:"names"` // the reading end of a pipe: protected names below the workspace, each behind its door and a space and ended by a NUL, before the domain starts
	Learn  *Learn       `json:"learn,omitempty"`
}

// Report says how it went, once the process is confined.
type Report struct {
	Traced bool   `json:"traced"`
	Reason string `json:"reason,omitempty"` // why not; the sinks work all the same
}

// tracing is the tracer of this process.
type tracing struct {
	config *Trace
	tracer *agent.Tracer // nil where it could not be loaded
	events *sink.Sender
	others []int // the other producers' sockets
	report Report
}

// startTracing attaches, and gives the tracer a channel to the collector like every other producer's: a source of c.
func startTracing(c *Config) (*tracing, error) {
	taken := append(c.FDs(), 0, 1, 2, configFD)
	for _, fd := range []int{c.Trace.Ready, c.Trace.Names} {
		if slices.Contains(taken, fd) {
			return nil, fmt.Errorf("trace: descriptor %d is taken", fd)
		}
		taken = append(taken, fd)
	}
	t := &tracing{config: c.Trace}
	send, receive, err := sink.Pair()
	if err != nil {
		return nil, err
	}
	t.events = sink.NewSender(send, "sharness-agent")
	for _, s := range c.Sources {
		// The collector's own descriptor may be closed when its last sender has gone.
		fd, err := unix.FcntlInt(uintptr(s.FD), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("events of %s: descriptor %d: %w", s.Name, s.FD, err)
		}
		t.others = append(t.others, fd)
	}
	source, err := unix.FcntlInt(receive.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("events of the tracer: %w", err)
	}
	if err := receive.Close(); err != nil {
		return nil, err
	}
	c.Sources = append(c.Sources, sink.Source{FD: source, Name: "sharness-agent"})
	t.load()
	return t, nil
}

// load attaches. A failure is for the supervisor to judge, and no reason to be without a log.
func (t *tracing) load() {
	tracer, err := agent.Load(t.config.Options)
	if err != nil {
		t.report.Reason = err.Error()
		return
	}
	t.tracer, t.report.Traced = tracer, true
}

// drop gives up root. The rest of the confinement follows as in a process that never had it.
func (t *tracing) drop(parent int) error {
	if err := errors.Join(confine.DropBounding(), confine.LockSecurebits()); err != nil {
		return err
	}
	if err := confine.SetIDs(t.config.UID, t.config.GID); err != nil {
		return err
	}
	// The change of ids has cleared it. TERM lets the log say that the supervisor was lost.
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0); errno != 0 {
		return fmt.Errorf("prctl PR_SET_PDEATHSIG: %w", errno)
	}
	if os.Getppid() != parent {
		return errors.New("the supervisor has ended")
	}
	return nil
}

// ready tells the supervisor.
func (t *tracing) ready() error {
	f := os.NewFile(uintptr(t.config.Ready), "ready")
	return errors.Join(json.NewEncoder(f).Encode(t.report), f.Close())
}

// run reports until ctx is done or every other producer has gone: then nothing is left to be traced.
func (t *tracing) run(ctx context.Context, fold event.FoldOptions) {
	defer t.events.Close()
	if err := t.protected(); err != nil {
		t.open(err.Error())
	}
	if t.tracer == nil {
		t.open(t.report.Reason)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		waitForHangUp(t.others)
	}()
	reporter := agent.NewReporter(t.config.Policy, fold, t.events.Send)
	handler, recorded := t.config.Learn.record(reporter)
	err := t.tracer.Run(ctx, handler)
	if err != nil {
		t.open(err.Error())
	}
	reporter.Finish(time.Now())
	if err := recorded(err == nil); err != nil {
		t.open(err.Error())
	}
}

// maxNames bounds what the supervisor says of protected names; the records of a workspace are bounded by as much.
const maxNames = 8 << 20

// protected reads the names. What a tracer reads before it knows them, it would explain wrongly; it misses nothing
// meanwhile, because the domain has not been started.
func (t *tracing) protected() error {
	f := os.NewFile(uintptr(t.config.Names), "names")
	defer f.Close()
	if t.tracer == nil {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(f, maxNames))
	if err != nil {
		return fmt.Errorf("read protected names: %w", err)
	}
	t.config.Policy.Protected = map[string]string{}
	for entry := range bytes.SplitSeq(b, []byte{0}) {
		if door, name, found := strings.Cut(string(entry), " "); found {
			t.config.Policy.Protected[path.Join(t.config.Policy.Workspace, name)] = door
		}
	}
	return nil
}

// open says that denials are not seen. They are denied all the same.
func (t *tracing) open(reason string) {
	t.events.Send(event.Event{Type: event.LayerOpen, Layer: "trace", Detail: reason})
}

// waitForHangUp returns when the last sender of every socket has gone. It closes them.
func waitForHangUp(fds []int) {
	var polled []unix.PollFd
	for _, fd := range fds {
		polled = append(polled, unix.PollFd{Fd: int32(fd), Events: unix.POLLRDHUP})
	}
	for len(polled) > 0 {
		if _, err := unix.Poll(polled, -1); err != nil && err != unix.EINTR {
			return
		}
		left := polled[:0]
		for _, p := range polled {
			if p.Revents != 0 {
				_ = unix.Close(int(p.Fd))
				continue
			}
			left = append(left, p)
		}
		polled = left
	}
}
