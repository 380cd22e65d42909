package launcher

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/launcher/host"
)

// What no kernel limit is about is looked at on a clock, beside whatever commands do: the memory of netlink sockets, and far
// less often the host's core_pattern.
const (
	pulseTime    = 150 * time.Millisecond
	patternEvery = 40 // pulses
	maxBlind     = 20 // pulses in a row at which something could not be asked: then the session ends
)

// pulse is that clock.
type pulse struct {
	r       *run
	reader  netlinkReader
	pattern *string
	blind   int // pulses so far at which something could not be asked
	stop    chan struct{}
	work    sync.WaitGroup
}

func (r *run) startPulse() *pulse {
	p := &pulse{r: r, pattern: r.s.Features.CorePattern, stop: make(chan struct{})}
	p.work.Go(p.beat)
	return p
}

func (p *pulse) beat() {
	tick := time.NewTicker(pulseTime)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
		p.look(errors.Join(p.commands(), p.orchestrator()))
		if n%patternEvery == 0 {
			p.corePattern()
		}
	}
}

// look ends a session in which nothing can be asked any more: memory would have no bound.
func (p *pulse) look(err error) {
	if err == nil {
		p.blind = 0
	} else if p.blind++; p.blind == maxBlind {
		p.r.fail(fmt.Errorf("the memory of netlink sockets, which no group is charged for, cannot be looked at: %w", err))
	}
}

// end waits for the clock to stop.
func (p *pulse) end() {
	close(p.stop)
	p.work.Wait()
}

// held is what waits in the netlink sockets of a command, or of all where they have one network.
type held struct {
	c       *runningCommand
	dom     *domain
	waiting uint64
	many    bool
}

// commands ends those that have, together with their netlink sockets, more memory than a command may have; where they share a
// network nobody knows whose sockets they are, and all of them end. So does the one with the most, when all commands together have
// more than the session may have.
func (p *pulse) commands() (err error) {
	sv := p.r.server
	var all []held
	var total uint64
	most, over := 0, false
	for i, h := range sv.alive() {
		if shared := sv.netns != nil; shared && i > 0 {
			h.waiting, h.many = all[0].waiting, all[0].many
		} else {
			var rerr error
			h.waiting, h.many, rerr = p.reader.waiting(h.dom.pid)
			err = errors.Join(err, rerr)
			total += h.waiting
		}
		if all = append(all, h); h.waiting > all[most].waiting {
			most = i
		}
	}
	for _, h := range all {
		if h.over() {
			over = true
			h.c.exceed(wire.LimitMemory)
		}
	}
	if over && sv.netns != nil {
		for _, h := range all {
			h.c.exceed(wire.LimitMemory)
		}
	}
	if bound := sv.budget.group.bound; !over && bound > 0 && total > netlinkFew && total+sv.budget.group.inUse() > bound {
		all[most].c.exceed(wire.LimitSessionMemory)
	}
	return err
}

func (h held) over() bool { return beyond(h.waiting, h.many, h.dom.cgroup) }

// beyond says whether a group has more than its memory with what waits in netlink sockets.
func beyond(waiting uint64, many bool, cg *cgroup) bool {
	return cg.bound > 0 && (many || waiting > netlinkFew && waiting+cg.inUse() > cg.bound)
}

// orchestrator ends the orchestrator by the same measure.
func (p *pulse) orchestrator() error {
	dom := p.r.orchestrator.Load()
	if dom == nil {
		return nil
	}
	waiting, many, err := p.reader.waiting(dom.pid)
	if beyond(waiting, many, dom.cgroup) {
		p.r.exceeded.Store(true)
		dom.kill()
	}
	return err
}

// corePattern tells that the host's core_pattern is another: it was looked at when the session started.
func (p *pulse) corePattern() {
	now := host.CorePattern()
	if now == p.pattern || now != nil && p.pattern != nil && *now == *p.pattern {
		return
	}
	p.pattern = now
	text := "it cannot be read"
	if now != nil {
		text = fmt.Sprintf("it is %q", *now)
	}
	text = "kernel.core_pattern was changed while the session runs: " + text + "; a new session says whether it is safe"
	p.r.events.Send(event.Event{Type: event.LayerOpen, Door: "core-helper", Layer: "rlimit", Detail: text})
	p.r.o.Notice(text)
}

// alive are the commands that run.
func (sv *server) alive() (all []held) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	for _, c := range sv.running {
		c.mu.Lock()
		if c.dom != nil && !c.dead && !c.ended {
			all = append(all, held{c: c, dom: c.dom})
		}
		c.mu.Unlock()
	}
	return all
}

// exceed ends a command that met a limit which the kernel does not know.
func (c *runningCommand) exceed(limit uint64) {
	c.mu.Lock()
	c.exceeded |= limit
	c.mu.Unlock()
	c.kill(wire.ReasonNone)
}

// beyond is the limits that exceed was about.
func (c *runningCommand) beyond() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exceeded
}
