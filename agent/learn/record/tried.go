package record

import (
	"cmp"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/agent"
	"github.com/sharness/sharness/agent/learn"
)

// attempt is what makes two tries one.
type attempt struct{ want, target string }

// private are folders of the view's own, in which the host has nothing to show.
var private = []string{"/proc", "/sys", "/dev", "/run/sharness"}

// attempted keeps what the agent itself, not a program that will be routed, did not get, and which signals it sent.
func (r *Recorder) attempted(e *agent.Event, p *proc) {
	// By its name alone: the walk of the kernel side ends at the root of the file system that holds the stage's image, once the
	// stage has let go of the mounts above. Who else takes the name hides remarks on what it did not get.
	if p.beneath != "" || r.config.Stage != "" && path.Base(e.Exe.Text) == path.Base(r.config.Stage) {
		return
	}
	if n := e.Sent(); e.Kind == agent.Tried && n > 0 {
		r.sent[cmp.Or(unix.SignalName(unix.Signal(n)), strconv.Itoa(n&0x7f))]++
		return
	}
	want, target, ok := e.Wanted()
	if !ok || len(target) > maxName || !visible(target) {
		return
	}
	if want != agent.WantConnect && writable(target, private)+writable(target, r.config.Writable) != "" {
		return
	}
	if (want == agent.WantRead || want == agent.WantExec) && writable(target, r.config.Shown) != "" {
		return
	}
	k := attempt{string(want), target}
	a := r.tried[k]
	if a == nil {
		if len(r.tried) >= maxAttempts {
			r.seen.Unkept++
			return
		}
		a = &learn.Attempt{Want: k.want, Target: target}
		r.tried[k] = a
	}
	a.By = add(a.By, e.Exe.Text)
}
