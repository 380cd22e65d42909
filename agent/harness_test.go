package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/kerneltest"
)

// children are what tests run in a process of their own.
var children = map[string]kerneltest.Func{
	"attempts": attemptsChild, "thread": threadChild, "race": raceChild, "flood": floodChild, "distinct": distinctChild,
	"killed": killedChild, "meanings": meaningsChild, "setid": setidChild, "unread": unreadChild, "tree": treeChild, "denied": deniedChild,
	"crowd": crowdChild,
}

func TestMain(m *testing.M) { kerneltest.MainWithoutCgo(m, children) }

// group is a cgroup of this test in the cgroup2 hierarchy.
type group struct{ dir string }

func newGroup(t testing.TB, parent string) group {
	t.Helper()
	kerneltest.RequireRoot(t)
	if parent == "" {
		parent = "/sys/fs/cgroup/unified"
		if _, err := os.Stat(parent); err != nil {
			parent = "/sys/fs/cgroup"
		}
	}
	dir, err := os.MkdirTemp(parent, "tracetest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Its members have been waited for; the kernel takes a moment to forget them.
		var err error
		for range 1000 {
			if err = os.Remove(dir); err == nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Errorf("remove cgroup: %v", err)
	})
	return group{dir}
}

// into starts a child in the group.
func (g group) into(t testing.TB, more ...func(*exec.Cmd)) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		f, err := os.Open(g.dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
		for _, m := range more {
			m(cmd)
		}
	}
}

// seen is an event and when it was handed over.
type seen struct {
	event.Event
	at time.Time
}

// recorder is a Handler that keeps what it gets besides reporting it.
type recorder struct {
	*Reporter
	mu     sync.Mutex
	events []seen
	lives  []Life
	raw    []Event
	news   chan struct{} // something was reported
}

func newRecorder(p Policy) *recorder {
	r := &recorder{news: make(chan struct{}, 1)}
	r.Reporter = NewReporter(p, event.FoldOptions{}, func(e event.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, seen{e, time.Now()})
		select {
		case r.news <- struct{}{}:
		default:
		}
	})
	return r
}

func (r *recorder) Life(l *Life) { r.lives = append(r.lives, *l); r.Reporter.Life(l) }
func (r *recorder) Event(e *Event) {
	if e.Kind != Denial { // a flood of those would fill the memory with nothing of interest
		r.raw = append(r.raw, *e)
	}
	r.Reporter.Event(e)
}

// denials are the events of denials so far.
func (r *recorder) denials() []seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []seen
	for _, e := range r.events {
		if e.Type.Denial() {
			out = append(out, e)
		}
	}
	return out
}

// traced runs body with a Tracer attached to the group and returns what was reported.
func traced(t testing.TB, g group, o Options, p Policy, body func()) *recorder {
	t.Helper()
	o.Cgroups = []string{g.dir}
	tracer, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	return run(t, tracer, p, body)
}

// run has a Tracer report while body runs, and closes it.
func run(t testing.TB, tracer *Tracer, p Policy, body func()) *recorder {
	t.Helper()
	defer tracer.Close()
	r := newRecorder(p)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error)
	go func() { done <- tracer.Run(ctx, r) }()
	body()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.Finish(time.Now())
	r.balance(t)
	return r
}

// balance: nothing that the kernel side produced is unaccounted for.
func (r *recorder) balance(t testing.TB) {
	t.Helper()
	d, n := r.last.Denied(), r.folder.Counts()
	if d.Produced != r.read+d.Lost+d.Shed {
		t.Errorf("kernel side: produced %d, read %d, lost %d, shed %d", d.Produced, r.read, d.Lost, d.Shed)
	}
	if n.Produced != r.read || n.Produced != n.Emitted+n.Folded+n.Dropped {
		t.Errorf("reporter: read %d, %+v", r.read, n)
	}
	if r.bad != 0 {
		t.Errorf("%d records could not be decoded", r.bad)
	}
}

// whole fails when anything was lost.
func (r *recorder) whole(t testing.TB) {
	t.Helper()
	if d := r.last.Denied(); d.Lost+d.Shed+r.last.Runs.Lost != 0 {
		t.Errorf("lost: %+v", r.last)
	}
	if r.tree.orphans != 0 {
		t.Errorf("%d processes without a parent", r.tree.orphans)
	}
}

func decodeInput[T any](raw json.RawMessage) (T, error) {
	var v T
	err := json.Unmarshal(raw, &v)
	return v, err
}

// tool is the resolved path of a program of the machine.
func tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// latency is the p-th percentile of the time between a denial and its event.
func latency(events []seen, p float64) time.Duration {
	var all []time.Duration
	for _, e := range events {
		all = append(all, e.at.Sub(e.Time))
	}
	slices.Sort(all)
	return all[int(p*float64(len(all)-1))]
}

func cstring(s string) *byte {
	p, err := unix.BytePtrFromString(s)
	if err != nil {
		panic(fmt.Sprintf("%q holds a NUL", s))
	}
	return p
}

var foldOptions = event.FoldOptions{}

func discard(event.Event) {}
