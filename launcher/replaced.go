package launcher

import (
	"errors"
	"fmt"
	"sync"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/launcher/protect"
)

// replacements remembers which protected entries somebody outside replaced, and in which order, so that a domain that
// was being started meanwhile does not miss one.
type replacements struct {
	mu   sync.Mutex
	n    uint64
	last map[int]uint64 // by index of protect.Set.Existing
}

// now is where since begins.
func (r *replacements) now() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

func (r *replacements) add(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	if r.last == nil {
		r.last = map[int]uint64{}
	}
	r.last[i] = r.n
}

// since are the entries that were replaced after n was now.
func (r *replacements) since(n uint64) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []int
	for i, at := range r.last {
		if at > n {
			out = append(out, i)
		}
	}
	return out
}

// onReplaced protects an entry again in the views of all that runs.
func (r *run) onReplaced(i int) {
	r.replaced.add(i)
	if d := r.orchestrator.Load(); d != nil {
		r.protectAgain(d, i)
	}
	if sv := r.serving.Load(); sv != nil {
		for _, d := range sv.domains() {
			r.protectAgain(d, i)
		}
	}
}

// protectAgain protects an entry again in the view of one domain.
func (r *run) protectAgain(d *domain, i int) {
	e := r.set.Existing[i]
	for _, m := range protect.Mounts(r.set, "") {
		if m.Rel != e.Rel {
			continue
		}
		err := rebind(d.pid, r.s.Workspace.Name(), m)
		if err == nil {
			continue
		}
		if errors.Is(err, errNoView) {
			return
		}
		select {
		case <-d.reaped: // nobody is left to protect it from
			return
		default:
		}
		r.o.Notice(fmt.Sprintf("%s was replaced from outside and could not be protected again: %v", event.Escape(e.Rel), err))
		d.kill() // a door that cannot be shut again ends the domain rather than standing open
		return
	}
}
