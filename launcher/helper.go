package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/launcher/stage"
	"golang.org/x/sys/unix"
)

// helperSpec is how one helper process is started. It has ids of its own, no group, no capability, no environment, and
// dies with the supervisor.
type helperSpec struct {
	name    string // of the program
	uid     int
	gid     int
	groups  []int
	control *os.File // nil: /dev/null
	events  *os.File // nil: /dev/null
	config  any      // handed over as JSON in a sealed memfd
	extra   []*os.File
	half    bool // it uses half of the processors
	drains  bool // it ends by itself when the supervisor is gone, and writes down that it is
}

// orphaned is the signal for a helper whose supervisor was killed.
func (h helperSpec) orphaned() syscall.Signal {
	if h.drains {
		return syscall.SIGTERM
	}
	return syscall.SIGKILL
}

// halfProcessors is how many processors the supervisor and sharness-bashd each use at once: the other half is for what it serves. Go wakes a
// thread for every one that is idle as soon as two goroutines have something to do, which for messages costs more than it gains.
var halfProcessors = sync.OnceValue(func() int { return (runtime.GOMAXPROCS(0) + 1) / 2 })

// firstExtraFD is the number of the first of a helper's extra descriptors: after 0-2, control, events and config.
const firstExtraFD = 6

// helperProcess is a helper that runs.
type helperProcess struct {
	pid   int
	words *lastWords
	ended chan struct{} // closed when it was reaped
	how   syscall.WaitStatus

	mu     sync.Mutex
	reaped bool // the number may mean another process
}

// helperLimits bound what the helpers of one session take of the host, all together: they work on what hostile programs
// send. When memory ends, the kernel kills the largest, which is started again. What they need at most,
// TestHelpersFitTheirLimits measures: about a quarter. Threads count as processes, and bashd may need one for each
// descriptor of a client's that makes it wait.
var helperLimits = cgroupLimits{pids: 1024, memory: 1 << 30}

func (sp *spawner) startHelper(h helperSpec) (*helperProcess, error) {
	path, err := Helper(h.name)
	if err != nil {
		return nil, err
	}
	program, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	defer unix.Close(program)
	data, err := json.Marshal(h.config)
	if err != nil {
		return nil, fmt.Errorf("start %s: config: %w", h.name, err)
	}
	config, err := stage.SealedMemfd(h.name, data)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", h.name, err)
	}
	defer unix.Close(config)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", h.name, err)
	}
	defer null.Close()
	words, w, err := newLastWords()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", h.name, err)
	}
	defer w.Close()
	or := func(f *os.File) uintptr {
		if f == nil {
			return null.Fd()
		}
		return f.Fd()
	}
	// The programs know these numbers: 3 control, 4 events, 5 configuration, then what a helper needs besides.
	files := []uintptr{null.Fd(), null.Fd(), w.Fd(), or(h.control), or(h.events), uintptr(config)}
	for _, f := range h.extra {
		files = append(files, f.Fd())
	}
	groups := make([]uint32, len(h.groups))
	for i, g := range h.groups {
		groups[i] = uint32(g)
	}
	env := []string{}
	if h.half {
		env = append(env, fmt.Sprintf("GOMAXPROCS=%d", halfProcessors()))
	}
	p := &helperProcess{words: words, ended: make(chan struct{})}
	err = sp.inHelpers(func(cgroupFD int) error {
		attr := &syscall.ProcAttr{Dir: "/", Env: env, Files: files, Sys: &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: uint32(h.uid), Gid: uint32(h.gid), Groups: groups},
			Setsid:     true,
			Pdeathsig:  h.orphaned(),
		}}
		if cgroupFD >= 0 {
			attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, cgroupFD
		}
		var err error
		if p.pid, err = syscall.ForkExec(path, []string{h.name}, attr); err != unix.EACCES {
			return err
		}
		// The helper's ids may not reach the folder (a home has mode 0700): by descriptor, whose number is above all that
		// ForkExec uses while it moves files to their places.
		high, err := unix.FcntlInt(uintptr(program), unix.F_DUPFD_CLOEXEC, int(slices.Max(files))+2*len(files)+16)
		if err != nil {
			return err
		}
		defer unix.Close(high)
		p.pid, err = syscall.ForkExec(fmt.Sprintf("/proc/self/fd/%d", high), []string{h.name}, attr)
		return err
	})
	if err != nil {
		words.close()
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	go p.reap()
	return p, nil
}

// inHelpers runs fn, which starts a process, on the spawner's thread and in the group of the helpers.
func (sp *spawner) inHelpers(fn func(cgroupFD int) error) error {
	return sp.do(func() error {
		return drowsy(func() error {
			if sp.helpers == nil {
				return fn(-1)
			}
			return sp.helpers.with(fn)
		})
	})
}

// reap waits for the end. The process keeps its number until nobody signals it by that (waitid(2), WNOWAIT).
func (p *helperProcess) reap() {
	for {
		err := unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	p.mu.Lock()
	p.how, _ = wait4(p.pid)
	p.reaped = true
	p.mu.Unlock()
	close(p.ended)
}

// signal signals the helper, and nobody else when it has ended.
func (p *helperProcess) signal(sig unix.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = unix.Kill(p.pid, sig)
	}
}

// ends waits a while for the helper to end by itself, and says whether it has.
func (p *helperProcess) ends(d time.Duration) bool {
	select {
	case <-p.ended:
		return true
	case <-time.After(d):
		return false
	}
}

// kill ends the helper and waits for it.
func (p *helperProcess) kill() {
	p.signal(unix.SIGKILL)
	<-p.ended
	p.words.close()
}

// finish waits a while for the helper to end by itself, then ends it.
func (p *helperProcess) finish(d time.Duration) {
	p.ends(d)
	p.kill()
}

// keeper starts a helper again when it dies. While it is away its service is, which for most is the closed side; what
// follows when it cannot be kept, lost decides.
type keeper struct {
	name   string
	events *sink.Sender
	start  func() (*helperProcess, error)
	lost   func(error) // it died and is not started again

	mu      sync.Mutex
	current *helperProcess
	stopped bool
	done    chan struct{}
}

// A helper that dies this often in a minute is not started again.
const maxRestarts = 5

func keep(name string, events *sink.Sender, start func() (*helperProcess, error), lost func(error)) (*keeper, error) {
	p, err := start()
	if err != nil {
		return nil, err
	}
	k := &keeper{name: name, events: events, start: start, lost: lost, current: p, done: make(chan struct{})}
	go k.watch()
	return k, nil
}

func (k *keeper) watch() {
	defer close(k.done)
	var deaths []time.Time
	for {
		k.mu.Lock()
		p := k.current
		k.mu.Unlock()
		<-p.ended
		k.mu.Lock()
		if k.stopped {
			k.mu.Unlock()
			return
		}
		now := time.Now()
		deaths = append(deaths, now)
		if len(deaths) > maxRestarts {
			deaths = deaths[1:]
		}
		often := len(deaths) == maxRestarts && now.Sub(deaths[0]) < time.Minute
		detail := fmt.Sprintf("%s ended (%s)%s", k.name, describe(p.how), p.words.suffix())
		p.words.close()
		var err error
		if often {
			err = errors.New("ended too often, not started again")
		} else {
			var next *helperProcess
			if next, err = k.start(); err == nil {
				k.current = next
			}
		}
		k.mu.Unlock()
		if err != nil {
			err = fmt.Errorf("%s; %w", detail, err)
			k.events.Send(event.Event{Type: event.LayerOpen, Layer: k.name, Detail: err.Error()})
			k.lost(err)
			return
		}
		k.events.Send(event.Event{Type: event.LayerApplied, Layer: k.name, Detail: detail + "; started again"})
	}
}

// release starts nothing again from here on, and returns the process that runs, or was the last.
func (k *keeper) release() *helperProcess {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	return k.current
}

// stop ends the helper for good.
func (k *keeper) stop() {
	k.release().kill()
	<-k.done
}

// finish waits a while for the helper to end by itself, then ends it for good. It returns what the helper said if it
// did not end well.
func (k *keeper) finish(d time.Duration) error {
	p := k.release()
	var err error
	select {
	case <-p.ended:
		if p.how != 0 {
			err = fmt.Errorf("%s ended (%s)%s", k.name, describe(p.how), p.words.suffix())
		}
	case <-time.After(d):
		err = fmt.Errorf("%s did not end within %s", k.name, d)
	}
	p.kill()
	<-k.done
	return err
}

func describe(ws syscall.WaitStatus) string {
	if ws.Signaled() {
		return "killed by signal " + ws.Signal().String()
	}
	return fmt.Sprintf("status %d", ws.ExitStatus())
}
