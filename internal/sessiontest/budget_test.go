package sessiontest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/manifest"
)

func TestBudgetOfTheSessionBoundsAllCommandsTogether(t *testing.T) {
	s := newSite(t, func(m *manifest.Manifest) {
		m.Sandbox.Pids = 500
		m.Session = manifest.Budget{Pids: 120, Memory: 96 * manifest.MiB}
	})
	x := s.serve()
	for _, c := range []struct{ script, limit string }{
		{`python3 -c '
import os, time
for i in range(200):
    if os.fork() == 0: time.sleep(60)'`, "session_pids"},
		{`python3 -c 'b = bytearray(200 << 20)'`, "session_memory"},
	} {
		begin := time.Now()
		r := x.run("", c.script)
		if !slices.Equal(r.LimitsHit, []string{c.limit}) {
			t.Errorf("%s: limits_hit %v, want %s alone; %.300q", c.script, r.LimitsHit, c.limit, r.Stderr)
		}
		x.wantEvent(c.limit, func(e event.Event) bool {
			return e.Type == event.LimitHit && e.Data["limit"] == c.limit && !e.Time.Before(begin)
		})
		if next := x.run("", "echo next"); next.Stdout != "next\n" {
			t.Errorf("the next command: %+v", next)
		}
	}
}

func TestCommandIsSlowedToItsShareOfAProcessor(t *testing.T) {
	s := newSite(t, func(m *manifest.Manifest) { m.Sandbox.CPU = 20 })
	x := s.serve()
	r := x.run("", `timeout 3 bash -c 'while :; do :; done'; times`)
	if !slices.Equal(r.LimitsHit, []string{"cpu"}) || r.ExitCode != 0 {
		t.Errorf("got %+v", r)
	}
	if quick := x.run("", "echo quick"); len(quick.LimitsHit) > 0 {
		t.Errorf("a command that needs little: %v", quick.LimitsHit)
	}
}

// One sub-agent's command has many busy processes, another's has as many as there are processors.
func TestCommandsShareTheProcessorsFairly(t *testing.T) {
	s := newSite(t, nil)
	x := s.serve()
	count := func(spinners int) func() int {
		return func() int {
			r := x.run("", fmt.Sprintf(`spin() { n=0; while [ ! -e stop ]; do n=$((n+1)); done; echo $n; }
for i in {1..%d}; do spin & done; wait`, spinners))
			sum := 0
			for n := range strings.FieldsSeq(r.Stdout) {
				v, err := strconv.Atoi(n)
				if err != nil {
					t.Errorf("%q: %v", r.Stdout, err)
				}
				sum += v
			}
			return sum
		}
	}
	var many, few int
	var both sync.WaitGroup
	both.Go(func() { many = count(16)() })
	both.Go(func() { few = count(2)() })
	time.Sleep(3 * time.Second) // what is counted is work, not time
	s.write("stop", "")
	both.Wait()
	t.Logf("16 processes did %d rounds, 2 did %d", many, few)
	if few == 0 || many > 2*few {
		t.Errorf("16 processes did %d rounds, 2 of another command %d: want no more than twice as many", many, few)
	}
}

func TestOpenFilesAreBounded(t *testing.T) {
	s := newSite(t, func(m *manifest.Manifest) { m.Sandbox.OpenFiles = 64 })
	x := s.serve()
	r := x.run("", `ulimit -n; ulimit -Hn; python3 -c '
import os
n = 0
try:
    while True: os.open("/dev/null", os.O_RDONLY); n += 1
except OSError as e: print(e.strerror)'`)
	if r.Stdout != "64\n64\nToo many open files\n" {
		t.Errorf("got %q %q", r.Stdout, r.Stderr)
	}
}

func TestCommandsAreTheFirstThatTheKernelEndsForWantOfMemory(t *testing.T) {
	s := newSite(t, nil)
	x := s.serve()
	r := x.run("", `cat /proc/1/oom_score_adj /proc/self/oom_score_adj; sh -c 'cat /proc/self/oom_score_adj'; echo 0 > /proc/self/oom_score_adj; cat /proc/self/oom_score_adj`)
	got := strings.Fields(r.Stdout)
	if len(got) == 0 || slices.ContainsFunc(got, func(n string) bool { return n != "900" }) {
		t.Errorf("in a command: %q, %q; want 900 and no way to lower it", r.Stdout, r.Stderr)
	}
	for _, pid := range []int{x.cmd.Process.Pid, x.find("sharness-bashd", anyUID(0))} {
		data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "oom_score_adj"))
		if n, _ := strconv.Atoi(strings.TrimSpace(string(data))); err != nil || n > 0 {
			t.Errorf("pid %d has %q, %v; want no more than 0", pid, data, err)
		}
	}
}

// Eight commands meet the end of their memory at once, with others beside them.
func TestMemoryBombsEndNobodyElse(t *testing.T) {
	s := newSite(t, func(m *manifest.Manifest) { m.Sandbox.Memory = 64 * manifest.MiB })
	x := s.serve()
	bashd := x.find("sharness-bashd", anyUID(0))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if r := x.run("", `python3 -c 'b = bytearray(200 << 20)'; exit 9`); r.ExitCode != 9 || !slices.Contains(r.LimitsHit, "memory") {
				t.Errorf("bomb %d: %+v", i, r)
			}
		})
		all.Go(func() {
			if r := x.run("", fmt.Sprintf(`sleep 0.5; echo %d`, i)); r.Stdout != fmt.Sprintf("%d\n", i) {
				t.Errorf("neighbour %d: %+v", i, r)
			}
		})
	}
	all.Wait()
	if now := x.find("sharness-bashd", anyUID(0)); now != bashd {
		t.Errorf("sharness-bashd was started again: %d, then %d", bashd, now)
	}
}
