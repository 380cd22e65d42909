package launcher

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/sharness/sharness/bashserver"
	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/lean"
	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/launcher/filter"
	"github.com/sharness/sharness/launcher/protect"
	"github.com/sharness/sharness/launcher/relay"
	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

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
	for _, d := range r.s.Decision.Doors {
		if d.Closed && slices.Contains(r.o.AllowOpen, d.ID) {
			r.o.Notice("--allow-open " + d.ID + ": this host closes the door, so it stays closed")
		}
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
	if r.watcher, err = startWatcher(r.sp, r.s, r.events, r.sink.ends[feedWatch], r.onHint, r.onReplaced, r.fail, r.goOn); err != nil {
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
		Jobs: jobsOf(m), JobsLast: jobsLast(m), OneNetwork: m.Sandbox.Network == manifest.NetworkSession, JobLog: int(m.Sandbox.Background.Log),
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
