package agent

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/bpf"
	"github.com/sharness/sharness/internal/kerneltest"
)

// What a session's start waits for.
func BenchmarkLoad(b *testing.B) {
	g := newGroup(b, "")
	for b.Loop() {
		tracer, err := Load(Options{Cgroups: []string{g.dir}})
		if err != nil {
			b.Fatal(err)
		}
		if err := tracer.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDetach(b *testing.B) {
	g := newGroup(b, "")
	for b.Loop() {
		b.StopTimer()
		tracer, err := Load(Options{Cgroups: []string{g.dir}})
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := tracer.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// What every system call of the machine pays while a session lives.
func BenchmarkGetppidOutside(b *testing.B) {
	b.Run("untraced", func(b *testing.B) { getppid(b) })
	b.Run("traced", func(b *testing.B) { attached(b, Options{}); getppid(b) })
	b.Run("traced with mappings", func(b *testing.B) { attached(b, Options{Maps: true}); getppid(b) })
	b.Run("traced by two programs", func(b *testing.B) { attachedAs(b, Options{}, true); getppid(b) })
}

func getppid(b *testing.B) {
	for b.Loop() {
		unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
	}
}

func attached(b *testing.B, o Options) group {
	preempts, err := preemptible()
	if err != nil {
		b.Fatal(err)
	}
	return attachedAs(b, o, preempts)
}

func attachedAs(b *testing.B, o Options, preempts bool) group {
	g := newGroup(b, "")
	o.Cgroups = []string{g.dir}
	tracer, err := load(o, preempts)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error)
	go func() { done <- tracer.Run(ctx, NewReporter(policy, foldOptions, discard)) }()
	b.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, tracer.Close()); err != nil {
			b.Error(err)
		}
	})
	return g
}

// The same program in a traced cgroup and in one beside it.
func BenchmarkExecTrue(b *testing.B) {
	for _, name := range []string{"untraced", "traced", "traced with mappings"} {
		b.Run(name, func(b *testing.B) {
			g := newGroup(b, "")
			if name != "untraced" {
				g = attached(b, Options{Maps: name != "traced"})
			}
			setup := g.into(b)
			for b.Loop() {
				cmd := exec.Command("/bin/true")
				setup(cmd)
				if err := cmd.Run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// How much one core takes of the same denial, and of different ones, from ring to folded event.
func BenchmarkReport(b *testing.B) {
	raw := record(bpf.TraceKindKIND_DENIAL, 0, "/usr/bin/agent", "/bin/bash", "")
	r := NewReporter(policy, foldOptions, discard)
	b.ReportAllocs()
	for b.Loop() {
		_, e, err := decode(raw)
		if err != nil {
			b.Fatal(err)
		}
		r.Event(e)
	}
}

// Denied execs per second as the program sees them, and what became of them.
func BenchmarkDeniedExecs(b *testing.B) {
	g := newGroup(b, "")
	const n = 100_000
	for b.Loop() {
		begin := time.Now()
		r := traced(b, g, Options{}, policy, func() { kerneltest.Child{Name: "flood", Input: n, Setup: g.into(b)}.Run(b) })
		d := r.last.Denied()
		b.ReportMetric(float64(n)/time.Since(begin).Seconds(), "execs/s")
		b.ReportMetric(100*float64(d.Lost)/float64(d.Produced), "%lost")
		b.ReportMetric(100*float64(d.Shed)/float64(d.Produced), "%shed")
	}
}

// What one run of each program costs, by the kernel's own clock: execs of a small program in the cgroup.
func BenchmarkPrograms(b *testing.B) {
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	g := newGroup(b, "")
	tracer, err := Load(Options{Cgroups: []string{g.dir}, Maps: true})
	if err != nil {
		b.Fatal(err)
	}
	defer tracer.Close()
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error)
	go func() { done <- tracer.Run(ctx, NewReporter(policy, foldOptions, discard)) }()
	setup := g.into(b)
	for b.Loop() {
		cmd := exec.Command("/bin/true")
		setup(cmd)
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	for name, p := range map[string]*ebpf.Program{"exec": tracer.objects.ProcessExec, "fork": tracer.objects.ProcessFork,
		"exit": tracer.objects.ProcessExit, "sys_exit": tracer.objects.SysExit} {
		s, err := p.Stats()
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(s.Runtime.Nanoseconds())/float64(max(1, s.RunCount)), "ns/"+name)
	}
}
