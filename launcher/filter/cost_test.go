package filter

import (
	"encoding/json"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
)

// Loading is on the path of every command, at about a third of a microsecond an instruction; what follows the load is
// nearly free, because the kernel keeps a bitmap of the numbers that are always allowed.
func TestFiltersAreShort(t *testing.T) {
	for _, c := range []struct {
		o    Options
		most []int
	}{
		{Options{Kind: Orchestrator}, []int{500, 260}},
		{Options{Kind: Command}, []int{500, 250, 40}},
		{Options{Kind: Helper, Network: true, Files: true, Change: true, Memfd: true}, []int{300}},
	} {
		for i, prog := range mustCompile(t, c.o) {
			t.Logf("%s, filter %d: %d instructions", c.o.Kind, i, len(prog)/8)
			if len(prog)/8 > c.most[i] {
				t.Errorf("%s, filter %d: want at most %d instructions, got %d", c.o.Kind, i, c.most[i], len(prog)/8)
			}
		}
	}
}

// cost is what filters take, in nanoseconds.
type cost struct {
	Load, Getppid, Fcntl float64
}

func costChild(input json.RawMessage) (any, error) {
	var filters [][]byte
	if err := json.Unmarshal(input, &filters); err != nil {
		return nil, err
	}
	start := time.Now()
	if err := load(filters); err != nil {
		return nil, err
	}
	c := cost{Load: float64(time.Since(start).Nanoseconds())}
	c.Getppid = fastest(func() { unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0) })
	c.Fcntl = fastest(func() { unix.RawSyscall(unix.SYS_FCNTL, 1<<20, unix.F_GETFD, 0) })
	return c, nil
}

// fastest is the best of several means: other work on the machine only ever adds.
func fastest(f func()) float64 {
	const rounds, calls = 20, 5000
	best := float64(time.Hour)
	for range rounds {
		start := time.Now()
		for range calls {
			f()
		}
		best = min(best, float64(time.Since(start).Nanoseconds())/calls)
	}
	return best
}

func BenchmarkFilter(b *testing.B) {
	for name, filters := range map[string][][]byte{
		"none": {}, "command": mustCompile(b, Options{Kind: Command}), "orchestrator": mustCompile(b, Options{Kind: Orchestrator}),
		"helper": mustCompile(b, Options{Kind: Helper}),
	} {
		b.Run(name, func(b *testing.B) {
			best := cost{Load: 1e9, Getppid: 1e9, Fcntl: 1e9}
			for b.Loop() {
				var c cost
				kerneltest.Child{Name: "cost", Input: filters, Reply: &c}.Run(b)
				best = cost{min(best.Load, c.Load), min(best.Getppid, c.Getppid), min(best.Fcntl, c.Fcntl)}
			}
			b.ReportMetric(best.Load/1000, "load-µs")
			b.ReportMetric(best.Getppid, "getppid-ns")
			b.ReportMetric(best.Fcntl, "fcntl-ns")
		})
	}
}
