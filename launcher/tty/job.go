package tty

import (
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopped answers a stop of the target.
func (p *Proxy) stopped(sig syscall.Signal) error {
	jobStops := p.late != nil // whatever the target has stopped for, the rest of a pipeline has stopped already
	p.late = nil
	if sig == unix.SIGTTIN || sig == unix.SIGTTOU {
		// The target asks for the terminal. If it is ours to give, the user's shell need not know.
		p.wanted = true
		if !jobStops && p.master != nil && p.Streams.Terminal.Foreground() {
			if err := p.attach(); err != nil {
				return err
			}
			return p.Child.Continue(Foreground)
		}
	}
	return p.suspend()
}

// suspend stops this process and its group, the way a Ctrl-Z would have, so that the user's shell takes over. It
// returns once the shell has continued it.
func (p *Proxy) suspend() error {
	p.detach()
	if p.master != nil {
		p.output.pause()
		defer p.output.resume()
		if err := p.release(); err != nil {
			return err
		}
	}
	asked := time.Now()
	p.stopSelf()
	if time.Since(asked) < idleStop {
		// No shell is that quick: the group is orphaned, nobody waits for it to stop, and the kernel has dropped the
		// signal (setpgid(2)). The target goes on, but may not ask again in a tight loop.
		time.Sleep(idleStop)
	}
	if err := p.resume(); err != nil {
		return err
	}
	where := Background
	if p.attached {
		where = Foreground
	}
	return p.Child.Continue(where)
}

// stopSelf stops the whole process group and returns when it is continued: a shell takes a pipeline for stopped only
// when all of it is. With SIGTSTP and never SIGSTOP: the latter would stop an orphaned group, for good.
func (p *Proxy) stopSelf() {
	if !p.mayStop {
		return
	}
	// The group's other members first, with the signal ignored here: were it to stop this process as well, tgkill would
	// come after the shell's SIGCONT and stop it once more. tgkill goes to this very thread, so that the process has been
	// stopped and continued when it returns; a signal to the process may be taken by any thread, any time later.
	handler := setAction(int(unix.SIGTSTP), sigaction{handler: sigIgn})
	defer setAction(int(unix.SIGTSTP), handler)
	unix.Kill(0, unix.SIGTSTP)
	setAction(int(unix.SIGTSTP), sigaction{})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGTSTP)
}
