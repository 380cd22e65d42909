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
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sharness/sharness/bashserver"
	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/launcher/protect"
	"github.com/sharness/sharness/launcher/tty"
	"github.com/sharness/sharness/manifest"
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

	goOn         func() error // an error once somebody wants the start to end
	opening      bool         // the host's lock was had, and what it guards may have been made
	signals      *interrupts
	orchestrator atomic.Pointer[domain] // nil while there is none
	terminated   sync.Once              // SIGTERM has come for it
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
	r, err := open(o, true, signals.check)
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
	stopped := errors.New("stopped")
	r, err := open(o, false, func() error {
		select {
		case <-stop:
			return stopped
		default:
			return nil
		}
	})
	if errors.Is(err, stopped) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.startServices(false); errors.Is(err, stopped) {
		return nil
	} else if err != nil {
		return err
	}
	o.Ready(r.s.socketPath())
	select {
	case <-stop:
	case <-r.failed:
	}
	return r.failure()
}

// open does what may refuse, and makes what a session needs of folders and groups, as long as goOn gives no error.
func open(o Options, orchestrator bool, goOn func() error) (*run, error) {
	s, err := openSession(o.Manifest, o.Workspace, o.Proof)
	if err != nil {
		return nil, err
	}
	s.learn = o.Learn
	r := &run{o: o, s: s, goOn: goOn, failed: make(chan struct{})}
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
	var left error
	defer func() {
		if left != nil {
			r.o.Notice(left.Error()) // with the lock let go of: whoever reads it may be slow
		}
	}()
	unlock, err := lockHost(r.goOn)
	if err != nil {
		return err
	}
	defer unlock()
	r.opening = true
	// What a power cut or SIGKILL left goes first; that something could not go must not stop a new session.
	_, left = collect()
	if err := r.s.takeLock(); err != nil {
		return err
	}
	if r.opened, err = openSinks(r.s, r.o.Sinks); err != nil {
		return err
	}
	if err := r.s.reserve(); err != nil {
		return err
	}
	if err := r.s.sign(); err != nil {
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
	if err := s.within(plan, v); err != nil {
		v.close()
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

// onHint tells running commands' clients what a refused write to git's configuration means.
func (r *run) onHint(h uint64) {
	if sv := r.serving.Load(); sv != nil && h == protect.HintGitConfig {
		sv.hint(wire.HintGit)
	}
}
