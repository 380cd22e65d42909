// Package launcher starts an orchestrator in its domain and serves its commands: Probe (package host) says what this host
// can do, Resolve (package resolve) whether that is enough for a manifest, a Session who works where, and Enforce does it.
//
// It runs as root and parses nothing that comes from inside: what reads a client's or an orchestrator's bytes is a
// process of its own without privilege. It promises that a layer which could not be applied ends the start, and that
// nothing is left when it returns. It does not trace: denials are reported by the agent package's programs.
package launcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sharness/sharness/bashserver"
	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/internal/lean"
	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/launcher/filter"
	"github.com/sharness/sharness/launcher/protect"
	"github.com/sharness/sharness/launcher/relay"
	"github.com/sharness/sharness/launcher/tty"
	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// Options say what to run and where.
type Options struct {
	Manifest  *manifest.Manifest // with defaults
	Path      string             // of the manifest, absolute
	Workspace string
	AllowOpen []string    // doors that may be open
	Args      []string    // the user's own arguments, after those of the manifest
	Env       []string    // the caller's environment
	Dir       string      // the caller's working directory
	Stdio     [3]*os.File // the caller's 0-2
	Sinks     []sink.Spec // where events go

	// EventsFiles reports refused calls that take a path too: open and its like.
	EventsFiles bool
	// EventsArgv reports what a refused exec was called with.
	EventsArgv bool

	Notice func(string)
	Learn  *Learn              // run in a wide view and record, instead of holding what runs to its pins
	Ready  func(socket string) // Serve: called when the socket answers
	Proof  *Proof              // the session is there to be attacked
}

// run is a session with its processes. Its fields are filled in the order of start and let go of in the other.
type run struct {
	o  Options
	s  *Session
	sp *spawner

	secrets  []bashserver.Secret
	opened   []sink.Opened // a sharness-agent that is started again needs them
	parent   *cgroup       // of the session, holds the others
	occupied []*os.File    // the locks on its folders
	helpers  *cgroup       // of our own unprivileged processes
	group    *cgroup       // of the orchestrator
	budget   *budget       // of the commands
	sink     *sinkProcess
	events   *sink.Sender
	watcher  *watcher
	set      *protect.Set
	server   *server
	serving  atomic.Pointer[server] // server, for the watcher's records, which may come before it is there
	bashd    *keeper
	relay    *keeper
	netns    *os.File
	hosts    []hostEntry
	naming   *naming // of a session that learns
	before   *stateFiles

	signals      *interrupts
	orchestrator atomic.Pointer[domain] // nil while there is none
	replaced     replacements
	pulse        *pulse      // nil before there are commands
	exceeded     atomic.Bool // pulse ended the orchestrator

	failed  chan struct{} // closed when the session cannot go on
	failing sync.Once
	why     error // set before failed is closed
}

// Enforce runs the manifest's command in its domain and returns its exit status (128+n for signal n). A *Refused error
// means that nothing was started and nothing has changed.
func Enforce(o Options) (int, error) {
	signals := catchInterrupts()
	defer signals.stop()
	status, err := enforce(o, signals)
	if in := new(interrupted); errors.As(err, &in) {
		return 128 + int(in.sig), nil
	}
	return status, err
}

func enforce(o Options, signals *interrupts) (status int, err error) {
	r, err := open(o, true)
	if err != nil {
		return 0, err
	}
	r.signals = signals
	defer func() { err = errors.Join(err, r.close()) }()
	if err := errors.Join(signals.check(), r.startServices(true), signals.check()); err != nil {
		return 0, err
	}
	status, err = r.runOrchestrator()
	return status, errors.Join(err, r.failure())
}

// Serve offers the bash-server to root on this host, without an orchestrator, until stop is closed.
func Serve(o Options, stop <-chan struct{}) (err error) {
	r, err := open(o, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.startServices(false); err != nil {
		return err
	}
	o.Ready(r.s.socketPath())
	select {
	case <-stop:
	case <-r.failed:
	}
	return r.failure()
}

// open does what may refuse, and makes what a session needs of folders and groups.
func open(o Options, orchestrator bool) (*run, error) {
	s, err := openSession(o.Manifest, o.Workspace, o.Proof)
	if err != nil {
		return nil, err
	}
	s.learn = o.Learn
	r := &run{o: o, s: s, failed: make(chan struct{})}
	if err := r.check(orchestrator); err != nil {
		s.Close()
		return nil, err
	}
	if err := r.open(); err != nil {
		if cerr := r.close(); cerr != nil {
			return nil, errors.Join(err, cerr)
		}
		return nil, &Refused{err} // what it made is gone again
	}
	return r, nil
}

// check is everything that can refuse without a trace: it reads, and makes nothing but descriptors.
func (r *run) check(orchestrator bool) error {
	s := r.s
	if err := s.checkOwners(r.o.Path); err != nil {
		return err
	}
	if err := s.checkState(); err != nil {
		return err
	}
	if err := s.prepare(r.o.AllowOpen); err != nil {
		return err
	}
	if err := r.findSecrets(); err != nil {
		return err
	}
	if s.proof != nil {
		if err := s.proof.check(s.Manifest); err != nil {
			return err
		}
		s.proof.decide(s)
	}
	if changed := s.checkIntegrity(); len(changed) > 0 {
		return &Refused{changed[0]}
	}
	if !orchestrator {
		return nil
	}
	if err := s.checkCommand(r.o.Path); err != nil && s.learn == nil {
		return err
	}
	if _, err := s.routeTargets(); err != nil {
		return err
	}
	if _, err := r.argv(); err != nil {
		return err
	}
	if _, err := tty.Plan(r.stdio()); err != nil {
		return &Refused{err}
	}
	return s.pin()
}

// open takes what only one session may have, and makes its folders and groups.
func (r *run) open() error {
	unlock, err := lockHost()
	if err != nil {
		return err
	}
	defer unlock()
	// What a power cut or SIGKILL left goes first; that something could not go must not stop a new session.
	if _, err := collect(); err != nil {
		r.o.Notice(err.Error())
	}
	if err := r.s.takeLock(); err != nil {
		return err
	}
	if r.opened, err = openSinks(r.s, r.o.Sinks); err != nil {
		return err
	}
	if err := r.s.reserve(); err != nil {
		return err
	}
	r.sp = newSpawner()
	one, err := r.s.commandShare()
	if err != nil {
		return err
	}
	// With a group in every hierarchy that one below it has.
	if r.parent, err = newCgroup(cgroupRoot+"/"+r.s.ID, cgroupLimits{share: &share{many: true, io: ioShare{device: one.io.device}}}); err != nil {
		return err
	}
	if err := raise1(); err != nil {
		return fmt.Errorf("cgroup %s: %w", cgroupRoot, err)
	}
	if r.occupied, err = r.parent.occupy(); err != nil {
		return err
	}
	if r.helpers, err = newCgroup(r.s.cgroupPath("helpers"), helperLimits); err != nil {
		return err
	}
	r.sp.helpers = r.helpers
	if r.budget, err = r.s.openBudget(one); err != nil {
		return err
	}
	limits := cgroupLimits{pids: r.s.Manifest.Limits.Pids, memory: uint64(r.s.Manifest.Limits.Memory)}
	if r.s.lacks(sidedoor.Cgroup) {
		limits = cgroupLimits{}
	}
	r.group, err = newCgroup(r.s.cgroupPath("orchestrator"), limits)
	return err
}

// startServices starts what stands around the domain, from the outside in: events first, so that everything after
// them can be told.
func (r *run) startServices(orchestrator bool) error {
	runtime.GOMAXPROCS(halfProcessors())
	var err error
	var trace *traceConfig
	var untraced error
	if orchestrator {
		trace, untraced = r.s.trace(r.group, r.o)
		if untraced = r.observe(trace, untraced); untraced != nil && r.s.learn != nil {
			return unlearned(untraced)
		}
	}
	if r.sink, err = startSink(r.sp, r.s, r.opened, r.secrets, trace, r.unlogged); err != nil {
		return err
	}
	r.events = r.sink.events
	if untraced = errors.Join(untraced, r.sink.untraced); untraced != nil && r.s.learn != nil {
		return unlearned(untraced)
	}
	if untraced != nil {
		r.o.Notice(fmt.Sprintf("denials are not reported, what is denied stays denied: %v", untraced))
		r.events.Send(event.Event{Type: event.LayerOpen, Layer: "trace", Detail: untraced.Error()})
	}
	r.reportLayers()
	if err := r.watch(); err != nil {
		return err
	}
	r.sink.protect(r.set)
	for _, tree := range MissingTrees(r.o.Manifest) {
		r.o.Notice("read " + tree + ": is not on this host; nothing is shown there")
	}
	for _, note := range r.set.Notes {
		r.o.Notice("protected paths: " + note)
	}
	r.before = readState(r.s)
	if err := r.startServer(orchestrator); err != nil {
		return err
	}
	if !orchestrator {
		return nil
	}
	return r.startNetwork()
}

// watch finds what of the workspace is protected, and starts to watch it.
func (r *run) watch() (err error) {
	if r.s.proof.lacks(sidedoor.Protect) {
		r.set = &protect.Set{}
		return nil
	}
	if r.watcher, err = startWatcher(r.sp, r.s, r.events, r.sink.ends[feedWatch], r.onHint, r.onReplaced, r.fail); err != nil {
		return err
	}
	r.set = r.watcher.set
	return nil
}

// reportLayers says which layers hold and which doors stand open, and why.
func (r *run) reportLayers() {
	r.events.Send(event.Event{Type: event.SessionStart, Data: map[string]any{
		"manifest": r.s.Manifest.Name, "manifest_file": r.o.Path, "kernel": r.s.Features.Kernel, "landlock_abi": r.s.Decision.Landlock.ABI, "uid": r.s.UID,
		"learn": r.s.learn != nil, "workspace": r.s.Workspace.Name(),
	}})
	for _, l := range r.s.Decision.Layers {
		if l.Holds {
			r.events.Send(event.Event{Type: event.LayerApplied, Layer: string(l.Name)})
		}
	}
	for _, d := range r.s.Decision.Doors {
		if !d.Closed {
			r.events.Send(event.Event{Type: event.LayerOpen, Door: d.ID, Detail: d.Reason(), Cause: d.Allowed})
		}
	}
}

func (r *run) startServer(orchestrator bool) error {
	owner, admit := 0, admitRoot
	if orchestrator {
		owner, admit = r.s.UID, admitGroup(r.s.UID, r.group)
	}
	listen, err := listenSocket(r.s.socketPath(), owner)
	if err != nil {
		return err
	}
	r.server = &server{s: r.s, sp: r.sp, set: r.set, events: r.events, listen: listen, admit: admit, replaced: &r.replaced, again: r.protectAgain, budget: r.budget,
		open: map[uint64]*wire.RecordConn{}, sent: map[uint64]int{}, running: map[uint64]*runningCommand{}, hinted: map[wire.Hint]time.Time{}}
	r.server.changed.L = &r.server.mu
	r.server.boxes = newSandboxes(r.server)
	r.server.lull = lean.NewLull(lean.Mapped(), r.server.trim)
	r.serving.Store(r.server)
	if r.s.Manifest.Sandbox.Network == manifest.NetworkSession {
		if r.server.netns, _, err = newNetNS(nil); err != nil {
			return err
		}
	}
	config, err := r.bashdConfig()
	if err != nil {
		return err
	}
	if !orchestrator {
		// Outside a view the client is the host's own file.
		if config.ClientPath, err = Helper("sharness-bash"); err != nil {
			return err
		}
	}
	r.bashd, err = keep("sharness-bashd", r.events, func() (*helperProcess, error) { return r.startBashd(config) }, func(err error) {
		r.server.refuse()
		r.closed(err)
	})
	if err != nil {
		return err
	}
	r.server.busy.Go(r.server.accept)
	r.pulse = r.startPulse()
	return nil
}

// startBashd starts one sharness-bashd with a control socket of its own. The listening socket stays with the
// supervisor, so that a client which connects in between waits instead of failing.
func (r *run) startBashd(config bashserver.Config) (*helperProcess, error) {
	ours, theirs, err := socketpair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	rc, err := wire.NewRecordConn(ours, wire.Patience)
	if err != nil {
		return nil, err
	}
	uid := helperUID(r.s.UID, helperBashd)
	p, err := r.sp.startHelper(helperSpec{name: "sharness-bashd", uid: uid, gid: uid, control: theirs, events: r.sink.ends[feedBashd], config: config, half: true})
	if err != nil {
		rc.Close()
		return nil, err
	}
	r.server.serveBy(rc)
	go r.server.attend(rc, p)
	return p, nil
}

func (r *run) bashdConfig() (bashserver.Config, error) {
	m := r.s.Manifest
	progs, err := helperFilter(filter.Options{Memfd: true})
	if err != nil {
		return bashserver.Config{}, err
	}
	set := map[string]string{}
	for name, value := range m.Sandbox.Env.Set {
		if set[name], err = r.s.expand(value); err != nil {
			return bashserver.Config{}, refusef("sandbox.env.set %s: %w", name, err)
		}
	}
	c := bashserver.Config{
		Session: r.s.ID, ClientPath: viewClient, Routes: r.s.routes(), ShellPath: viewBash, Home: viewHome,
		WorkspaceRoot: r.s.Workspace.Name(),
		Env:           bashserver.Env{Pass: m.Sandbox.Env.Pass, Drop: append(m.Sandbox.Drop, m.Secrets.Env...), Set: set},
		OutputLimit:   int64(m.Sandbox.Output),
		Secrets:       r.secrets, Rules: string(m.Secrets.Rules), Neutralise: m.Secrets.Escapes == manifest.EscapesNeutralise, RefuseBinary: m.Secrets.Binary == manifest.BinaryRefuse,
		Bounds: map[string]string{
			"pids": strconv.Itoa(m.Sandbox.Pids), "memory": m.Sandbox.Memory.String(), "timeout": m.Sandbox.Timeout.String(), "output": m.Sandbox.Output.String(),
			"cpu": m.Sandbox.CPU.String(), "tmp": m.Sandbox.Tmp.String(), "file_size": m.Sandbox.FileSize.String(),
			"session_pids": strconv.Itoa(m.Session.Pids), "session_memory": m.Session.Memory.String(),
			"job_timeout": m.Sandbox.Background.Timeout.String(),
		},
		Jobs: jobsOf(m), JobLog: int(m.Sandbox.Background.Log),
		LandlockABI: r.s.helperLandlockABI(), Seccomp: progs[0],
	}
	return c, nil
}

// startNetwork makes the orchestrator's network namespace and the relay behind its listeners.
func (r *run) startNetwork() error {
	addrs, hosts, eps, err := r.s.endpoints()
	if err != nil {
		return err
	}
	var learn *relay.Learn
	if r.s.learn != nil {
		if addrs, learn, err = r.learnNames(addrs); err != nil {
			return err
		}
	}
	var listeners []*os.File
	if r.s.lacks(sidedoor.Net) {
		r.netns, err = os.Open("/proc/self/ns/net")
		return err
	}
	if r.netns, listeners, err = newNetNS(addrs); err != nil {
		return err
	}
	r.hosts = hosts
	if learn != nil { // what is told goes behind the queries
		listeners = slices.Insert(listeners, len(eps)+1, r.naming.out)
	}
	if len(listeners) == 0 {
		return nil
	}
	progs, err := helperFilter(filter.Options{Network: true, Files: true})
	if err != nil {
		return err
	}
	uid := helperUID(r.s.UID, helperRelay)
	r.relay, err = keep("sharness-relay", r.events, func() (*helperProcess, error) {
		return r.sp.startHelper(helperSpec{name: "sharness-relay", uid: uid, gid: uid, events: r.sink.ends[feedRelay], extra: listeners,
			config: relay.Config{Session: r.s.ID, Endpoints: eps, Learn: learn, LandlockABI: r.s.helperLandlockABI(), Seccomp: progs}})
	}, r.closed)
	return err
}

// runOrchestrator builds the view, starts the command in it and stays with it until it has ended.
func (r *run) runOrchestrator() (int, error) {
	s := r.s
	env, err := s.environ(r.o.Env)
	if err != nil {
		return 0, err
	}
	if s.lacks(sidedoor.Env) {
		env = r.o.Env
	}
	if !s.unchecked() {
		if err := errors.Join(s.checkEnviron(env), r.group.bounds(s.Manifest.Limits.Pids, uint64(s.Manifest.Limits.Memory))); err != nil {
			return 0, err
		}
	}
	argv, err := r.argv()
	if err != nil {
		return 0, err
	}
	dir := s.Workspace.Name()
	if real, err := filepath.EvalSymlinks(r.o.Dir); err == nil && below(real, dir) {
		dir = real
	}
	v, err := s.orchestratorView(r.hosts)
	if err != nil {
		return 0, err
	}
	plan := s.orchestratorPlan(v, r.set, argv, env, dir)
	if v, err = s.strip(plan, v); err != nil {
		return 0, err
	}
	return r.attend(plan, v)
}

// argv is the command of the manifest, with its placeholders filled in, and the user's own arguments as they are.
func (r *run) argv() ([]string, error) {
	m := r.s.Manifest
	argv := slices.Concat(m.Command, m.Args)
	for i := range argv {
		var err error
		if argv[i], err = r.s.expand(argv[i]); err != nil {
			return nil, refusef("argument %d of the manifest's command: %w", i, err)
		}
	}
	return append(argv, r.o.Args...), nil
}

// closeSinks lets go of the sinks on our side.
func (r *run) closeSinks() {
	for _, o := range r.opened {
		o.File.Close()
	}
	r.opened = nil
}

// close ends everything in the opposite order of start, and returns the first thing that could not be ended.
func (r *run) close() error {
	var errs []error
	if r.pulse != nil {
		r.pulse.end()
	}
	if r.server != nil {
		errs = append(errs, r.server.close(), r.server.retired.finish())
	}
	if r.bashd != nil {
		r.bashd.stop()
	}
	if r.relay != nil {
		r.relay.stop()
	}
	if err := r.naming.named(); err != nil {
		r.o.Notice("what was learned of names could not be read: " + err.Error())
	}
	if r.netns != nil {
		r.netns.Close()
	}
	if r.budget != nil {
		errs = append(errs, r.budget.close()...)
	}
	if r.group != nil {
		errs = append(errs, r.group.kill(), r.group.delete())
	}
	if r.watcher != nil {
		// No process of the session is left that could make a protected name.
		errs = append(errs, r.watcher.finish())
		for _, line := range r.watcher.summary() {
			r.o.Notice(line)
		}
	}
	r.reportChanges()
	if r.sink != nil {
		r.events.Send(event.Event{Type: event.SessionEnd})
		if err := r.sink.finish(); err != nil {
			r.o.Notice(err.Error())
		}
	}
	r.closeSinks()
	unlock, err := lockHost()
	errs = append(errs, err)
	if r.helpers != nil {
		errs = append(errs, r.helpers.kill(), r.helpers.delete())
	}
	if r.parent != nil {
		errs = append(errs, r.parent.delete())
	}
	for _, f := range r.occupied {
		f.Close()
	}
	if r.s.proof != nil {
		errs = append(errs, r.s.proof.forget(r))
	}
	r.s.Close()
	removeEmpty()
	unlock()
	return errors.Join(errs...)
}

// reportChanges says what is not as it was: files under integrity, and the state files that the manifest names.
func (r *run) reportChanges() {
	if r.before == nil {
		return
	}
	for _, err := range r.s.checkIntegrity() {
		r.o.Notice(err.Error())
		r.events.Send(event.Event{Type: event.IntegrityChanged, Detail: err.Error()})
	}
	for _, line := range r.before.changes(r.s) {
		r.o.Notice(line)
	}
}

// onHint tells running commands' clients what a refused write to git's configuration means.
func (r *run) onHint(h uint64) {
	if sv := r.serving.Load(); sv != nil && h == protect.HintGitConfig {
		sv.hint(wire.HintGit)
	}
}
