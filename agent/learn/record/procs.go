package record

import (
	"github.com/sharness/sharness/agent"
	"github.com/sharness/sharness/agent/learn"
)

// proc is one process, or one that has ended.
type proc struct {
	exe     string       // what it runs
	beneath string       // the shell or interpreter above it that will be routed
	script  *learn.Image // a script whose interpreter env is looking for
}

// routedBy says that what this process does from now on belongs into a sandbox.
func (p *proc) routedBy(name string) {
	if p.beneath == "" {
		p.beneath = name
	}
}

// id is what makes a process one: the number alone is used again.
type id struct {
	pid   int
	start uint64
}

// procs is the tree, as far as it has to be known who is beneath whom.
type procs struct {
	all     map[id]*proc
	gone    []id // oldest first: a refusal may be read after the end of its process
	rooted  bool
	orphans uint64
	full    uint64
}

func newProcs() *procs { return &procs{all: map[id]*proc{}} }

// find returns a process. One that was not begun before our eyes is the first, or shows that something was lost.
func (t *procs) find(p *agent.Proc) *proc {
	if x := t.all[id{p.PID, p.StartNS}]; x != nil {
		return x
	}
	return t.begun(p)
}

func (t *procs) begun(p *agent.Proc) *proc {
	parent := t.all[id{p.Parent, p.ParentStart}]
	x := &proc{}
	switch {
	case parent != nil:
		x.exe, x.beneath, x.script = parent.exe, parent.beneath, nil
	case t.rooted:
		t.orphans++
	}
	t.rooted = true
	if len(t.all) >= maxProcs {
		t.full++
		return x
	}
	t.all[id{p.PID, p.StartNS}] = x
	return x
}

func (t *procs) ended(p *agent.Proc) {
	k := id{p.PID, p.StartNS}
	if t.all[k] == nil {
		return
	}
	t.gone = append(t.gone, k)
	if len(t.gone) > maxGone {
		delete(t.all, t.gone[0])
		t.gone = t.gone[1:]
	}
}
