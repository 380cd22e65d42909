package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/agent"
	"github.com/sharness/sharness/event"
)

// Sizes of the measurements of tracing.
const (
	execsPerRound = 10
	callsPerRound = 20000
	floodLen      = 100_000
	firstEvents   = 200
)

// trace measures what tracing costs those who are traced and those who are not, what it takes in, and how soon it tells.
func (h *host) trace(rounds int, rest time.Duration) error {
	cost, err := costs(rounds, rest)
	if err != nil {
		return err
	}
	cost.show()
	if err := floods(); err != nil {
		return err
	}
	return h.tell()
}

// newCgroup makes a cgroup of this run in the hierarchy that BPF knows.
func newCgroup() (dir string, err error) {
	parent := "/sys/fs/cgroup/unified"
	if _, err := os.Stat(parent); err != nil {
		parent = "/sys/fs/cgroup"
	}
	return os.MkdirTemp(parent, "sharness-bench-")
}

// leave removes a cgroup: its members have been waited for, and the kernel takes a moment to forget them.
func leave(dir string) (err error) {
	for range 1000 {
		if err = os.Remove(dir); err == nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return err
}

// counter is a Handler that reports, and keeps the kernel side's counts and how late each event was.
type counter struct {
	*agent.Reporter
	stats agent.Stats
	late  []time.Duration
}

func newCounter() *counter {
	c := &counter{}
	c.Reporter = agent.NewReporter(agent.Policy{}, event.FoldOptions{Burst: floodLen, MaxKeys: floodLen}, func(e event.Event) {
		if e.Type.Denial() {
			c.late = append(c.late, time.Since(e.Time))
		}
	})
	return c
}

func (c *counter) Tick(now time.Time, s agent.Stats) { c.stats = s; c.Reporter.Tick(now, s) }

// traced runs body while the processes of a cgroup are traced.
func traced(dir string, files bool, body func() error) (*counter, error) {
	tracer, err := agent.Load(agent.Options{Cgroups: []string{dir}, Files: files})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, done := newCounter(), make(chan error)
	go func() { done <- tracer.Run(ctx, c) }()
	err = body()
	cancel()
	return c, errors.Join(err, <-done, tracer.Close())
}

// prices are what one exec and one call took, round by round.
type prices struct {
	execOff, execOut, execIn []time.Duration // nothing attached; attached, in another cgroup; in the traced one
	callOff, callOut         []time.Duration
}

// costs interleaves: each round measures without a tracer, and then beside one. The first round warms up.
func costs(rounds int, rest time.Duration) (*prices, error) {
	in, err := newCgroup()
	if err != nil {
		return nil, err
	}
	out, err := newCgroup()
	if err != nil {
		return nil, errors.Join(err, leave(in))
	}
	p := &prices{}
	for range rounds + 1 {
		time.Sleep(rest)
		err = errors.Join(p.round(in, out))
		if err != nil {
			break
		}
	}
	p.drop()
	return p, errors.Join(err, leave(in), leave(out))
}

func (p *prices) round(in, out string) error {
	if err := execs(out, &p.execOff); err != nil {
		return err
	}
	calls(&p.callOff)
	_, err := traced(in, false, func() error {
		if err := errors.Join(execs(out, &p.execOut), execs(in, &p.execIn)); err != nil {
			return err
		}
		calls(&p.callOut)
		return nil
	})
	return err
}

func (p *prices) drop() {
	for _, s := range []*[]time.Duration{&p.execOff, &p.execOut, &p.execIn, &p.callOff, &p.callOut} {
		if len(*s) > 0 {
			*s = (*s)[1:]
		}
	}
}

// execs takes the median time of /bin/true in a cgroup.
func execs(dir string, to *[]time.Duration) error {
	group, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer group.Close()
	var all []time.Duration
	for range execsPerRound {
		cmd := exec.Command("/bin/true")
		cmd.Env = environment
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
		began := time.Now()
		if err := cmd.Run(); err != nil {
			return err
		}
		all = append(all, time.Since(began))
	}
	*to = append(*to, quantile(all, 0.5))
	return nil
}

// calls takes the time of one getppid, in a tight loop. The result is of callsPerRound calls, to keep the fractions of a ns.
func calls(to *[]time.Duration) {
	began := time.Now()
	for range callsPerRound {
		_, _, _ = unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
	}
	*to = append(*to, time.Since(began))
}

func (p *prices) show() {
	fmt.Printf("\n%-24s %9s %9s %9s %9s %9s   n=%d\n", "trace", "untraced", "beside", "inside", "x beside", "x inside", len(p.execOff))
	fmt.Printf("%-24s %9.3f %9.3f %9.3f %9.3f %9.3f\n", "exec of /bin/true, ms", ms(quantile(p.execOff, 0.5)), ms(quantile(p.execOut, 0.5)),
		ms(quantile(p.execIn, 0.5)), ratio(p.execOut, p.execOff), ratio(p.execIn, p.execOff))
	ns := func(s []time.Duration) float64 { return float64(quantile(s, 0.5).Nanoseconds()) / callsPerRound }
	fmt.Printf("%-24s %9.1f %9.1f %9s %9.3f %9s\n", "getppid, ns", ns(p.callOff), ns(p.callOut), "-", ratio(p.callOut, p.callOff), "-")
	fmt.Printf("sharness trace exec x%.3f in the session, getppid outside %+.0f ns\n", ratio(p.execIn, p.execOut), ns(p.callOut)-ns(p.callOff))
}

// tell starts a session and measures how long after a denial its line is in the log, and what sharness-agent holds.
func (h *host) tell() (err error) {
	m, program, err := h.orchestrator()
	if err != nil {
		return err
	}
	if err := os.Truncate(h.events, 0); err != nil {
		return err
	}
	refused := refusal{call: "exec", apart: true, file: h.program}
	argv := append([]string{"enforce", "-m", m, "--workspace", h.workspace, "--events", h.events, "--", program},
		refused.args(firstEvents, 5*time.Millisecond, 0)...)
	cmd := exec.Command(h.sharness, argv...)
	cmd.Dir, cmd.Env = h.workspace, environment
	var words strings.Builder
	cmd.Stderr = &words
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	late, rss, err := follow(h.events, cmd.Process.Pid, ended)
	if err != nil {
		return fmt.Errorf("session: %w: %s", err, words.String())
	}
	if len(late) < firstEvents {
		return fmt.Errorf("%d of %d denials are in the log", len(late), firstEvents)
	}
	fmt.Printf("\n%-24s %9s %9s %9s %9s   n=%d\n", "first event", "median ms", "p95", "p99", "worst", len(late))
	fmt.Printf("%-24s %9.2f %9.2f %9.2f %9.2f\n", "in the log", ms(quantile(late, 0.5)), ms(quantile(late, 0.95)), ms(quantile(late, 0.99)), ms(slices.Max(late)))
	fmt.Printf("sharness first event p50 %.2f ms p99 %.2f ms, sharness-agent %.1f MB\n", ms(quantile(late, 0.5)), ms(quantile(late, 0.99)), float64(rss)/(1<<20))
	return nil
}

// orchestrator makes a manifest for this program, from a copy in a folder that only root writes.
func (h *host) orchestrator() (file, program string, err error) {
	program = filepath.Join(h.dir, "denied")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", "", err
	}
	if err := os.WriteFile(program, self, 0o755); err != nil {
		return "", "", err
	}
	file = filepath.Join(h.dir, "denied.yaml")
	out, err := exec.Command(h.sharness, "manifest", "new", "-m", file, "--name", "sharness-bench", "--profile", "plain",
		"--state", filepath.Join(h.dir, "state"), "--", program).CombinedOutput()
	if err != nil {
		return "", "", fmt.Errorf("%w: %s", err, out)
	}
	return file, program, nil
}
