package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// environment of every row, the same for all: a peer must not pay for the caller's variables.
var environment = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent", "LANG=C.UTF-8"}

// measure takes the samples of a group and shows them.
func (g group) measure(rounds int, rest time.Duration) error {
	samples, err := g.sample(rounds, rest)
	if err != nil {
		return err
	}
	show(g, samples)
	return nil
}

// sample returns for each row its samples in the order of the rounds. The first round warms up and is not counted.
func (g group) sample(rounds int, rest time.Duration) ([][]time.Duration, error) {
	samples := make([][]time.Duration, len(g.rows))
	order := rand.Perm(len(g.rows))
	for round := range rounds + 1 {
		rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, i := range order {
			time.Sleep(rest)
			d, err := g.rows[i].once(g.dir)
			if err != nil {
				return nil, err
			}
			if round > 0 {
				samples[i] = append(samples[i], d)
			}
		}
	}
	return samples, nil
}

func (r row) once(dir string) (time.Duration, error) {
	cmd := exec.Command(r.argv[0], r.argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(slices.Clone(environment), r.env...)
	var words strings.Builder
	began := time.Now()
	if err := cmd.Run(); err != nil {
		// Only now, so that no row pays for a pipe: once more, to learn what it says.
		again := exec.Command(r.argv[0], r.argv[1:]...)
		again.Dir, again.Env, again.Stderr = dir, cmd.Env, &words
		_ = again.Run() // its error is the one that is reported
		return 0, fmt.Errorf("%s: %w: %s", r.name, err, strings.TrimSpace(words.String()))
	}
	return time.Since(began), nil
}

// show prints a group; its last line is the one to quote.
func show(g group, samples [][]time.Duration) {
	bare, bwrap := samples[0], samples[1]
	fmt.Printf("\n%-20s %9s %9s %9s %8s %8s   n=%d\n", g.name, "min ms", "median", "p95", "x bare", "x bwrap", len(bare))
	for i, r := range g.rows {
		s := samples[i]
		fmt.Printf("%-20s %9.2f %9.2f %9.2f %8.2f %8.2f\n", r.name, ms(slices.Min(s)), ms(quantile(s, 0.5)), ms(quantile(s, 0.95)),
			ratio(s, bare), ratio(s, bwrap))
	}
	last := len(samples) - 1
	fmt.Printf("sharness %s %.2f ms, p95 %.2f ms x bare %.2f x bwrap %.2f\n", g.name, ms(quantile(samples[last], 0.5)),
		ms(quantile(samples[last], 0.95)), ratio(samples[last], bare), ratio(samples[last], bwrap))
}

// ratio is the median of the ratios of each round, in which both were measured under the same load.
func ratio(a, b []time.Duration) float64 {
	r := make([]float64, len(a))
	for i := range a {
		r[i] = float64(a[i]) / float64(b[i])
	}
	return quantile(r, 0.5)
}

func quantile[T time.Duration | float64](samples []T, q float64) T {
	s := slices.Sorted(slices.Values(samples))
	return s[min(len(s)-1, int(q*float64(len(s))))]
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// machine is the line that figures are worthless without.
func machine() string {
	var uts unix.Utsname
	kernel := "unknown"
	if unix.Uname(&uts) == nil {
		kernel = unix.ByteSliceToString(uts.Release[:])
	}
	load := "unknown"
	if data, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ = strings.Cut(string(data), " ")
	}
	return fmt.Sprintf("Linux %s, %d CPUs, load %s", kernel, runtime.NumCPU(), load)
}
