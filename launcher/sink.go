package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sharness/sharness/bashserver"
	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/internal/confine"
	"github.com/sharness/sharness/launcher/filter"
	"github.com/sharness/sharness/launcher/protect"
	"golang.org/x/sys/unix"
)

// The producers of events. Each has a channel of its own: one that was taken over cannot speak for another.
const (
	feedSupervisor = iota
	feedBashd
	feedRelay
	feedWatch
	feeds
)

var feedNames = [feeds]string{"supervisor", "sharness-bashd", "sharness-relay", "sharness-watch"}

// sinkProcess is sharness-agent, which alone writes what comes from a domain into files.
type sinkProcess struct {
	events   *sink.Sender // the supervisor's own
	ends     [feeds]*os.File
	feeds    []sink.Feed // the receiving ends
	opened   []sink.Opened
	secrets  []bashserver.Secret
	trace    *traceConfig // nil: nothing is traced
	untraced error        // why the newest one traces nothing
	keeper   *keeper
	starts   uint64

	files sync.Mutex // held while the files of opened are passed on, or others put in their place
	over  bool       // they are not to be opened again
	stuck [256]bool  // by sink: it could not be opened again, which has been told

	heard   sync.WaitGroup // of what sharness-agent has to say
	refused atomic.Bool    // an exec of the session was

	mu      sync.Mutex
	names   []byte   // protected, as the tracer reads them; nil until they are known
	namesTo *os.File // of a tracer that waits for them
}

// agentConfig is what cmd/sharness-agent reads.
type agentConfig struct {
	sink.Config
	Fold    event.FoldOptions `json:"fold"`
	Confine confine.Drop      `json:"confine"`
	Trace   *traceConfig      `json:"trace,omitempty"`

	// What is taken out of every event, as it is out of a command's output.
	Secrets []bashserver.Secret `json:"secrets,omitempty"`
	Rules   string              `json:"rules,omitempty"`
}

// openSinks opens what the user named with the user's reach, before anything of the session exists.
func openSinks(s *Session, specs []sink.Spec) (opened []sink.Opened, err error) {
	defer func() {
		if err != nil {
			for _, o := range opened {
				o.File.Close()
			}
		}
	}()
	for _, spec := range specs {
		o, err := s.openSink(spec)
		if err != nil {
			return opened, err
		}
		opened = append(opened, o)
	}
	return opened, nil
}

func (s *Session) openSink(spec sink.Spec) (sink.Opened, error) {
	user := &sink.IDs{UID: s.User.UID, GID: s.User.GID, Groups: s.User.Groups}
	if spec.Kind == sink.File {
		if err := s.outside(filepath.Dir(spec.Path)); err != nil {
			return sink.Opened{}, refusef("events: %w", err)
		}
	}
	if spec == DefaultSink(s.Manifest.Name) {
		user = nil // ours, in a folder of root's
		if err := os.MkdirAll(logDir, 0o750); err != nil {
			return sink.Opened{}, refusef("events: %w", err)
		}
	}
	o, err := sink.Open(spec, user)
	if err != nil {
		return sink.Opened{}, refusef("%w%s", err, s.instead(spec, user, err))
	}
	if spec.Kind != sink.File {
		return o, nil
	}
	// Once more by what is open: the name may have become another's, and the file may have other names.
	if err := s.outsideFile(o.File); err != nil {
		o.File.Close()
		return sink.Opened{}, refusef("events: %w", err)
	}
	return o, nil
}

// instead says what to do about a sink that could not be opened with the ids of user.
func (s *Session) instead(spec sink.Spec, user *sink.IDs, err error) string {
	switch {
	case spec.Kind == sink.Journald || spec.Kind == sink.Syslog:
		return fmt.Sprintf("; no %s listens on this host: give a file with --events FILE, or - for standard error", spec.Kind)
	case spec.Kind != sink.File:
		return ""
	case errors.Is(err, fs.ErrPermission) && user != nil:
		return fmt.Sprintf(" for %s (uid %d), whose session it is and who opens what --events names; give a file that they may write, or none for one in %s", s.User.Name, s.User.UID, logDir)
	case errors.Is(err, fs.ErrNotExist):
		return "; make its folder first, or give another file"
	case errors.Is(err, unix.EISDIR):
		return "; name a file in it"
	case errors.Is(err, unix.ELOOP):
		return "; a symbolic link is not followed: name the file itself"
	}
	return ""
}

// outside refuses a folder in which the session may write: it would read who watches it, and could take the log away or
// put another in its place. Folders are compared by inode, so that a link or a bind mount of the workspace is the workspace.
// What is not there is left to who opens it.
func (s *Session) outside(dir string) error {
	own := []string{s.Workspace.Name()}
	if s.Manifest.State != nil {
		own = append(own, s.Manifest.State.Path)
	}
	here, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for ; ; here = filepath.Dir(here) {
		info, err := os.Lstat(here)
		if err != nil {
			return err
		}
		for _, tree := range own {
			if root, err := os.Stat(tree); err == nil && os.SameFile(info, root) {
				return fmt.Errorf("%s lies in %s, where the session can write; give a file elsewhere", dir, tree)
			}
		}
		if here == "/" {
			return nil
		}
	}
}

func (s *Session) outsideFile(f *os.File) error {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("fstat: %w", err)
	}
	if st.Nlink > 1 {
		return fmt.Errorf("%s has %d names (hard links), and the session may be able to write it by another one", path, st.Nlink)
	}
	return s.outside(filepath.Dir(path))
}

// startSink starts sharness-agent with sinks that stay the caller's, and starts it again when it dies: lost is told when
// that does not help.
func startSink(sp *spawner, s *Session, opened []sink.Opened, secrets []bashserver.Secret, trace *traceConfig, lost func(error)) (*sinkProcess, error) {
	k := &sinkProcess{opened: opened, secrets: secrets, trace: trace}
	for i := range feeds {
		send, receive, err := sink.Pair()
		if err != nil {
			return nil, errors.Join(err, k.closeFeeds())
		}
		k.ends[i] = send
		k.feeds = append(k.feeds, sink.Feed{Name: feedNames[i], File: receive, Trusted: i == feedSupervisor, Gather: i == feedBashd})
	}
	k.events = sink.NewSender(k.ends[feedSupervisor], feedNames[feedSupervisor])
	var err error
	if k.keeper, err = keep("sharness-agent", k.events, func() (*helperProcess, error) { return k.start(sp, s) }, lost); err != nil {
		return nil, errors.Join(err, k.closeFeeds())
	}
	return k, nil
}

// start starts one process. A second one goes on with what lies in the channels; what the first had taken and not yet
// written is lost, and its numbers are not used again.
func (k *sinkProcess) start(sp *spawner, s *Session) (*helperProcess, error) {
	k.files.Lock()
	defer k.files.Unlock()
	ours, theirs, err := socketpair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	k.heard.Go(func() { k.rotate(ours, s) })
	config, files, err := sink.Arrange(s.ID, k.feeds, k.opened, theirs)
	if err != nil {
		return nil, err
	}
	config.After = k.starts << 32
	if k.starts > 0 {
		for _, o := range k.opened {
			o.EndLine()
		}
	}
	progs, err := helperFilter(filter.Options{})
	if err != nil {
		return nil, err
	}
	uid := helperUID(s.UID, helperAgent)
	spec := helperSpec{name: "sharness-agent", uid: uid, gid: uid, control: theirs, events: files[1], extra: files[3:], drains: true}
	agent := agentConfig{Config: config, Fold: foldFor(k.trace), Confine: confine.Drop{Landlock: s.helperLandlock(), Seccomp: progs},
		Secrets: k.secrets, Rules: string(s.Manifest.Secrets.Rules)}
	if s.proof != nil {
		agent.Fold = proofFold
	}
	var ready *os.File
	if k.trace != nil {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		defer r.Close()
		defer w.Close()
		namesR, namesW, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		defer namesR.Close()
		defer k.tell(namesW)
		trace := *k.trace
		trace.Ready = firstExtraFD + len(spec.extra)
		trace.Names = trace.Ready + 1
		spec.uid, spec.gid, spec.extra = 0, 0, append(spec.extra, w, namesR)
		agent.Trace, ready = &trace, r
		if trace.Learn != nil {
			trace.Learn = trace.Learn.at(firstExtraFD+len(spec.extra), k.starts > 0)
			spec.extra = append(spec.extra, trace.Learn.out)
		}
	}
	spec.config = agent
	p, err := sp.startHelper(spec)
	if err != nil {
		return nil, err
	}
	if ready != nil {
		spec.extra[agent.Trace.Ready-firstExtraFD].Close()
		spec.extra[agent.Trace.Names-firstExtraFD].Close()
		if err := awaitTracer(ready); err != nil {
			// Enforcement stands without it: what is denied stays denied, and is not told.
			k.untraced = err
		}
	}
	if k.starts > 0 {
		k.events.Send(event.Event{Type: event.EventsLost, Layer: "sharness-agent", Cause: "restart",
			Detail: "sharness-agent ended and was started again; what it had taken and not yet written is lost"})
	}
	k.starts++
	return p, nil
}

// foldFor widens the budgets where calls on files are reported: a session makes more different ones of them than of all the
// others. It bounds the log to some megabytes all the same.
func foldFor(t *traceConfig) event.FoldOptions {
	if t == nil || !t.Files {
		return event.FoldOptions{}
	}
	return event.FoldOptions{MaxKeys: 8192, Burst: 4096, PerSecond: 20}
}

// rotatePause is how long a request for new files waits after the last: who asks is a process that reads what a domain wrote.
const rotatePause = 100 * time.Millisecond

// rotate gives one process new files and connections when it asks for them, which it does on SIGHUP and when a log daemon is
// gone: it cannot open any. A file that cannot be opened again goes on as it is, wherever its name is now.
func (k *sinkProcess) rotate(control *os.File, s *Session) {
	defer control.Close()
	sink.Requests(control, func() {
		k.reopen(control, s)
		time.Sleep(rotatePause)
	}, func() { k.refused.Store(true) })
}

func (k *sinkProcess) reopen(control *os.File, s *Session) {
	k.files.Lock()
	defer k.files.Unlock()
	for i, o := range k.opened {
		if o.Spec.Kind == sink.Terminal || k.over {
			continue
		}
		fresh, err := s.openSink(o.Spec)
		if err == nil {
			if err = sink.Replace(control, i, fresh.File); err != nil {
				fresh.File.Close()
			}
		}
		if err != nil {
			if k.stuck[i] { // told once: what is told goes there, too, and would ask again
				continue
			}
			k.stuck[i] = true
			k.events.Send(event.Event{Type: event.LayerOpen, Layer: "sharness-agent", Detail: fmt.Sprintf("%s was not opened again, and goes on as it was: %v", o.Spec, err)})
			continue
		}
		k.opened[i], k.stuck[i] = fresh, false
		o.File.Close()
	}
}

// protect tells the tracer which names nobody may write. It waits for them before it reads its first record: they are
// found when it already traces, and the domain is started after that.
func (k *sinkProcess) protect(set *protect.Set) {
	k.mu.Lock()
	k.names = protectedNames(set)
	to := k.namesTo
	k.namesTo = nil
	k.mu.Unlock()
	writeNames(to, k.names)
}

// tell gives a tracer the names, at once or when they are known.
func (k *sinkProcess) tell(to *os.File) {
	k.mu.Lock()
	names, before := k.names, k.namesTo
	k.namesTo = nil
	if names == nil {
		k.namesTo = to
	}
	k.mu.Unlock()
	if before != nil {
		before.Close() // of one that has ended
	}
	if names != nil {
		writeNames(to, names)
	}
}

// writeNames does not wait for a tracer that hangs. One that has ended has a successor, who is told too.
func writeNames(to *os.File, names []byte) {
	if to == nil {
		return
	}
	_ = to.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = to.Write(names)
	to.Close()
}

// logDir holds the default logs, a file per manifest. It is made when it is needed.
const logDir = "/var/log/sharness"

// DefaultSink is the sink of a manifest without --events.
func DefaultSink(name string) sink.Spec {
	return sink.Spec{Kind: sink.File, Path: filepath.Join(logDir, name+".jsonl")}
}

// finish closes the channels and lets the sink write what it holds. The error is what the log lacks.
func (k *sinkProcess) finish() error {
	k.keeper.release() // it ends by itself now
	k.protect(&protect.Set{})
	k.files.Lock()
	k.over = true
	k.files.Unlock()
	k.events.Close()
	for _, f := range k.ends[feedSupervisor+1:] {
		f.Close()
	}
	err := errors.Join(k.keeper.finish(5*time.Second), k.closeFeeds(), k.trace.observed())
	heard := make(chan struct{})
	go func() { k.heard.Wait(); close(heard) }() // it has ended, and with it its end of the socket
	select {
	case <-heard:
	case <-time.After(time.Second): // a file that hangs is being opened again
	}
	return err
}

// closeFeeds lets go of the receiving ends. They stay open on our side before, so that no producer finds its channel
// closed while sharness-agent is started again.
func (k *sinkProcess) closeFeeds() error {
	var errs []error
	for _, f := range k.feeds {
		errs = append(errs, f.File.Close())
	}
	return errors.Join(errs...)
}
