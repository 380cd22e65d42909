// Package prove attacks a session of sharness on this host, and shows what came of it: the privileged half of sharness
// prove, which plants bait, starts the probe through the very path that enforce uses, and looks for what was left.
//
// It reads nothing that comes from inside of a domain: package report does, in a process without privilege, to which the
// bytes are copied as they come. Everything is made below one folder and in one subtree of processes, and is gone when it
// returns; no sysctl, firewall rule or user of the host is touched.
package prove

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/internal/prove/report"
	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/launcher"
	"github.com/sharness/sharness/launcher/host"
	"github.com/sharness/sharness/launcher/resolve"
	"github.com/sharness/sharness/manifest"
)

// Options say what to prove.
type Options struct {
	Version   string
	Command   string // how it was called, for the page
	Doors     []string
	AllowOpen []string
	Ablate    bool
	Sandbox   bool
	All       bool               // a line for every attempt
	Manifest  *manifest.Manifest // with defaults; prove what its agent may do
	Path      string             // of it
	Out, Err  *os.File
	JSON      *os.File // nil: not wanted
	Markdown  *os.File
}

// MissingError says what this host or caller lacks: nothing was attempted.
type MissingError struct{ Err error }

func (e *MissingError) Error() string { return e.Err.Error() }
func (e *MissingError) Unwrap() error { return e.Err }

// ReportCommand is the word by which sharness starts itself as the half that reads.
const ReportCommand = "prove-report"

// proof is one run of prove.
type proof struct {
	o        Options
	s        *site
	frames   *report.Frames
	features *host.Features
	decision *resolve.Decision
	stopped  atomic.Bool // by a signal
}

// Run proves, and returns the exit status: 0 when every door is closed and every denial was told, 1 when not.
func Run(o Options) (status int, err error) {
	p := &proof{o: o}
	if err := p.decide(); err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	go func() {
		for range signals {
			p.stopped.Store(true)
		}
	}()
	before, err := look()
	if err != nil {
		return 0, err
	}
	// What dies with its parent dies with the thread that started it, and those of a session come and go: the report is read to
	// the end, and the probes are started, on one that stays.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	reporter, err := p.startReport()
	if err != nil {
		return 0, err
	}
	err = p.attack()
	left, lerr := leftBehind(before)
	err = errors.Join(err, lerr, p.frames.Send(report.KindLeft, left))
	status, werr := reporter.finish()
	if p.stopped.Load() {
		return 0, errors.New("prove: interrupted")
	}
	return status, errors.Join(err, werr)
}

// Attempts are the names of all attempts, as the probe lists them for an orchestrator, a command, and one that starts commands: DOOR/ATTEMPT.
func Attempts() ([]string, error) {
	probe, err := launcher.Helper("sharness-probe")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, from := range [][]string{nil, {"--command"}, {"--sandbox", probe}} {
		args := append(from, "--list")
		out, err := exec.Command(probe, args...).Output()
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", probe, strings.Join(args, " "), err)
		}
		for line := range strings.Lines(string(out)) {
			if fields := strings.Fields(line); len(fields) > 0 && !slices.Contains(names, fields[0]) {
				names = append(names, fields[0])
			}
		}
	}
	return names, nil
}

// decide asks the host before anything is made.
func (p *proof) decide() error {
	for _, name := range []string{"sharness-probe", "sharness-init", "sharness-box", "sharness-agent"} {
		if _, err := launcher.Helper(name); err != nil {
			return &MissingError{err}
		}
	}
	var err error
	if p.features, err = host.Probe(host.Options{Paths: []string{"/var/lib"}}); err != nil {
		return fmt.Errorf("probe host: %w", err)
	}
	m := p.o.Manifest
	if m == nil {
		m = (&manifest.Manifest{Version: manifest.Version, Name: "prove"}).WithDefaults()
	}
	if p.decision, err = resolve.Resolve(m, p.features, p.o.AllowOpen); err != nil {
		return &MissingError{err}
	}
	if err := p.decision.Err(); err != nil {
		return &MissingError{err}
	}
	return nil
}

// attack plants, makes every run, and takes everything away. The thread is locked.
func (p *proof) attack() (err error) {
	if err := p.frames.Send(report.KindHeader, p.header()); err != nil {
		return err
	}
	if p.s, err = newSite(limits, unlisted(p.o.Manifest)); err != nil {
		return fmt.Errorf("plant bait: %w", err)
	}
	defer func() { err = errors.Join(err, p.s.close()) }()
	tasks := p.runs()
	if p.o.Sandbox {
		tasks = append(tasks, p.sandbox())
	}
	if p.o.Ablate {
		tasks = append(tasks, p.ablations()...)
	}
	for _, r := range tasks {
		if p.stopped.Load() {
			return nil
		}
		if err := p.run(r); err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
	}
	return nil
}

func (p *proof) header() report.Header {
	h := report.Header{
		Version: p.o.Version, Command: p.o.Command, Kernel: p.features.Kernel, Build: p.features.Version, Machine: p.features.Machine, Distribution: distribution(),
		Chosen: len(p.o.Doors) > 0, Cgroups: string(p.features.Cgroup.Mode), LandlockABI: p.decision.Landlock.ABI, Date: time.Now().UTC(),
	}
	for _, d := range p.decision.Doors {
		door := report.Door{ID: d.ID, Title: d.Title, Closed: d.Closed, Allowed: d.Allowed, Rest: d.Rest}
		for _, l := range d.By {
			door.By = append(door.By, string(l))
		}
		h.Doors = append(h.Doors, door)
	}
	if m := p.o.Manifest; m != nil {
		h.Manifest, h.Memfd = p.o.Path, m.Memfd
		for _, e := range m.Exec {
			h.Pinned = append(h.Pinned, e.Path)
		}
	}
	if p.o.Ablate {
		for _, l := range launcher.Removable() {
			h.Removable = append(h.Removable, string(l))
		}
	}
	for _, l := range p.decision.Layers {
		h.Layers = append(h.Layers, report.Layer{Name: string(l.Name), Holds: l.Holds, Why: l.Why})
	}
	return h
}

// distribution is what the host calls itself.
func distribution() string {
	data, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return strings.Trim(strings.TrimSpace(name), `"'`)
		}
	}
	return "unknown"
}

// task is a run with what the reporter need not know.
type task struct {
	report.Run
	program string
	access  manifest.Access
	without []sidedoor.Layer
	args    []string // of the probe
}

func (p *proof) runs() []task {
	doors := []string{}
	for _, d := range p.o.Doors {
		doors = append(doors, "--door", d)
	}
	if len(p.o.Doors) > 0 && !slices.ContainsFunc(p.o.Doors, func(d string) bool { return !strings.HasPrefix(d, "cmd-") }) {
		return nil // attacked from a sandbox alone
	}
	if p.o.Manifest != nil {
		return []task{
			{Run: report.Run{Name: "survey", Mode: report.Survey}, program: p.s.static, args: []string{"--survey"}},
			{Run: report.Run{Name: "control, static", Mode: report.Control}, program: p.s.static, args: doors},
			{Run: report.Run{Name: "static", Mode: report.Session, Control: "control, static"}, program: p.s.static, args: doors},
		}
	}
	tasks := []task{
		{Run: report.Run{Name: "control, static", Mode: report.Control}, program: p.s.static, args: doors},
		{Run: report.Run{Name: "static", Mode: report.Session, Control: "control, static"}, program: p.s.static, access: manifest.AccessWrite, args: doors},
		{Run: report.Run{Name: "workspace read-only", Mode: report.Session, Control: "control, static"}, program: p.s.static, access: manifest.AccessRead, args: doors},
	}
	if p.s.dynamic != "" {
		tasks = append(tasks,
			task{Run: report.Run{Name: "control, dynamic", Mode: report.Control}, program: p.s.dynamic, args: doors},
			task{Run: report.Run{Name: "dynamic", Mode: report.Session, Control: "control, dynamic"}, program: p.s.dynamic, access: manifest.AccessWrite, args: doors})
	}
	return tasks
}

// sandbox attacks from commands of the bash-server, as which the probe is started out of the workspace. Only what the
// orchestrator is refused is traced.
func (p *proof) sandbox() task {
	t := task{Run: report.Run{Name: "sandbox", Mode: report.Sandbox, Control: "control, static"}, program: p.s.static, access: manifest.AccessWrite,
		args: []string{"--sandbox", p.s.commandProbe()}}
	for _, d := range p.o.Doors {
		t.args = append(t.args, "--door", d)
	}
	return t
}

// run makes one run and tells the reporter.
func (p *proof) run(t task) error {
	t.Traced = t.Mode == report.Session
	t.Files = t.Traced
	if err := p.frames.Send(report.KindBegin, t.Run); err != nil {
		return err
	}
	before, err := p.s.snapshot()
	if err != nil {
		return err
	}
	arrived := len(p.s.planted.Arrived())
	start := time.Now()
	var end report.End
	if t.Mode == report.Control {
		end, err = p.control(t)
	} else {
		end, err = p.session(t)
	}
	if err != nil {
		return err
	}
	end.Duration = time.Since(start).Seconds()
	end.Arrived = p.s.planted.Arrived()[arrived:]
	after, err := p.s.snapshot()
	if err != nil {
		return err
	}
	end.Changed = difference(before, after)
	return p.frames.Send(report.KindEnd, end)
}

// pace lets the tracing programs' reader keep up on a busy machine: each denial gets a line of its own.
const pace = "1ms"

// control makes the attempts as an ordinary user outside of every domain, in whose hands the bait is.
func (p *proof) control(t task) (report.End, error) {
	cmd := exec.Command(t.program, append([]string{"--bait", p.s.baitFile(), "--control"}, t.args...)...)
	cmd.Dir = p.s.workspace
	cmd.Env = append(slices.Clone(p.s.planted.Env), "HOME="+p.s.state, "PATH=/usr/bin:/bin")
	cmd.Stdout, cmd.Stderr = p.frames.Copy(report.KindResults), p.frames.Copy(report.KindWords)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: launcher.BaitUID, Gid: launcher.BaitUID}}
	err := cmd.Run()
	var end report.End
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() >= 0 {
		end.Status = exit.ExitCode()
	} else if err != nil {
		end.Failed = err.Error()
	}
	return end, nil
}

// session makes the attempts as the orchestrator of a session.
func (p *proof) session(t task) (end report.End, err error) {
	m, err := p.s.manifest(t.program, t.access)
	if p.o.Manifest != nil {
		m, err = p.s.inPlaceOf(p.o.Manifest, t.program)
	}
	if err != nil {
		return end, err
	}
	path, err := p.s.written(m)
	if err != nil {
		return end, err
	}
	file := p.s.baitFile()
	if slices.Contains(t.without, sidedoor.Protect) {
		file = p.s.unwatchedFile()
	}
	log := filepath.Join(p.s.base, "out", "events.jsonl")
	defer os.Remove(log)
	out, err := newPipes(p.frames)
	if err != nil {
		return end, err
	}
	tail := follow(log, p.frames.Copy(report.KindEvents))
	status, serr := launcher.Enforce(launcher.Options{
		Manifest: m, Path: path, Workspace: p.s.workspace, AllowOpen: p.o.AllowOpen, Dir: p.s.workspace,
		Args:  append([]string{"--bait", file, "--pace", pace}, t.args...),
		Env:   append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "TERM=xterm", "LANG=C.UTF-8"}, p.s.planted.Env...),
		Stdio: [3]*os.File{out.null, out.stdout, out.stderr},
		Sinks: []sink.Spec{{Kind: sink.File, Path: log}},
		// Programs look for files that they may not read; the probe looks for nothing else.
		EventsFiles: true,
		Notice:      func(line string) { fmt.Fprintln(p.frames.Copy(report.KindWords), line) },
		Proof:       &launcher.Proof{User: launcher.User{UID: launcher.BaitUID, GID: launcher.BaitUID, Name: "bait"}, Without: t.without},
	})
	if err := errors.Join(out.close(), tail.stop()); err != nil {
		return end, err
	}
	end.Status = status
	if refused := new(launcher.Refused); errors.As(serr, &refused) {
		end.Refused = serr.Error()
	} else if serr != nil {
		end.Failed = serr.Error()
	}
	return end, nil
}

// reporter is the process that reads.
type reporter struct {
	cmd *exec.Cmd
	in  *os.File
}

// startReport starts it as nobody in particular, with nothing but the stream and what it writes.
func (p *proof) startReport() (*reporter, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	args := []string{ReportCommand}
	if p.o.All {
		args = append(args, "--all")
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = self
	cmd.Env = []string{"GODEBUG=" + os.Getenv("GODEBUG")}
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r, p.o.Out, p.o.Err
	for name, f := range map[string]*os.File{"--json": p.o.JSON, "--markdown": p.o.Markdown} {
		if f != nil {
			cmd.Args = append(cmd.Args, fmt.Sprintf("%s=%d", name, 3+len(cmd.ExtraFiles)))
			cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		}
	}
	// Its own group: what interrupts us must not end it before it has said so.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: reportUID, Gid: reportUID}}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, fmt.Errorf("start the report: %w", err)
	}
	p.frames = report.NewFrames(w)
	return &reporter{cmd, w}, nil
}

// reportUID is nobody's.
const reportUID = launcher.BaitUID + 1

func (r *reporter) finish() (status int, err error) {
	r.in.Close()
	err = r.cmd.Wait()
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return 1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("report: %w", err)
	}
	return 0, nil
}
