package launcher

import (
	"fmt"
	"syscall"
	"time"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/launcher/protect"
	"github.com/sharness/sharness/launcher/stage"
	"github.com/sharness/sharness/launcher/tty"
	"golang.org/x/sys/unix"
)

// attend starts the orchestrator and stays between it and the caller's terminal until it has ended.
func (r *run) attend(plan *stage.Plan, v *view) (int, error) {
	fds := [3]int{}
	for i, f := range r.o.Stdio {
		fds[i] = -1
		if f != nil {
			fds[i] = int(f.Fd())
		}
	}
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
	dom, err := r.sp.startDomain(plan, v, std, nil, r.group, r.netns)
	if err != nil {
		return 0, err
	}
	streams.Started()
	r.orchestrator.Store(int64(dom.pid))
	started := time.Now()
	proxy := tty.Proxy{Streams: streams, Master: -1, Child: child{dom}}
	if dom.master != nil {
		// The proxy owns its descriptor, the domain keeps its own until it ends.
		proxy.Master = int(dup(dom.master).Fd())
	}
	stopped, exited, how := make(chan syscall.Signal), make(chan tty.Exit, 1), exit{}
	proxy.Stopped = stopped
	go func() {
		for {
			x := dom.next()
			if x.stopped == 0 {
				how = x
				dom.closeMaster()
				<-dom.reaped
				exited <- tty.Exit{Killed: x.signal != 0}
				return
			}
			stopped <- syscall.Signal(x.stopped)
		}
	}()
	perr := proxy.Run(exited)
	dom.kill()
	<-dom.reaped
	r.orchestrator.Store(0)
	status := how.status
	if how.signal != 0 {
		status = 128 + how.signal
	}
	r.events.Send(event.Event{Type: event.CommandEnd, Detail: "orchestrator", Command: &event.Command{ExitCode: &status, Signal: how.signal, DurationMS: time.Since(started).Milliseconds()}})
	pids, memory := r.group.hits()
	for name, hit := range map[string]bool{"pids": pids, "memory": memory} {
		if hit {
			r.o.Notice(fmt.Sprintf("the orchestrator met its %s limit; raise limits.%s in the manifest if it was right to want more", name, name))
			r.events.Send(event.Event{Type: event.LimitHit, Detail: "orchestrator: " + name})
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
type child struct{ d *domain }

func (c child) Signal(sig syscall.Signal) error { c.d.signal(int(sig)); return nil }

func (c child) Continue(where tty.Place) error { c.d.resume(where == tty.Foreground); return nil }

// closeMaster lets go of the supervisor's second descriptor of the pty.
func (d *domain) closeMaster() {
	if d.master != nil {
		d.master.Close()
		d.master = nil
	}
}

// onReplaced protects an entry again in the running view.
func (r *run) onReplaced(i int) {
	pid := int(r.orchestrator.Load())
	if pid == 0 {
		return
	}
	e := r.set.Existing[i]
	for _, m := range protect.Mounts(r.set, "") {
		if m.Rel != e.Rel {
			continue
		}
		if err := rebind(pid, r.s.Workspace.Name(), m); err != nil {
			r.o.Notice(fmt.Sprintf("%s was replaced from outside and could not be protected again: %v", event.Escape(e.Rel), err))
			// A door that cannot be shut again ends the session rather than standing open.
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
