package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/agent"
)

// refusal is what a program is refused again and again.
type refusal struct {
	name  string
	call  string // exec or open
	apart bool   // each time a name of its own: nothing can be counted together
	file  string
}

var refusals = []refusal{
	{"the same exec", "exec", false, "/etc/passwd"},
	{"different execs", "exec", true, "/etc/passwd"},
	{"the same open", "open", false, "/etc/shadow"},
	{"different opens", "open", true, "/etc/shadow"},
}

// floods has a program be refused as fast as it can, untraced and traced, and then slower until nothing is lost.
func floods() error {
	fmt.Printf("\n%-24s %10s %10s %8s %8s %12s   n=%d\n", "denials in a loop", "untraced/s", "traced/s", "% lost", "% shed", "none lost/s", floodLen)
	for _, r := range refusals {
		if err := r.flood(); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return nil
}

func (r refusal) flood() (err error) {
	dir, err := newCgroup()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave(dir)) }()
	before, err := r.run(dir, 0)
	if err != nil {
		return err
	}
	n, after, err := r.traced(dir, 0)
	if err != nil {
		return err
	}
	whole, lost := after, n.Lost
	for lost > 0 && whole > slowest {
		var next agent.Count
		if next, whole, err = r.traced(dir, whole/2); err != nil {
			return err
		}
		lost = next.Lost
	}
	percent := func(part uint64) float64 { return 100 * float64(part) / float64(n.Produced) }
	fmt.Printf("%-24s %10.0f %10.0f %8.2f %8.2f %12.0f\n", r.name, before, after, percent(n.Lost), percent(n.Shed), whole)
	return nil
}

// slowest is where the search for a rate without loss ends, in denials a second.
const slowest = 1000

// run returns how many refusals a second it came to; rate bounds them, 0 does not.
func (r refusal) run(dir string, rate float64) (float64, error) {
	group, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer group.Close()
	cmd := exec.Command("/proc/self/exe", r.args(floodLen, 0, rate)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	began := time.Now()
	err = cmd.Run()
	return floodLen / time.Since(began).Seconds(), err
}

func (r refusal) traced(dir string, rate float64) (n agent.Count, reached float64, err error) {
	c, err := traced(dir, r.call == "open", func() (err error) { reached, err = r.run(dir, rate); return err })
	if err != nil {
		return n, 0, err
	}
	if n = c.stats.Denied(); n.Produced < floodLen {
		return n, 0, fmt.Errorf("%d denials of %d were seen", n.Produced, floodLen)
	}
	return n, reached, nil
}

// beRefusedWord makes this program the one that is refused.
const beRefusedWord = "be-refused"

func (r refusal) args(n int, pause time.Duration, rate float64) []string {
	return []string{beRefusedWord, r.call, fmt.Sprint(r.apart), r.file, fmt.Sprint(n), pause.String(), fmt.Sprint(rate)}
}

// beRefused reads what args wrote and does it, with the rights of nobody. Different names of one file are written with more
// or fewer slashes and dots.
func beRefused(args []string) error {
	r := refusal{call: args[0], file: args[2]}
	var n int
	var rate float64
	pause, err := time.ParseDuration(args[4])
	_, nerr := fmt.Sscan(args[1]+" "+args[3]+" "+args[5], &r.apart, &n, &rate)
	if err := errors.Join(err, nerr); err != nil {
		return err
	}
	if os.Getuid() == 0 {
		if err := syscall.Setuid(65534); err != nil {
			return fmt.Errorf("setuid: %w", err)
		}
	}
	began := time.Now()
	for i := range n {
		for rate > 0 && time.Since(began).Seconds()*rate < float64(i) {
			// In between nothing is done: a sleep would take longer.
		}
		name := r.file
		if r.apart {
			name = apart(r.file, i)
		}
		if err := r.attempt(name); err != unix.EACCES {
			return fmt.Errorf("%s %s: got %v, want it refused", r.call, name, err)
		}
		time.Sleep(pause)
	}
	return nil
}

func (r refusal) attempt(name string) error {
	if r.call == "exec" {
		return unix.Exec(name, []string{name}, nil)
	}
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// apart is the i-th name of a file.
func apart(file string, i int) string {
	dir, base := filepath.Split(file)
	for bit := range 20 {
		dir += []string{"/", "./"}[i>>bit&1]
	}
	return dir + base
}
