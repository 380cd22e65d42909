package launcher

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sharness/sharness/internal/confine"
	"github.com/sharness/sharness/launcher/filter"
	"github.com/sharness/sharness/launcher/stage"
	"golang.org/x/sys/unix"
)

// lacking is one layer, taken out of a finished plan behind the launcher's back, as a defect of ours would.
type lacking struct {
	name    string
	without func(p *stage.Plan, v *view)
	hostNet bool   // the network namespace of whoever started it
	want    string // door and attempt by which the self-probe refuses; empty: it does not notice
}

// everyPlan are the layers that both kinds of domain have.
func (x *layersSite) everyPlan() []lacking {
	return []lacking{
		{name: "nothing", without: func(*stage.Plan, *view) {}},
		{name: "inner Landlock", without: func(p *stage.Plan, _ *view) { p.Landlock = confine.Landlock{} }, want: "pid1 is open (signal"},
		{name: "all Landlock", without: func(p *stage.Plan, _ *view) { p.Landlock, p.Outer = confine.Landlock{}, confine.Landlock{} }, want: "pid1 is open (signal"},
		{name: "Landlock's scopes", without: func(p *stage.Plan, _ *view) { p.Landlock.Scoped = false }, want: "pid1 is open (signal"},
		{name: "Landlock's file rights", without: func(p *stage.Plan, _ *view) { p.Landlock.FS, p.Landlock.Paths = false, nil }, want: "file-fifo is open (fifo " + x.ws},
		{name: "all filters", without: func(p *stage.Plan, _ *view) { p.Seccomp, p.Carried = nil, 0 }, want: "ns is open (new-user"},
		{name: "second filter", without: withoutFilter(1), want: "file-suid is open (set-id"},
		{name: "memfd_noexec", without: func(p *stage.Plan, _ *view) { p.Sysctls = nil }, want: "exec-memfd is open (mfd-exec"},
		{name: "network namespace", hostNet: true, want: "net-udp is open (net-ns", without: func(p *stage.Plan, _ *view) {
			p.Sysctls = p.Sysctls[:1] // memfd_noexec alone: the others are the network namespace's
		}},
		{name: "read-only /usr", without: func(p *stage.Plan, v *view) { x.attributes(p, v, 0, unix.MOUNT_ATTR_RDONLY, "/usr") }, want: "file-meta is open (readonly /usr"},
		{name: "read-only sysctls", without: func(p *stage.Plan, _ *view) { p.ReadProc = nil }, want: "file-proc is open (readonly /proc/sys"},
		{name: "limits", without: func(p *stage.Plan, _ *view) { p.Rlimits = nil }, want: "core-helper is open (core"},
		// What pid 1 alone is below cannot be tried by its target: the inner layer refuses whatever it would.
		{name: "outer Landlock", without: func(p *stage.Plan, _ *view) { p.Outer = confine.Landlock{} }},
	}
}

func withoutFilter(n int) func(*stage.Plan, *view) {
	return func(p *stage.Plan, _ *view) {
		p.Seccomp = slices.Delete(slices.Clone(p.Seccomp), n, n+1)
		if n < p.Carried {
			p.Carried--
		}
	}
}

// unasked is a check that the launcher's own lists cannot have: what stands for the host's network here.
func (x *layersSite) unasked() []stage.Check {
	host, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", x.outside.Fd()))
	if err != nil {
		x.t.Fatal(err)
	}
	return []stage.Check{{Door: "net-udp", Try: stage.TryNetNS, Path: host}}
}

func TestSelfProbeRefusesAnOrchestratorThatLacksALayer(t *testing.T) {
	x := newLayersSite(t, "sharness-probe")
	noexec := func(targets ...string) func(*stage.Plan, *view) {
		return func(p *stage.Plan, v *view) { x.attributes(p, v, 0, unix.MOUNT_ATTR_NOEXEC, targets...) }
	}
	for _, l := range append(x.everyPlan(),
		lacking{name: "first filter", without: withoutFilter(0), want: "ns is open (new-user"},
		lacking{name: "Landlock's ports", without: func(p *stage.Plan, _ *view) { p.Landlock.Net, p.Landlock.TCP = false, nil }, want: "net-host is open (connect"},
		lacking{name: "noexec everywhere", without: noexec(), want: "exec-inject is open (noexec"},
		lacking{name: "noexec of /usr", without: noexec("/usr"), want: "exec-ldso is open (map-exec"},
		lacking{name: "noexec of the workspace", without: noexec(x.ws), want: "exec-inject is open (noexec " + x.ws},
		lacking{name: "noexec of /tmp", without: noexec("/tmp"), want: "exec-inject is open (noexec /tmp"},
		lacking{name: "noexec of /dev/shm", without: noexec("/dev/shm"), want: "exec-inject is open (noexec /dev/shm"},
	) {
		t.Run(l.name, func(t *testing.T) {
			p, v := x.orchestrator("--list")
			p.Probe = append(p.Probe, x.unasked()...)
			x.wantRefused(t, l, p, v, "exec-direct/")
		})
	}
}

func TestSelfProbeRefusesACommandThatLacksALayer(t *testing.T) {
	x := newLayersSite(t, "sharness-probe")
	for _, l := range append(x.everyPlan(),
		lacking{name: "first filter", without: withoutFilter(0), want: "kernel is open (io-uring"},
		lacking{name: "last filter", without: withoutFilter(filter.Inherited), want: "ns is open (new-user"},
	) {
		t.Run(l.name, func(t *testing.T) {
			p, v, own := x.command()
			l.without(p, v)
			var ns *os.File
			if l.hostNet {
				ns = x.outside
			}
			boxes, b := x.sandboxes(p, v, own, ns)
			err := boxes.tryDoors(b, append(x.s.commandChecks(), x.unasked()...))
			out := ""
			if err == nil {
				out, err = x.runCommand(boxes, b, "echo the command ran")
			}
			x.wantHeld(t, l, out, err, "the command ran")
		})
	}
}

func (x *layersSite) wantRefused(t *testing.T, l lacking, p *stage.Plan, v *view, says string) {
	t.Helper()
	l.without(p, v)
	var ns *os.File
	if l.hostNet {
		ns = x.outside
	}
	out, err := x.start(p, v, ns)
	x.wantHeld(t, l, out, err, says)
}

func (x *layersSite) wantHeld(t *testing.T, l lacking, out string, err error, says string) {
	t.Helper()
	switch {
	case l.want == "" && (err != nil || !strings.Contains(out, says)):
		t.Errorf("want it to run, got %v\n%.300s", err, out)
	case l.want != "" && (err == nil || out != "" || !strings.Contains(err.Error(), "stage: self-probe: door "+l.want) || !strings.HasSuffix(err.Error(), "refusing to start")):
		t.Errorf("want the start refused for %q, got %v\n%.300s", l.want, err, out)
	}
	if entries, err := os.ReadDir(x.ws); err != nil || len(entries) > 0 {
		t.Errorf("the self-probe left %v in the workspace, %v", entries, err)
	}
}
