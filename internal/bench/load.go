package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// load measures what one command after another does not show: rest before a command, and many at once.
func (g group) load(program group) error {
	return errors.Join(g.rested(), program.rates(), g.rates())
}

// rates measures how many commands a second each row can end: the median of some turns, in each of which every row has its
// moment, since a machine that others use as well is not as fast in one minute as in the next.
func (g group) rates() error {
	const turns = 5
	flights := [3]int{1, 8, 64}
	rates := make([][3][]float64, len(g.rows)) // by row, flight and turn
	for range turns {
		for i, r := range g.rows {
			for j, flight := range flights {
				rate, err := r.rate(g.dir, flight, 100+2*flight)
				if err != nil {
					return err
				}
				rates[i][j] = append(rates[i][j], rate)
			}
		}
	}
	fmt.Printf("\n%-20s %9s %9s %9s   %s: a second, by how many are in flight (least-most of %d)\n", g.name, "1", "8", "64",
		strings.Join(g.rows[0].argv, " "), turns)
	for i, r := range g.rows {
		fmt.Printf("%-20s", r.name)
		for _, s := range rates[i] {
			fmt.Printf(" %9.0f", quantile(s, 0.5))
		}
		fmt.Print("  ")
		for _, s := range rates[i] {
			fmt.Printf(" %.0f-%.0f", slices.Min(s), slices.Max(s))
		}
		fmt.Println()
	}
	return nil
}

// rested compares a command after a rest with one in a burst. A machine at rest is where moving a process between groups
// waits for a grace period, and where a cold pool shows.
func (g group) rested() error {
	const rest, times = 100 * time.Millisecond, 20
	r := g.rows[len(g.rows)-1]
	var after, burst []time.Duration
	for range times {
		time.Sleep(rest)
		for i := range 6 {
			d, err := r.once(g.dir)
			if err != nil {
				return err
			}
			switch i {
			case 0:
				after = append(after, d)
			case 1, 2: // those that wait have been taken: what follows is the pace of a burst
			default:
				burst = append(burst, d)
			}
		}
	}
	a, b := quantile(after, 0.5), quantile(burst, 0.5)
	fmt.Printf("\n%s after %v of rest: median %.2f ms, in a burst %.2f ms, ratio %.2f\n", r.name, rest, ms(a), ms(b), float64(a)/float64(b))
	return nil
}

// rate is how many commands a second end, with so many in flight. The first two of each place warm up, as the first
// round does in a row of samples: what is made once for so many at a time is not what a command costs.
func (r row) rate(dir string, flight, count int) (float64, error) {
	warm := 2 * flight
	var ended atomic.Int64
	var began, over time.Time
	var wg sync.WaitGroup
	errs := make([]error, flight)
	for i := range flight {
		wg.Go(func() {
			for errs[i] == nil {
				_, errs[i] = r.once(dir)
				switch n := int(ended.Add(1)); {
				case n == warm:
					began = time.Now()
				case n == warm+count:
					over = time.Now()
					return
				case n > warm+count:
					return
				}
			}
		})
	}
	wg.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return 0, fmt.Errorf("%d in flight: %w", flight, errs[i])
	}
	return float64(count) / over.Sub(began).Seconds(), nil
}
