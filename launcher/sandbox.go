package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/launcher/stage"
	"golang.org/x/sys/unix"
)

// sandbox is one sandbox: pid 1 of its namespaces, and a target that waits at a gate with nothing left to give up.
type sandbox struct {
	*domain
	number uint64
	uid    int
	slot   int
	box    *box
	pidfd  *os.File
	gate   *os.File  // the target's; its end says that it runs
	netns  *netspace // its own; nil where the session has one for all
	held   space     // opened before a command runs in it, which may have ended when its goroutine comes to run
	before met       // when its command had not begun
}

// sandboxes makes them, keeps a few waiting, and takes back what can be used again.
type sandboxes struct {
	sv    *server
	group func(slot int, number uint64) (*cgroup, error) // makes the group of a sandbox
	nets  *netspaces
	steps struct {
		sync.Mutex
		last string   // the steps of late attachment that memfd holds
		file *os.File // nil: none yet
	}

	making sync.Mutex // of box: there is one
	mu     sync.Mutex
	box    *box
	ready  []*sandbox
	filler sync.WaitGroup
	fills  bool
	closed bool
}

// waiting is how many sandboxes wait for a command. They save the time that one takes to make, not the work: a second
// one is for the command that comes while the first is being replaced.
const waiting = 2

func newSandboxes(sv *server) *sandboxes {
	return &sandboxes{sv: sv, nets: newNetspaces(), group: sv.newGroup}
}

// newGroup makes the group of a command.
func (sv *server) newGroup(slot int, number uint64) (*cgroup, error) {
	if cg := sv.retired.again(slot); cg != nil {
		return cg, nil
	}
	lim, err := sv.limitsFor(slot)
	if err != nil {
		return nil, err
	}
	cg, err := newCgroup(sv.budget.group.path+"/command-"+strconv.FormatUint(number, 10), lim)
	if err != nil {
		return nil, err
	}
	cg.retired = &sv.retired
	if sv.s.learn == nil { // which wants to know what each command took
		cg.slot, cg.files = slot, map[string]*os.File{}
	}
	return cg, nil
}

// take returns a sandbox that was never used.
func (x *sandboxes) take(terminal func(master int) error) (*sandbox, error) {
	b, err := x.current()
	if err != nil {
		return nil, err
	}
	if err := x.probe(b); err != nil {
		return nil, err
	}
	if terminal == nil {
		if sb := x.pop(b); sb != nil {
			return sb, nil
		}
	}
	return x.prepare(b, terminal, nil)
}

// pop takes one of those that wait, and ends what cannot be used any more.
func (x *sandboxes) pop(b *box) *sandbox {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.ready) > 0 {
		sb := x.ready[0]
		x.ready = x.ready[1:]
		select {
		case <-sb.reaped:
		default:
			if sb.box == b {
				return sb
			}
		}
		x.filler.Go(func() { x.discard(sb) })
	}
	return nil
}

func (x *sandboxes) discard(sb *sandbox) {
	if err := x.end(sb); err != nil {
		x.sv.events.Send(event.Event{Type: event.LayerApplied, Layer: "sharness-box", Detail: "teardown of an unused sandbox: " + err.Error()})
	}
}

// current returns a box whose view is what the host shows now.
func (x *sandboxes) current() (*box, error) {
	x.making.Lock()
	defer x.making.Unlock()
	x.mu.Lock()
	b, closed := x.box, x.closed
	x.mu.Unlock()
	if closed {
		return nil, errors.New("the session is ending")
	}
	if b != nil && !b.gone() && unchanged(b.seen) {
		return b, nil
	}
	if b != nil && b.gone() {
		x.sv.events.Send(event.Event{Type: event.LayerApplied, Layer: "sharness-box", Detail: "sharness-box ended" + b.words.suffix() + "; started again"})
	}
	next, err := x.sv.s.startBox(x.sv.sp)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	x.box = next
	x.mu.Unlock()
	if b != nil {
		b.end()
	}
	return next, nil
}

// startBox starts sharness-box for the commands of the session.
func (s *Session) startBox(sp *spawner) (*box, error) {
	v, err := s.sharedView()
	if err != nil {
		return nil, err
	}
	seen := sources(v)
	own, err := s.ownView(slotUID(s.UID, 0)) // whichever: the folders are the same
	if err != nil {
		v.close()
		return nil, err
	}
	defer own.close()
	late := attached(own)
	b, err := sp.startBox(s.commandPlan(v, own), v)
	if err != nil {
		return nil, err
	}
	b.seen, b.late = seen, late
	return b, nil
}

// prepare makes a sandbox. terminal, where it wants one, gives the new pty its size.
func (x *sandboxes) prepare(b *box, terminal func(master int) error, probe *os.File) (_ *sandbox, err error) {
	sv := x.sv
	sb, ok := &sandbox{box: b, held: -1}, false
	if sb.number, sb.slot, sb.uid, ok = sv.takeSlot(); !ok {
		return nil, errNoSlot
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.end(sb))
		}
	}()
	ns, err := sv.s.namespacesOf(sb.uid)
	if err != nil {
		return nil, err
	}
	cg, err := x.group(sb.slot, sb.number)
	if err != nil {
		return nil, err
	}
	sb.domain = &domain{cgroup: cg}
	netns := sv.netns
	if netns == nil {
		if sb.netns, err = x.nets.take(); err != nil {
			return nil, err
		}
		netns = sb.netns.File
	}
	if err := sb.make(netns, ns.inside, terminal != nil, probe); err != nil {
		return nil, err
	}
	if err := sb.await(stage.MsgReady, terminal); err != nil {
		return nil, err
	}
	sb.held = openSpace(sb.pid)
	return sb, nil
}

// errNoSlot says that every id of the session is in use.
var errNoSlot = errors.New("no id is free")

// make has the two processes forked off.
func (sb *sandbox) make(netns, userns *os.File, terminal bool, probe *os.File) error {
	status, theirs, err := socketpair(unix.SOCK_SEQPACKET)
	if err != nil {
		return err
	}
	defer theirs.Close()
	gate, target, err := socketpair(unix.SOCK_SEQPACKET)
	if err != nil {
		status.Close()
		return err
	}
	defer target.Close()
	if sb.status, err = pollable(status); err == nil {
		sb.gate, err = pollable(gate)
	} else {
		gate.Close()
	}
	if err != nil {
		return err
	}
	fds, flags, tasks := []int{int(theirs.Fd()), int(target.Fd()), int(netns.Fd()), int(userns.Fd())}, 0, len(sb.cgroup.tasks)
	groups, err := sb.cgroup.open()
	if err != nil {
		return err
	}
	for _, g := range groups {
		fds = append(fds, int(g.Fd()))
	}
	if len(groups) > tasks {
		flags |= flagGroup
	}
	if terminal {
		flags |= flagTerminal
	}
	if probe != nil {
		flags |= flagProbe
		fds = append(fds, int(probe.Fd()))
	}
	if sb.pid, sb.pidfd, err = sb.box.make(sb.uid, flags, tasks, fds); err != nil {
		return err
	}
	sb.reaped = make(chan struct{})
	go sb.reap()
	return nil
}

// pollable makes a descriptor one that no thread has to wait for.
func pollable(f *os.File) (*os.File, error) {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("duplicate: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make non-blocking: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// reap waits for pid 1 by its pidfd, without a thread.
func (sb *sandbox) reap() {
	defer close(sb.reaped)
	raw, err := sb.pidfd.SyscallConn()
	if err == nil {
		err = raw.Read(func(uintptr) bool {
			pid, err := unix.Wait4(sb.pid, nil, unix.WNOHANG, nil)
			return err != nil && !errors.Is(err, unix.EINTR) || pid == sb.pid
		})
	}
	if err != nil {
		_, _ = wait4(sb.pid)
	}
}

// run attaches what a command sees of the user's folders, as they are now, and lets the target go on. passed are the
// request, the three streams where it has no terminal, and the program of the self-probe.
func (x *sandboxes) run(sb *sandbox, passed []*os.File) error {
	s := x.sv.s
	own, err := s.ownView(sb.uid)
	if err != nil {
		return err
	}
	defer own.close()
	for i, at := range attached(own) {
		if at != sb.box.late[i] {
			return errStale
		}
	}
	steps, mounts, err := lateSteps(own, s.protected(x.sv.set))
	if err != nil {
		return err
	}
	var fds []int
	for _, f := range passed {
		fds = append(fds, int(f.Fd()))
	}
	if err := x.attach(sb, steps, fds, mounts); err != nil {
		return err
	}
	return sb.running()
}

// attach gives the order. The steps are the same for most commands, and stay where they are written down.
func (x *sandboxes) attach(sb *sandbox, steps []byte, passed, mounts []int) error {
	x.steps.Lock()
	defer x.steps.Unlock()
	if x.steps.file == nil || x.steps.last != string(steps) {
		fd, err := stage.SealedMemfd("steps", steps)
		if err != nil {
			return err
		}
		if x.steps.file != nil {
			x.steps.file.Close()
		}
		x.steps.last, x.steps.file = string(steps), os.NewFile(uintptr(fd), "steps")
	}
	return sb.box.start(int(sb.pidfd.Fd()), int(sb.gate.Fd()), int(x.steps.file.Fd()), passed, mounts)
}

// retry says whether another sandbox may do what this one did not: it was ended, its maker was, or it was made for what
// is there no more. What was read of the request was nothing.
func (x *sandboxes) retry(sb *sandbox, err error) bool {
	switch {
	case errors.Is(err, errStale):
		x.mu.Lock()
		if x.box == sb.box {
			x.box.seen = append(x.box.seen, seen{path: "/", ino: 0}) // never unchanged
		}
		x.mu.Unlock()
		return true
	case errors.Is(err, errBoxGone):
		return true
	}
	select {
	case <-sb.reaped: // by others than us: it was never told to run
		return errors.Is(err, unix.ESRCH)
	default:
		return false
	}
}

// errStale says that a folder of the session is another one than the sandboxes were made for.
var errStale = errors.New("a shared folder was replaced")

// running waits until the target executes what it was told to, or says why it cannot.
func (sb *sandbox) running() error {
	m, fd, err := receive(sb.gate)
	if fd >= 0 {
		unix.Close(fd)
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	case m.Type == stage.MsgError:
		return fmt.Errorf("stage: %s", m.Text)
	}
	return fmt.Errorf("stage: unexpected message %d", m.Type)
}

// end ends what is left of a sandbox and gives back what it had. What may still have a process in it nobody gets again.
func (x *sandboxes) end(sb *sandbox) error {
	sb.held.close()
	var err error
	switch {
	case sb.domain == nil:
	case sb.reaped == nil:
		err = errors.Join(sb.cgroup.kill(), sb.cgroup.delete())
	default:
		err = sb.domain.end()
	}
	for _, f := range []*os.File{sb.gate, sb.pidfd} {
		if f != nil {
			f.Close()
		}
	}
	if sb.netns != nil {
		if err == nil && sb.reaped != nil {
			x.nets.give(sb.netns)
		} else {
			sb.netns.Close()
		}
	}
	if err == nil {
		x.sv.freeSlot(sb.slot)
	}
	return err
}

// probe runs the self-probe in a sandbox of its own, until it has held once for this view.
func (x *sandboxes) probe(b *box) error {
	x.making.Lock()
	defer x.making.Unlock()
	if b.probed {
		return nil
	}
	if err := x.tryDoors(b, x.sv.s.commandChecks()); err != nil {
		return err
	}
	b.probed = true
	return nil
}

// probeTime bounds the self-probe.
const probeTime = 30 * time.Second

// tryDoors makes the attempts in a sandbox and returns an error when one of them was not refused.
func (x *sandboxes) tryDoors(b *box, checks []stage.Check) (err error) {
	program, err := openHelper("sharness-init")
	if err != nil {
		return err
	}
	defer program.Close()
	list, err := json.Marshal(checks)
	if err != nil {
		return fmt.Errorf("self-probe: %w", err)
	}
	request, err := wire.SealCommand(wire.Command{Path: "/run/sharness/probe", Argv: []string{"sharness-init", "probe", string(list)}, Env: stageEnv, Cwd: x.sv.s.Workspace.Name()})
	if err != nil {
		return fmt.Errorf("self-probe: %w", err)
	}
	defer request.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	defer w.Close()
	sb, err := x.prepare(b, nil, program)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.end(sb)) }()
	if err := x.run(sb, []*os.File{request, null, w, w, program}); err != nil {
		return err
	}
	w.Close()
	timer := time.AfterFunc(probeTime, sb.kill)
	defer timer.Stop()
	text, err := readAtMost(r, 4096)
	if err != nil {
		return fmt.Errorf("self-probe: %w", err)
	}
	if e := sb.next(); e != (exit{told: true}) || len(text) > 0 {
		return fmt.Errorf("stage: %s", strings.TrimSpace(string(text)))
	}
	return nil
}

// fill makes sandboxes until enough of them wait, on a goroutine of its own.
func (x *sandboxes) fill() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.fills || x.closed {
		return
	}
	x.fills = true
	x.filler.Go(func() {
		for x.fillOne() {
		}
	})
}

// fillOne makes one and says whether there may be more to do. One that cannot be made is the next command's to report.
func (x *sandboxes) fillOne() bool {
	x.mu.Lock()
	if x.closed || len(x.ready) >= waiting {
		x.fills = false
		x.mu.Unlock()
		return false
	}
	x.mu.Unlock()
	b, err := x.current()
	var sb *sandbox
	if err == nil {
		sb, err = x.prepare(b, nil, nil)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil {
		x.fills = false
		return false
	}
	x.ready = append(x.ready, sb)
	return true
}

// close ends those that wait, and sharness-box. Commands have ended.
func (x *sandboxes) close() {
	x.making.Lock() // nobody starts another
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
	x.making.Unlock()
	if x.box != nil {
		x.box.kill() // whoever waits for its answer gets none
	}
	x.filler.Wait()
	for _, sb := range x.ready {
		x.discard(sb)
	}
	x.ready = nil
	if x.box != nil {
		x.box.end()
	}
	if x.steps.file != nil {
		x.steps.file.Close()
	}
	x.nets.close()
}
