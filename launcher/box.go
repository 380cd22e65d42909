package launcher

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/sharness/sharness/launcher/stage"
	"golang.org/x/sys/unix"
)

// box is sharness-box: the process that forks off the sandboxes of commands from one view that all have in common. It
// runs as root and, like the supervisor, reads nothing that comes from inside.
type box struct {
	pid    int
	reaped chan struct{}
	words  *lastWords
	seen   []seen // what its view was made from
	late   []seen // what rules are bound to that are attached late
	probed bool   // the self-probe has held in one of its sandboxes; under sandboxes.making

	mu      sync.Mutex // one order at a time
	control *os.File
}

// Orders to sharness-box (its plan.h).
const (
	orderMake  = 1
	orderStart = 2

	flagTerminal = 1
	flagProbe    = 2
	flagGroup    = 4
)

// startBox starts the process with the plan of all commands. The view's descriptors are closed.
func (sp *spawner) startBox(p *stage.Plan, v *view) (*box, error) {
	defer v.close()
	path, err := Helper("sharness-init")
	if err != nil {
		return nil, err
	}
	program, err := openHelper("sharness-box")
	if err != nil {
		return nil, err
	}
	p.Box = v.pass(program)
	planFD, err := sealPlan(p, v)
	if err != nil {
		return nil, fmt.Errorf("start sharness-box: %w", err)
	}
	defer unix.Close(planFD)
	ours, theirs, err := socketpair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, fmt.Errorf("start sharness-box: %w", err)
	}
	defer theirs.Close()
	b := &box{reaped: make(chan struct{})}
	if b.control, err = pollable(ours); err != nil {
		return nil, fmt.Errorf("start sharness-box: %w", err)
	}
	if err := b.spawn(sp, path, planFD, theirs, v.fds); err != nil {
		b.control.Close()
		return nil, fmt.Errorf("start sharness-box: %w", err)
	}
	return b, nil
}

// openHelper opens one of our programs, for whoever executes it by its descriptor.
func openHelper(name string) (*os.File, error) {
	path, err := Helper(name)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

func (b *box) spawn(sp *spawner, path string, planFD int, control *os.File, fds []*os.File) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	words, w, err := newLastWords()
	if err != nil {
		return err
	}
	defer w.Close()
	files := []uintptr{null.Fd(), null.Fd(), w.Fd(), uintptr(planFD), control.Fd()}
	for _, f := range fds {
		files = append(files, f.Fd())
	}
	err = sp.do(func() error {
		attr := &syscall.ProcAttr{Env: stageEnv, Files: files, Dir: "/", Sys: &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWNS, Setsid: true, Pdeathsig: syscall.SIGKILL,
		}}
		pid, err := syscall.ForkExec(path, []string{"sharness-init", "box"}, attr)
		if err != nil {
			return fmt.Errorf("start %s: %w", path, err)
		}
		b.pid = pid
		return nil
	})
	if err != nil {
		words.close()
		return err
	}
	b.words = words
	go func() {
		_, _ = wait4(b.pid)
		close(b.reaped)
	}()
	return nil
}

// errBoxGone says that sharness-box has ended, or cannot be understood any more.
var errBoxGone = errors.New("sharness-box has ended")

// order gives one order and returns the answer.
func (b *box) order(op, id, flags, tasks int, fds []int) (stage.Message, int, error) {
	var m []byte
	for _, v := range []int{op, id, flags, tasks} {
		m = binary.NativeEndian.AppendUint32(m, uint32(v))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.send(m, fds); err != nil {
		// One that could not begin has said why before it ended.
		if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
			if last, _, rerr := receive(b.control); rerr == nil && last.Type == stage.MsgError {
				err = fmt.Errorf("stage: %s", last.Text)
			}
		}
		b.kill()
		return stage.Message{}, -1, fmt.Errorf("%w: %w", errBoxGone, err)
	}
	answer, fd, err := receive(b.control)
	if err != nil { // among others io.EOF
		b.kill()
		return answer, -1, fmt.Errorf("%w: %w", errBoxGone, err)
	}
	if answer.Type == stage.MsgError {
		return answer, -1, fmt.Errorf("stage: %s", answer.Text)
	}
	return answer, fd, nil
}

func (b *box) send(m []byte, fds []int) error {
	raw, err := b.control.SyscallConn()
	if err != nil {
		return err
	}
	werr := raw.Write(func(s uintptr) bool {
		err = unix.Sendmsg(int(s), m, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
		return !errors.Is(err, unix.EAGAIN)
	})
	return errors.Join(werr, err)
}

// make forks off a sandbox. fds are status, go, network and user namespace, then the tasks files of its groups, then the
// folder of its group in the unified hierarchy, then the program of the self-probe, as far as flags say so.
func (b *box) make(uid, flags, tasks int, fds []int) (pid int, pidfd *os.File, err error) {
	m, fd, err := b.order(orderMake, uid, flags, tasks, fds)
	if err != nil {
		return 0, nil, err
	}
	if m.Type != stage.MsgMade {
		return 0, nil, fmt.Errorf("%w: it answered %d", errBoxGone, m.Type)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return 0, nil, fmt.Errorf("pidfd: %w", err)
	}
	return int(m.A), os.NewFile(uintptr(fd), "pidfd"), nil
}

// start attaches what is attached last to a sandbox and lets its target go on with passed descriptors.
func (b *box) start(pidfd, gate, steps int, passed, mounts []int) error {
	fds := append(append([]int{pidfd, gate, steps}, passed...), mounts...)
	m, fd, err := b.order(orderStart, len(passed), 0, 0, fds)
	if fd >= 0 {
		unix.Close(fd)
	}
	if err == nil && m.Type != stage.MsgBegun {
		err = fmt.Errorf("%w: it answered %d", errBoxGone, m.Type)
	}
	return err
}

func (b *box) gone() bool {
	select {
	case <-b.reaped:
		return true
	default:
		return false
	}
}

// kill ends the process. Its sandboxes are the supervisor's children and live on.
func (b *box) kill() {
	if !b.gone() {
		_ = unix.Kill(b.pid, unix.SIGKILL)
	}
	<-b.reaped
}

// end ends the process for good.
func (b *box) end() {
	b.kill()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.control.Close()
	b.words.close()
}
