package agent

import (
	"path"
	"slices"
	"time"
)

// tree is the processes of the domain, from what the kernel side said of them. A process is a pid and a start time.
type tree struct {
	stage   []string // base names of the programs that every domain begins as; the first tries the doors
	nodes   map[procKey]*node
	gone    []procKey // ended, oldest first: a denial may still be read after its process's end
	orphans uint64    // processes whose parent was not seen although one was: something was lost
	full    uint64    // processes that found no room
	rooted  bool
}

type procKey struct {
	pid   int
	start uint64
}

type node struct {
	parent procKey
	name   string
	left   time.Time // when it or who made it executed something else than the stage; zero: not yet
}

// maxProcs bounds the tree, above what a session's pids limit lets live at once; maxGone how many ended ones it keeps.
const (
	maxProcs     = 1 << 16
	maxGone      = 4096
	maxAncestors = 32
)

func newTree(stage []string) *tree {
	t := &tree{nodes: map[procKey]*node{}}
	for _, p := range stage {
		t.stage = append(t.stage, path.Base(p))
	}
	return t
}

func keyOf(p *Proc) procKey { return procKey{p.PID, p.StartNS} }

// see makes sure that a process is known.
func (t *tree) see(p *Proc) *node {
	key := keyOf(p)
	if n := t.nodes[key]; n != nil {
		return n
	}
	n := &node{parent: procKey{p.Parent, p.ParentStart}, name: p.Comm}
	if parent := t.nodes[n.parent]; parent != nil {
		n.left = parent.left
	} else {
		if t.rooted {
			t.orphans++
		}
		t.rooted = true
	}
	if len(t.nodes) >= maxProcs {
		t.full++
		return n
	}
	t.nodes[key] = n
	return n
}

func (t *tree) ran(e *Event) {
	n := t.see(&e.Proc)
	n.name = path.Base(e.Exe.Text)
	// The stage's other program is executed while it still has root's uid, which nobody in the domain has after it.
	if i := slices.Index(t.stage, n.name); n.left.IsZero() && i != 0 && (i < 0 || e.Proc.UID != 0) {
		n.left = e.Time
	}
}

// probing says whether it was the stage that was refused, which tests its walls before it executes anything. The whole
// path does not tell: the walk of the kernel side ends at the file system's root where the stage has let go of the mounts
// that led to its image. Denials and executions come through different rings, so that the later may be read first.
func (t *tree) probing(e *Event) bool {
	left := t.see(&e.Proc).left
	return (left.IsZero() || e.Time.Before(left)) && path.Base(e.Exe.Text) == t.stage[0]
}

func (t *tree) ended(p *Proc) {
	key := keyOf(p)
	if t.nodes[key] == nil {
		return
	}
	t.gone = append(t.gone, key)
	if len(t.gone) > maxGone {
		delete(t.nodes, t.gone[0])
		t.gone = t.gone[1:]
	}
}

// ancestors names who made p, nearest first.
func (t *tree) ancestors(p *Proc) []string {
	var out []string
	key := t.see(p).parent
	for n := t.nodes[key]; n != nil && len(out) < maxAncestors; n = t.nodes[key] {
		out = append(out, n.name)
		key = n.parent
	}
	return out
}
