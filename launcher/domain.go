package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/sharness/sharness/launcher/stage"
	"golang.org/x/sys/unix"
)

// domain is one running tree: pid 1 of its namespaces, and the socket it reports on.
type domain struct {
	pid    int
	cgroup *cgroup
	status *os.File
	stderr *lastWords // nil for a sandbox, which has none

	master *os.File // the pty, when the plan has one

	sending sync.Mutex
	reaped  chan struct{}
}

// stdio are the descriptors for 0-2 of a domain's target; nil means /dev/null, or the terminal where terminal says so.
type stdio struct {
	files    [3]*os.File
	terminal [3]bool
	dress    func(master int) error // gives a new pty the user's modes and size, before the target runs; may be nil
}

// sealPlan writes a plan down for the stage, once every descriptor that it names is there.
func sealPlan(p *stage.Plan, v *view) (fd int, err error) {
	for _, f := range v.fds {
		if f == nil {
			return -1, errors.New("out of descriptors")
		}
	}
	data, err := p.Encode()
	if err != nil {
		return -1, err
	}
	return stage.SealedMemfd("plan", data)
}

// startDomain starts the stage with a plan and waits until the target runs. The view's descriptors are closed.
func (sp *spawner) startDomain(p *stage.Plan, v *view, std stdio, cg *cgroup, netns *os.File) (*domain, error) {
	defer v.close()
	for i, f := range std.files {
		switch {
		case f != nil:
			p.Stdio[i] = v.pass(dup(f))
		case std.terminal[i]:
			p.Stdio[i] = stage.StdioTerminal
		default:
			p.Stdio[i] = stage.StdioNull
		}
	}
	planFD, err := sealPlan(p, v)
	if err != nil {
		return nil, fmt.Errorf("start domain: %w", err)
	}
	defer unix.Close(planFD)
	ours, theirs, err := socketpair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, fmt.Errorf("start domain: %w", err)
	}
	defer theirs.Close()
	d := &domain{cgroup: cg, status: ours, reaped: make(chan struct{})}
	if err := d.spawn(sp, planFD, theirs, v.fds, netns); err != nil {
		ours.Close()
		return nil, fmt.Errorf("start domain: %w", err)
	}
	theirs.Close()
	if err := d.await(stage.MsgRunning, std.dress); err != nil {
		d.end()
		return nil, err
	}
	return d, nil
}

// dup duplicates a descriptor, or returns nil.
func dup(f *os.File) *os.File {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), f.Name())
}

func (d *domain) spawn(sp *spawner, planFD int, status *os.File, fds []*os.File, netns *os.File) error {
	path, err := Helper("sharness-init")
	if err != nil {
		return err
	}
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
	defer func() {
		if d.pid == 0 {
			words.close()
		}
	}()
	d.stderr = words
	files := []uintptr{null.Fd(), null.Fd(), w.Fd(), uintptr(planFD), status.Fd()}
	for _, f := range fds {
		files = append(files, f.Fd())
	}
	return sp.do(func() error {
		return d.cgroup.with(func(cgroupFD int) error {
			return inNetNS(netns, func() error {
				attr := &syscall.ProcAttr{Env: stageEnv, Files: files, Dir: "/", Sys: &syscall.SysProcAttr{
					Cloneflags: domainFlags,
					Pdeathsig:  syscall.SIGKILL,
				}}
				if netns == nil {
					attr.Sys.Cloneflags |= unix.CLONE_NEWNET
				}
				if cgroupFD >= 0 {
					attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, cgroupFD
				}
				pid, err := syscall.ForkExec(path, []string{"sharness-init"}, attr)
				if err != nil {
					return fmt.Errorf("start %s: %w", path, err)
				}
				d.pid = pid
				go func() {
					_, _ = wait4(pid)
					close(d.reaped)
				}()
				return nil
			})
		})
	})
}

// stageEnv keeps the stage's runtime small: each thread more costs at every step that reaches all of them, and it ends
// before it has garbage worth collecting. The target's environment is the plan's.
var stageEnv = []string{"GOMAXPROCS=1", "GOGC=off"}

// receive reads one message of a status socket, by the poller where the descriptor is not a blocking one.
func receive(f *os.File) (m stage.Message, fd int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return m, -1, err
	}
	rerr := raw.Read(func(s uintptr) bool {
		m, fd, err = stage.Receive(int(s))
		return !errors.Is(err, unix.EAGAIN)
	})
	if rerr != nil {
		return m, -1, rerr
	}
	return m, fd, err
}

// await reads the stage's reports until the one that is waited for.
func (d *domain) await(what stage.MessageType, dress func(master int) error) error {
	for {
		m, fd, err := receive(d.status)
		switch {
		case errors.Is(err, io.EOF):
			d.kill()
			<-d.reaped
			return fmt.Errorf("stage ended without a word%s", d.stderr.suffix())
		case err != nil:
			return err
		case m.Type == stage.MsgTerminal && d.master == nil:
			d.master = os.NewFile(uintptr(fd), "pty")
			if dress != nil {
				if err := dress(fd); err != nil {
					return err
				}
			}
			d.tell(stage.Message{Type: stage.MsgDressed})
		case m.Type == stage.MsgError:
			return fmt.Errorf("stage: %s", m.Text)
		case m.Type == what:
			return nil
		default:
			return fmt.Errorf("stage: unexpected message %d", m.Type)
		}
	}
}

// exit is how a target ended, or that it stopped.
type exit struct {
	stopped int // the signal that stopped it; 0: it has ended
	status  int
	signal  int
	left    bool // others ran on, and end with it
	told    bool // pid 1 said so; that of a sandbox does when nobody else is left in its namespace
}

// next waits for the target to stop or to end.
func (d *domain) next() exit {
	m, fd, err := receive(d.status)
	if fd >= 0 {
		unix.Close(fd)
	}
	switch {
	case err == nil && m.Type == stage.MsgLeft:
		x := d.next()
		x.left = true
		return x
	case err == nil && m.Type == stage.MsgStopped:
		return exit{stopped: int(m.A)}
	case err == nil && m.Type == stage.MsgExited && m.A == 0:
		return exit{status: int(m.B & 0xff), told: true}
	case err == nil && m.Type == stage.MsgExited:
		return exit{signal: int(m.B & 0x7f), told: true}
	}
	// Pid 1 was killed, or said what it cannot say: the namespace is dead, or is ended now.
	d.kill()
	return exit{signal: int(unix.SIGKILL)}
}

// signal signals the target's process group.
func (d *domain) signal(sig int) { d.tell(stage.Message{Type: stage.MsgSignal, A: uint32(sig)}) }

// resume continues a stopped target, as the foreground group of its terminal or not.
func (d *domain) resume(foreground bool) {
	m := stage.Message{Type: stage.MsgContinue}
	if foreground {
		m.A = 1
	}
	d.tell(m)
}

func (d *domain) tell(m stage.Message) {
	d.sending.Lock()
	defer d.sending.Unlock()
	raw, err := d.status.SyscallConn()
	if err != nil {
		return
	}
	// A domain that has ended needs no signal any more.
	_ = raw.Write(func(s uintptr) bool { return !errors.Is(stage.Send(int(s), m, -1), unix.EAGAIN) })
}

// kill ends pid 1 and with it everything in its namespace. The process is a child of ours that is reaped in one place
// alone, so the number cannot mean another one before reaped is closed.
func (d *domain) kill() {
	select {
	case <-d.reaped:
	default:
		_ = unix.Kill(d.pid, unix.SIGKILL)
	}
}

// end kills what is left, waits for it and removes the cgroup.
func (d *domain) end() error {
	d.kill()
	<-d.reaped
	d.status.Close()
	if d.stderr != nil {
		d.stderr.close()
	}
	if d.master != nil {
		d.master.Close()
	}
	if err := d.cgroup.kill(); err != nil {
		return err
	}
	return d.cgroup.delete()
}

// lastWords keeps the end of what a process of ours writes to its standard error: a runtime's own report when it dies.
type lastWords struct {
	r    *os.File
	mu   sync.Mutex
	tail []byte
	done chan struct{}
}

const maxLastWords = 2048

func newLastWords() (*lastWords, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	l := &lastWords{r: r, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		buf := make([]byte, 1024)
		for {
			n, err := r.Read(buf)
			l.mu.Lock()
			l.tail = append(l.tail, buf[:n]...)
			if len(l.tail) > maxLastWords {
				l.tail = l.tail[:maxLastWords] // the first lines of a panic say what it was
			}
			l.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return l, w, nil
}

// suffix is ": " and the words on one line, or nothing.
func (l *lastWords) suffix() string {
	if l == nil {
		return ""
	}
	<-l.done
	l.mu.Lock()
	defer l.mu.Unlock()
	words := strings.Join(strings.Fields(string(l.tail)), " ")
	if words == "" {
		return ""
	}
	return fmt.Sprintf(": %q", words)
}

func (l *lastWords) close() { l.r.Close() }
