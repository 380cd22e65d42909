package launcher

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sharness/sharness/bashserver/wire"
)

// Used is the most that one command, or the orchestrator, took of what can be limited. What the kernel does not tell is 0.
type Used struct {
	Pids   int    // processes and threads at once, pid 1 of the domain and its threads among them
	Memory uint64 // bytes, swap included
	CPU    time.Duration
	Time   time.Duration // from start to end; of a command that may run for ever, 0
}

// Peaks are what a session took. The zero value is ready.
type Peaks struct {
	mu           sync.Mutex
	commands     int
	command      Used // the most of any, each for itself
	orchestrator Used
}

// Get returns the peaks of the commands, of which there were so many, and of the orchestrator.
func (p *Peaks) Get() (commands int, command, orchestrator Used) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.commands, p.command, p.orchestrator
}

func (p *Peaks) ran(u Used) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commands++
	c := &p.command
	c.Pids, c.Memory, c.CPU, c.Time = max(c.Pids, u.Pids), max(c.Memory, u.Memory), max(c.CPU, u.CPU), max(c.Time, u.Time)
}

func (p *Peaks) ended(u Used) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.orchestrator = u
}

// used is what the members of a group took so far.
func (c *cgroup) used() Used {
	u := Used{Pids: int(min(number(c.dirs[0], "pids.peak"), 1<<30))}
	if c.v2 != nil {
		u.Memory = number(c.dirs[0], "memory.peak")
	} else if u.Memory = number(c.dirs[1], "memory.memsw.max_usage_in_bytes"); u.Memory == 0 {
		u.Memory = number(c.dirs[1], "memory.max_usage_in_bytes")
	}
	if c.unified != "" {
		u.CPU = time.Duration(counter(filepath.Join(c.unified, "cpu.stat"), "usage_usec")) * time.Microsecond
	}
	return u
}

// number reads a file that holds one; a file that is not there holds 0.
func number(dir, name string) uint64 {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	return n
}

// measure keeps what a command used, for a session that learns. The time of what may run for ever, or as a job, says nothing.
func (sv *server) measure(dom *domain, began time.Time, flags uint64) {
	if sv.s.learn == nil {
		return
	}
	u := dom.cgroup.used()
	if flags&(wire.FlagNoTimeout|wire.FlagJob) == 0 {
		u.Time = time.Since(began)
	}
	sv.s.learn.Peaks.ran(u)
}
