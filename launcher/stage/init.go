package stage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"runtime"
	"slices"
	"syscall"

	"github.com/sharness/sharness/internal/confine"
	"golang.org/x/sys/unix"
)

// Init is pid 1: it reads the plan, takes the steps and stays until the target has ended. It returns the exit status
// of the process; nobody but the supervisor reads it, and what matters has been said on the status socket.
func Init() int {
	// PDEATHSIG of the target is tied to the thread that forks it (prctl(2)).
	runtime.LockOSThread()
	unix.CloseOnExec(StatusFD)
	plan, err := readPlan(PlanFD)
	if err != nil {
		return fail(err)
	}
	// Whoever started the supervisor may have left it a descriptor without close-on-exec: pid 1 would keep it. The
	// host's /proc still shows this process here.
	if err := confine.CloseAbove(plan.descriptors()...); err != nil {
		return fail(err)
	}
	child, terminal, err := start(plan)
	if err != nil {
		return fail(err)
	}
	if err := dropInit(plan); err != nil {
		return fail(fmt.Errorf("pid 1: %w", err))
	}
	if err := child.release(); err != nil {
		return fail(err)
	}
	return stay(child.pid, terminal)
}

// fail says on the status socket why nothing runs.
func fail(err error) int {
	if err := Send(StatusFD, Message{Type: MsgError, Text: err.Error()}, -1); err != nil {
		fmt.Fprintln(os.Stderr, "sharness-init:", err)
	}
	return 125
}

func readPlan(fd int) (*Plan, error) {
	f := os.NewFile(uintptr(fd), "plan")
	defer f.Close()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	var p Plan
	dec := json.NewDecoder(f)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("plan: more than one document")
	}
	if err := eachString(reflect.ValueOf(&p), fromText); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return &p, nil
}

// descriptors are all that the plan names.
func (p *Plan) descriptors() []int {
	fds := append([]int{StatusFD, p.Box}, p.Stdio[:]...)
	if p.Inside != nil {
		fds = append(fds, p.Inside.Userns)
	}
	for _, m := range slices.Concat(p.Mounts, p.Late) {
		if m.Fstype == "" && m.Bind == "" {
			fds = append(fds, m.FD)
		}
	}
	return fds
}

// start takes the steps that need privilege, in the only safe order. It returns Enter, which waits to be released, and
// the terminal if there is one: pid 1 keeps it for job control.
func start(p *Plan) (*entering, *os.File, error) {
	// Pid 1 leads a session of its own: it shares no terminal and no process group with the supervisor.
	if _, err := unix.Setsid(); err != nil {
		return nil, nil, fmt.Errorf("setsid: %w", err)
	}
	// Below the group that this process was born in; Enter is forked from this thread and inherits it.
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return nil, nil, fmt.Errorf("cgroup namespace: %w", err)
	}
	if err := unix.Sethostname([]byte(p.Hostname)); err != nil {
		return nil, nil, fmt.Errorf("hostname: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return nil, nil, err
	}
	// The view. Files and links first: they need the bare root tmpfs, which sealRoot then closes.
	if err := newRoot(); err != nil {
		return nil, nil, err
	}
	unix.Umask(0o022)
	if err := writeFiles(p.Files, p.Links); err != nil {
		return nil, nil, err
	}
	for _, m := range p.Mounts {
		if err := attach(m); err != nil {
			return nil, nil, err
		}
	}
	if err := protectWorkspace(p.Protected); err != nil {
		return nil, nil, err
	}
	// Sysctls before the masks: behind them they cannot be written.
	if err := writeSysctls(p.Sysctls); err != nil {
		return nil, nil, err
	}
	if err := maskProc(p.MaskProc, p.ReadProc); err != nil {
		return nil, nil, err
	}
	if err := sealRoot(); err != nil {
		return nil, nil, err
	}
	for _, r := range p.Rlimits {
		if err := limit(r); err != nil {
			return nil, nil, err
		}
	}
	stdio, terminal, err := openStdio(p)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		for _, f := range stdio {
			f.Close()
		}
	}()
	// The outer domain before the fork: the target's is nested below it, so that pid 1 may signal the target and the
	// target may not signal pid 1. Mounting is over by now, Landlock refuses it from here on (landlock(7)).
	if err := p.Outer.Restrict(); err != nil {
		return nil, nil, fmt.Errorf("landlock: outer domain: %w", err)
	}
	child, err := startEnter(p, stdio)
	return child, terminal, err
}

// limit sets a limit. What the host bounds tighter stays so, unless the plan needs exactly its own number.
func limit(r Rlimit) error {
	lim, err := r.within()
	if err != nil {
		return err
	}
	if err := unix.Setrlimit(r.Resource, &lim); err != nil {
		return fmt.Errorf("rlimit %d to %d: %w", r.Resource, lim.Max, err)
	}
	return nil
}

// within is what of a limit the host allows.
func (r Rlimit) within() (unix.Rlimit, error) {
	if r.Exact {
		return unix.Rlimit{Cur: r.Soft, Max: r.Hard}, nil
	}
	var now unix.Rlimit
	if err := unix.Getrlimit(r.Resource, &now); err != nil {
		return now, fmt.Errorf("rlimit %d: %w", r.Resource, err)
	}
	return unix.Rlimit{Cur: min(r.Soft, now.Max), Max: min(r.Hard, now.Max)}, nil
}

// openStdio gives the three standard streams of the target, and the terminal itself.
func openStdio(p *Plan) (out [3]*os.File, terminal *os.File, err error) {
	if p.Terminal {
		if terminal, err = openTerminal(p.UID, p.GID); err != nil {
			return out, nil, err
		}
	}
	for i, fd := range p.Stdio {
		switch {
		case fd >= 0:
			unix.CloseOnExec(fd)
			out[i] = os.NewFile(uintptr(fd), fmt.Sprintf("stdio%d", i))
		case p.Stdio[i] == StdioTerminal && terminal != nil:
			dup, err := unix.FcntlInt(terminal.Fd(), unix.F_DUPFD_CLOEXEC, 3)
			if err != nil {
				return out, nil, fmt.Errorf("terminal: duplicate: %w", err)
			}
			out[i] = os.NewFile(uintptr(dup), "terminal")
		default:
			f, err := os.OpenFile("/dev/null", os.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				return out, nil, fmt.Errorf("stdio: %w", err)
			}
			out[i] = f
		}
	}
	return out, terminal, nil
}

// entering is the second process of the stage while it is on its way.
type entering struct {
	pid       int
	report    *os.File // close-on-exec over there: EOF means that the target runs, a text says which step failed
	releasing *os.File
}

// startEnter starts the second process of the stage.
func startEnter(p *Plan, stdio [3]*os.File) (*entering, error) {
	planFD, err := encodePlan(p)
	if err != nil {
		return nil, err
	}
	defer unix.Close(planFD)
	report, reportW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("report pipe: %w", err)
	}
	defer reportW.Close()
	releaseR, release, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("release pipe: %w", err)
	}
	defer releaseR.Close()
	files := []uintptr{stdio[0].Fd(), stdio[1].Fd(), stdio[2].Fd(), uintptr(planFD), reportW.Fd(), releaseR.Fd()}
	attr := &syscall.ProcAttr{Files: files, Env: os.Environ(), Sys: &syscall.SysProcAttr{Setpgid: true}} // the stage's own
	if p.Terminal && p.Front {
		on := slices.Index(p.Stdio[:], StdioTerminal)
		if on < 0 {
			return nil, errors.New("start second stage: in front of a terminal that none of its streams is")
		}
		attr.Sys.Foreground = true
		attr.Sys.Ctty = int(stdio[on].Fd())
	}
	path, argv := "/proc/self/exe", []string{"sharness-init", "enter"}
	if p.Inside != nil {
		// A process with threads enters no user namespace (setns(2)), and one of Go has some.
		self, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("start second stage: %w", err)
		}
		defer unix.Close(self)
		attr.Files = append(files, uintptr(p.Inside.Userns), uintptr(self), uintptr(p.Box))
		path, argv = fmt.Sprintf("/proc/self/fd/%d", enterBoxFD), []string{"sharness-box", "enter"}
	}
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return nil, fmt.Errorf("start second stage: %w", err)
	}
	if p.Inside != nil {
		unix.Close(p.Inside.Userns)
		unix.Close(p.Box)
	}
	return &entering{pid: pid, report: report, releasing: release}, nil
}

// release lets Enter go on and waits until it has executed the target.
func (e *entering) release() error {
	defer e.report.Close()
	_, werr := e.releasing.Write([]byte{1})
	e.releasing.Close()
	text, err := io.ReadAll(io.LimitReader(e.report, maxText))
	if err != nil {
		return fmt.Errorf("second stage: %w", err)
	}
	if len(text) > 0 {
		return errors.New(string(text))
	}
	if werr != nil {
		return fmt.Errorf("second stage: %w", werr)
	}
	return nil
}

// encodePlan hands the plan on without what only Init needs.
func encodePlan(p *Plan) (int, error) {
	q := *p
	q.Mounts, q.Files, q.Links, q.Protected = nil, nil, nil, nil
	data, err := q.Encode()
	if err != nil {
		return -1, err
	}
	return SealedMemfd("plan", data)
}

// SealedMemfd returns a memfd with the given content that nobody can change any more.
func SealedMemfd(name string, data []byte) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("memfd %s: %w", name, err)
	}
	for off := 0; off < len(data); {
		n, err := unix.Pwrite(fd, data[off:], int64(off))
		if err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("memfd %s: write: %w", name, err)
		}
		off += n
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE|unix.F_SEAL_SEAL); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("memfd %s: seal: %w", name, err)
	}
	return fd, nil
}

// dropInit takes from pid 1 everything that a reaper does not need. Its streams go first: an end of a pipe kept here
// would hold back the EOF that the other side waits for.
func dropInit(p *Plan) error {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/null: %w", err)
	}
	for fd := range 3 {
		if err := unix.Dup3(null, fd, 0); err != nil {
			return fmt.Errorf("replace stream %d: %w", fd, err)
		}
	}
	unix.Close(null)
	if err := giveUp(allThreads{}, p.UID, p.GID); err != nil {
		return err
	}
	// Every file and every port is denied to pid 1; no scope, since it must signal the target, which sits below Outer
	// but not below this layer.
	deny := confine.Landlock{ABI: p.Landlock.ABI, FS: true, Net: p.Landlock.Net}
	if err := deny.Restrict(); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	for _, prog := range p.Seccomp {
		if err := confine.LoadSeccomp(prog); err != nil {
			return err
		}
	}
	return nil
}

// giver is confine's ways of giving up: of all threads, or of one that executes another program next.
type giver interface {
	LockSecurebits() error
	SetIDs(uid, gid int) error
	ClearCaps() error
	NoNewPrivs() error
}

// allThreads is confine itself.
type allThreads struct{}

func (allThreads) LockSecurebits() error     { return confine.LockSecurebits() }
func (allThreads) SetIDs(uid, gid int) error { return confine.SetIDs(uid, gid) }
func (allThreads) ClearCaps() error          { return confine.ClearCaps() }
func (allThreads) NoNewPrivs() error         { return confine.NoNewPrivs() }

// giveUp empties ids and privileges, in the order that setresuid(2), capabilities(7) and prctl(2) leave: the bounding set
// needs CAP_SETPCAP, securebits too; the uid goes last of what needs privilege. setresuid clears PDEATHSIG and makes the
// process undumpable, so both are set once more.
//
// The bounding set goes on the calling thread alone, which is the one that execs, or in pid 1 the one that could: the
// others never exec, have no capability, and no_new_privs keeps them from gaining one.
func giveUp(g giver, uid, gid uint32) error {
	if err := (confine.Thread{}).DropBounding(); err != nil {
		return err
	}
	if err := g.LockSecurebits(); err != nil {
		return err
	}
	if err := g.SetIDs(int(uid), int(gid)); err != nil {
		return err
	}
	if err := g.ClearCaps(); err != nil {
		return err
	}
	if err := confine.NotDumpable(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("pdeathsig: %w", err)
	}
	return g.NoNewPrivs()
}

// stay serves the status socket until the target has ended. When pid 1 returns, the kernel ends everything that is
// left in the namespace (pid_namespaces(7)).
//
// It stays on the thread that started Enter: below Landlock ABI 8 each thread of a process has a domain of its own
// making, and only the one that Enter was forked in is above the target's, which is what lets a signal through.
func stay(target int, terminal *os.File) int {
	// A signal from inside must not end pid 1: the Go runtime installs handlers, so the kernel's protection of an init
	// without handlers does not reach all of them.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
	if err := Send(StatusFD, Message{Type: MsgRunning}, -1); err != nil {
		return 125
	}
	go func() { os.Exit(reap(target)) }()
	for {
		// The end of the supervisor is the end of the domain: that is the second cord beside PDEATHSIG.
		m, err := receiveOrder(StatusFD)
		if err != nil {
			return 125
		}
		switch m.Type {
		case MsgSignal:
			signalGroup(target, unix.Signal(m.A))
		case MsgContinue:
			if terminal != nil {
				group := unix.Getpgrp()
				if m.A == 1 {
					group = target
				}
				// A terminal that hangs up meanwhile ends the target anyway.
				_ = unix.IoctlSetPointerInt(int(terminal.Fd()), unix.TIOCSPGRP, group)
			}
			signalGroup(target, unix.SIGCONT)
		default:
			return 125
		}
	}
}

// reap waits for the target and for every orphan of the namespace, and reports what the target does.
func reap(target int) int {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fail(fmt.Errorf("wait: %w", err))
		case pid != target:
		case ws.Stopped():
			if err := Send(StatusFD, Message{Type: MsgStopped, A: uint32(ws.StopSignal())}, -1); err != nil {
				return 125
			}
		case ws.Signaled():
			return exited(Message{Type: MsgExited, A: 1, B: uint32(ws.Signal())})
		case ws.Exited():
			return exited(Message{Type: MsgExited, B: uint32(ws.ExitStatus())})
		}
	}
}

// exited reports the end of the target.
func exited(m Message) int {
	if err := Send(StatusFD, m, -1); err != nil {
		return 125
	}
	return 0
}

// signalGroup signals the target's process group. A group that is gone is no news.
func signalGroup(target int, sig unix.Signal) {
	_ = unix.Kill(-target, sig)
}
