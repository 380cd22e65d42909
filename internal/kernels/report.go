package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// report is what one machine said.
type report struct {
	kernel  kernel
	release string
	pace    int
	jobs    []*outcome
	took    time.Duration
	cpu     time.Duration // of the whole emulator: what a busy host does not change
	broken  string        // why the machine itself proves nothing; empty when it ran to its end
}

// outcome is one job.
type outcome struct {
	name                    string
	lines                   []string
	ended                   bool
	exit                    int
	error                   string
	took                    time.Duration
	passed, failed, skipped int
	unexplained             []string // skips for another reason than an old kernel
}

// readReport reads the channel and leaves each job's output in a file of its own. A last line that was cut off is the
// machine's end.
func readReport(k kernel, channel, results string) (*report, error) {
	f, err := os.Open(channel)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := &report{kernel: k}
	byName := map[string]*outcome{}
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		var rec record
		if err := json.Unmarshal(line, &rec); err != nil {
			return nil, fmt.Errorf("%s: %w in %.200q", channel, err, line)
		}
		o := byName[rec.Job]
		switch {
		case rec.Fact != "":
			r.release = rec.Fact
			continue
		case rec.Pace != 0:
			r.pace = rec.Pace
			continue
		case rec.Start:
			o = &outcome{name: rec.Job}
			byName[rec.Job] = o
			r.jobs = append(r.jobs, o)
		case o == nil:
			return nil, fmt.Errorf("%s: job %q had not started", channel, rec.Job)
		case rec.File != "":
			if err := os.WriteFile(filepath.Join(results, filepath.Base(rec.File)), rec.Data, 0o644); err != nil {
				return nil, err
			}
		case rec.Exit != nil:
			o.ended, o.exit, o.error, o.took = true, *rec.Exit, rec.Error, rec.Took
		default:
			o.lines = append(o.lines, rec.Out)
		}
	}
	for _, o := range r.jobs {
		o.count()
		if err := os.WriteFile(filepath.Join(results, o.name+".txt"), []byte(strings.Join(o.lines, "\n")+"\n"), 0o644); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *report) complete(want []job) bool {
	if len(r.jobs) != len(want) || len(want) == 0 {
		return false
	}
	return r.jobs[len(r.jobs)-1].ended
}

var (
	resultLine = regexp.MustCompile(`^( *)--- (PASS|FAIL|SKIP): (\S+)`)
	// How package kerneltest words the one reason there may be for a skip.
	oldKernel = regexp.MustCompile(`kernel \d+\.\d+ is older than .*, which came with \d+\.\d+`)
)

// count reads the results of a test binary; subtests count, as they do for package testrun.
func (o *outcome) count() {
	said := map[string]*strings.Builder{}
	current := ""
	for _, line := range o.lines {
		if name, ok := running(line); ok {
			current = name
			continue
		}
		m := resultLine.FindStringSubmatch(line)
		if m == nil {
			if said[current] == nil {
				said[current] = &strings.Builder{}
			}
			fmt.Fprintln(said[current], line)
			continue
		}
		switch m[2] {
		case "PASS":
			o.passed++
		case "FAIL":
			o.failed++
		case "SKIP":
			o.skipped++
			if b := said[m[3]]; b == nil || !oldKernel.MatchString(b.String()) {
				o.unexplained = append(o.unexplained, m[3])
			}
		}
	}
}

// running reads the line that says whose the next ones are.
func running(line string) (test string, ok bool) {
	f := strings.Fields(line)
	if len(f) < 3 || f[0] != "===" {
		return "", false
	}
	return f[2], true
}

func (o *outcome) bad() bool { return !o.ended || o.exit != 0 || len(o.unexplained) > 0 }

func (o *outcome) state() string {
	switch {
	case !o.ended:
		return "DID NOT END"
	case o.bad():
		return "FAILED"
	}
	return "ok"
}

// print shows one line for each job, and what failed ones said.
func (r *report) print(w io.Writer) {
	for _, o := range r.jobs {
		fmt.Fprintf(w, "%-12s %-22s %4d passed %3d failed %3d skipped %7.1f s", o.state(), o.name, o.passed, o.failed, o.skipped, o.took.Seconds())
		if o.error != "" {
			fmt.Fprintf(w, "  %s", o.error)
		}
		fmt.Fprintln(w)
		if !o.bad() {
			continue
		}
		for _, name := range o.unexplained {
			fmt.Fprintf(w, "\tskipped without an old kernel as the reason: %s\n", name)
		}
		said, where := o.telling(), fmt.Sprintf("results/%s/%s.txt", r.kernel.name, o.name)
		// Tests say what is wrong where it happens, other programs last.
		const first, last = 80, 12
		switch more := len(said) - first; {
		case o.passed+o.failed+o.skipped == 0 && len(said) > last:
			said = append([]string{fmt.Sprintf("%d lines in %s, the last of them:", len(said), where)}, said[len(said)-last:]...)
		case more > 0:
			said = append(said[:first:first], fmt.Sprintf("… %d more lines in %s", more, where))
		}
		for _, line := range said {
			fmt.Fprintf(w, "\t%.300s\n", line)
		}
	}
	if r.broken != "" {
		fmt.Fprintf(w, "BROKEN       %s\n", r.broken)
	}
}

// telling is what a failed job said, without what tests that passed did.
func (o *outcome) telling() []string {
	failed := map[string]bool{}
	for _, line := range o.lines {
		if m := resultLine.FindStringSubmatch(line); m != nil && m[2] == "FAIL" {
			failed[m[3]] = true
		}
	}
	var out []string
	current := ""
	for _, line := range o.lines {
		if name, ok := running(line); ok {
			current = name
			continue
		}
		if m := resultLine.FindStringSubmatch(line); m != nil {
			if m[2] == "FAIL" {
				out = append(out, line)
			}
			current = ""
			continue
		}
		if current == "" || failed[current] || !o.ended {
			out = append(out, line)
		}
	}
	return out
}

// timing is one machine's, for programs: seconds of this host and of its processors, and of the machine for each job.
type timing struct {
	Kernel  string             `json:"kernel"`
	Release string             `json:"release"`
	Seconds float64            `json:"seconds"`
	CPU     float64            `json:"cpu_seconds"`
	Jobs    map[string]float64 `json:"machine_seconds"`
}

// timings prints them, one JSON object a line.
func timings(w io.Writer, reports []*report) error {
	for _, r := range reports {
		t := timing{r.kernel.name, r.release, tenths(r.took), tenths(r.cpu), map[string]float64{}}
		for _, o := range r.jobs {
			t.Jobs[o.name] = tenths(o.took)
		}
		line, err := json.Marshal(t)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "timing %s\n", line)
	}
	return nil
}

// summary prints the table of all machines. Anything that failed is an error.
func summary(w io.Writer, reports []*report) error {
	fmt.Fprintf(w, "\n%-10s %-32s %8s %8s %8s %8s %8s %8s\n", "kernel", "release", "passed", "failed", "skipped", "slower", "cpu s", "s")
	var bad []string
	for _, r := range reports {
		var passed, failed, skipped int
		for _, o := range r.jobs {
			passed, failed, skipped = passed+o.passed, failed+o.failed, skipped+o.skipped
			if o.bad() {
				bad = append(bad, r.kernel.name+"/"+o.name)
			}
		}
		if r.broken != "" {
			bad = append(bad, r.kernel.name)
		}
		fmt.Fprintf(w, "%-10s %-32s %8d %8d %8d %7dx %8.0f %8.0f\n", r.kernel.name, r.release, passed, failed, skipped, r.pace, r.cpu.Seconds(), r.took.Seconds())
	}
	if len(bad) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(bad, " "))
	}
	return nil
}

func tenths(d time.Duration) float64 { return d.Round(100 * time.Millisecond).Seconds() }
