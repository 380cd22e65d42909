package launcher

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/launcher/stage"
	"github.com/sharness/sharness/launcher/tty"
	"golang.org/x/sys/unix"
)

// attend starts the orchestrator and stays between it and the caller's terminal until it has ended.
func (r *run) attend(plan *stage.Plan, v *view) (int, error) {
	fds := r.stdio()
	layout, err := tty.Plan(fds)
	if err != nil {
		v.close()
		return 0, &Refused{err}
	}
	streams, err := tty.Open(layout, fds)
	if err != nil {
		v.close()
		return 0, err
	}
	defer streams.Close()
	var std stdio
	for i := range std.files {
		std.files[i] = streams.Child(i)
		std.terminal[i] = layout.Streams[i] == tty.Tty
	}
	plan.Terminal, plan.Front = layout.Pty(), streams.StartForeground()
	if layout.Pty() {
		std.dress = streams.Dress
	}
	if err := r.signals.check(); err != nil {
		v.close()
		return 0, err
	}
	mark := r.replaced.now()
	dom, err := r.sp.startDomain(plan, v, std, r.group, r.netns)
	if err != nil {
		return 0, err
	}
	streams.Started()
	r.orchestrator.Store(dom)
	if r.failure() != nil { // fail came before there was something to end
		dom.kill()
	}
	for _, i := range r.replaced.since(mark) {
		r.protectAgain(dom, i)
	}
	started := time.Now()
	proxy := tty.Proxy{Streams: streams, Master: -1, Child: child{dom, r}}
	if dom.master != nil {
		// A number and not a file, which would be closed by the collector: the proxy owns it.
		if proxy.Master, err = unix.FcntlInt(dom.master.Fd(), unix.F_DUPFD_CLOEXEC, 3); err != nil {
			return 0, errors.Join(fmt.Errorf("pty: duplicate: %w", err), dom.end())
		}
		dom.master.Close() // the pty hangs up with the proxy's descriptor
		dom.master = nil
	}
	stopped, exited, ended := make(chan syscall.Signal), make(chan tty.Exit, 1), make(chan exit, 1)
	proxy.Stopped = stopped
	left := make(chan struct{}) // the proxy reads stopped no more
	go func() {
		for {
			x := dom.next()
			if x.stopped == 0 {
				<-dom.reaped
				ended <- x
				exited <- tty.Exit{Killed: x.signal != 0}
				return
			}
			select {
			case stopped <- syscall.Signal(x.stopped):
			case <-left:
			}
		}
	}()
	r.signals.forward(func(sig int) { _ = child{dom, r}.Signal(syscall.Signal(sig)) })
	perr := proxy.Run(exited)
	close(left)
	dom.kill() // the proxy may have failed before the target's end
	how := <-ended
	r.orchestrator.Store(nil)
	status := how.status
	if how.signal != 0 {
		status = 128 + how.signal
	}
	r.events.Send(event.Event{Type: event.CommandEnd, Detail: "orchestrator", Command: &event.Command{ExitCode: &status, Signal: how.signal, DurationMS: time.Since(started).Milliseconds()}})
	if r.s.learn != nil {
		u := r.group.used()
		u.Time = time.Since(started)
		r.s.learn.Peaks.ended(u)
	}
	pids, memory := r.group.hits()
	memory = memory || r.exceeded.Load()
	for name, hit := range map[string]bool{"pids": pids, "memory": memory} {
		if hit {
			r.o.Notice(fmt.Sprintf("the orchestrator met its %s limit; raise limits.%s in the manifest if it was right to want more", name, name))
			r.events.Send(event.Event{Type: event.LimitHit, Detail: "orchestrator: " + name + " (limits." + name + ")",
				Data: map[string]any{"limit": name, "key": "limits." + name}})
		}
	}
	if err := dom.end(); err != nil {
		return status, err
	}
	r.group = nil
	if perr != nil {
		r.o.Notice(perr.Error())
	}
	return status, nil
}

// child is the domain as the terminal sees it.
type child struct {
	d *domain
	r *run
}

// termGrace is how long the orchestrator has for its end after SIGTERM. Whoever sent that sends SIGKILL next, to us (containers
// after ten seconds), and then nobody looks at what the session leaves: one that ignores signals must not choose that.
const termGrace = 5 * time.Second

func (c child) Signal(sig syscall.Signal) error {
	c.d.signal(int(sig))
	if sig == syscall.SIGTERM {
		c.r.terminated.Do(func() {
			time.AfterFunc(termGrace, func() {
				select {
				case <-c.d.reaped:
				default:
					c.r.o.Notice(fmt.Sprintf("the orchestrator did not end within %s of SIGTERM, and was ended", termGrace))
					c.d.kill()
				}
			})
		})
	}
	return nil
}

func (c child) Continue(where tty.Place) error { c.d.resume(where == tty.Foreground); return nil }

// stdio are the numbers of the caller's 0-2; -1 for one that is closed.
func (r *run) stdio() (fds [3]int) {
	for i, f := range r.o.Stdio {
		fds[i] = -1
		if f != nil {
			fds[i] = int(f.Fd())
		}
	}
	return fds
}
