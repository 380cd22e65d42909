package sessiontest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// floodTime is how long each flood here lasts.
const floodTime = 6 * time.Second

// beside is a second site in the same folder: a session of its own, which ends before the first one is looked at.
func (s *site) beside() *site {
	s.t.Helper()
	other := *s
	other.workspace = filepath.Join(s.base, "ws2")
	if err := os.Mkdir(other.workspace, 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Chown(other.workspace, userID, userID); err != nil {
		s.t.Fatal(err)
	}
	other.logs = 100
	return &other
}

// flood connects to a session's server and hangs up, as fast as it can, until the time is over. Some are held open.
func (x *session) flood(until time.Time) (connects int64) {
	var all sync.WaitGroup
	var n atomic.Int64
	for range 4 {
		all.Go(func() {
			addr := &unix.SockaddrUnix{Name: x.socket}
			var held []int
			defer func() {
				for _, fd := range held {
					unix.Close(fd)
				}
			}()
			for time.Now().Before(until) {
				fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					x.t.Error(err)
					return
				}
				if unix.Connect(fd, addr) == nil {
					n.Add(1)
				}
				if len(held) < 60 {
					held = append(held, fd)
					continue
				}
				unix.Close(fd)
			}
		})
	}
	all.Wait()
	return n.Load()
}

// latencies runs commands one after the other until the time is over, and returns what each took, the longest last.
func (x *session) latencies(until time.Time) []time.Duration {
	x.t.Helper()
	var took []time.Duration
	for time.Now().Before(until) {
		begin := time.Now()
		if r := x.run("", "echo served"); r.Stdout != "served\n" || r.ExitCode != 0 {
			x.t.Errorf("got %+v", r)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return took
}

func TestFloodOfConnectionsStopsNobody(t *testing.T) {
	s := newSite(t, nil)
	victim, other := s.serve(), s.beside().serve()
	victim.run("", "true")
	other.run("", "true")
	bashd := victim.find("sharness-bashd", func(int) bool { return true })
	until := time.Now().Add(floodTime)
	connects := make(chan int64)
	go func() { connects <- victim.flood(until) }()
	took := other.latencies(until)
	n := <-connects
	p50, p95 := took[len(took)/2], took[len(took)*95/100]
	t.Logf("%d connections in %s; another session's %d commands took p50 %s, p95 %s, at most %s", n, floodTime, len(took),
		p50.Round(time.Millisecond), p95.Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	if p95 > time.Second {
		t.Errorf("p95 of another session's commands: %s", p95)
	}
	// The places of the flood come free one by one; then the session serves as before, by the same bashd.
	begin := time.Now()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		out, err := victim.client(ctx, "", "-c", "echo well").CombinedOutput()
		cancel()
		if string(out) == "well\n" && err == nil {
			break
		}
		if time.Since(begin) > 5*time.Second {
			t.Fatalf("not served 5 s after the flood: %q, %v", out, err)
		}
	}
	t.Logf("served again %s after the flood", time.Since(begin).Round(time.Millisecond))
	if now := victim.find("sharness-bashd", func(int) bool { return true }); now != bashd {
		t.Errorf("sharness-bashd was started again")
	}
	begin = time.Now()
	victim.stop()
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the session took %s to end", took)
	}
	other.stop()
}

func TestSessionEndsWhileItIsFlooded(t *testing.T) {
	s := newSite(t, nil)
	x := s.serve()
	x.run("", "true")
	until := time.Now().Add(floodTime / 2)
	done := make(chan int64)
	go func() { done <- x.flood(until) }()
	time.Sleep(floodTime / 6) // let it get going; it holds either way
	begin := time.Now()
	x.stop()
	took := time.Since(begin)
	<-done
	t.Logf("ended after %s", took.Round(time.Millisecond))
	if took > 5*time.Second {
		t.Errorf("the session took %s to end", took)
	}
}

// TestFloodOfHintsStopsNobody has commands that do, as fast as they can, what git does to its configuration.
func TestFloodOfHintsStopsNobody(t *testing.T) {
	s := newSite(t, nil)
	s.user("git init -q .", "")
	x := s.serve()
	bashd := x.find("sharness-bashd", func(int) bool { return true })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var floods sync.WaitGroup
	for range 2 {
		cmd := x.client(ctx, "", "-c", fmt.Sprintf(`python3 -c '
import os, time
end = time.time() + %f
while time.time() < end:
    for i in range(100):
        try:
            os.close(os.open(".git/config.lock", os.O_CREAT | os.O_WRONLY)); os.unlink(".git/config.lock")
        except OSError: pass'`, floodTime.Seconds()))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		floods.Go(func() { _ = cmd.Wait() })
	}
	n, hinted := 0, 0
	var slowest time.Duration
	for until := time.Now().Add(floodTime); time.Now().Before(until); n++ {
		begin := time.Now()
		want := n % 2 * 3
		r := x.run("", fmt.Sprintf("sleep 0.1; exit %d", want))
		slowest = max(slowest, time.Since(begin))
		lines := strings.Count(r.Stderr, "\n")
		if r.ExitCode != want || lines > want/3 {
			t.Errorf("got exit %d and %d lines, want %d and at most %d: %.300q", r.ExitCode, lines, want, want/3, r.Stderr)
		}
		hinted += lines
	}
	floods.Wait()
	t.Logf("%d commands, %d hints, the slowest took %s", n, hinted, slowest.Round(time.Millisecond))
	if now := x.find("sharness-bashd", func(int) bool { return true }); now != bashd {
		t.Errorf("sharness-bashd was started again")
	}
	x.stop()
}

// TestHelpersFitTheirLimits asks the server for the most that one session can: as many commands as run at once, each with
// a long request and as much output as is kept.
func TestHelpersFitTheirLimits(t *testing.T) {
	s := newSite(t, nil)
	x := s.serve()
	id, _ := x.id()
	long := strings.Repeat("x", 100<<10)
	var all sync.WaitGroup
	var busy atomic.Int64
	for range 64 {
		all.Go(func() {
			args := []string{"--json", "-c", "head -c 1200000 /dev/zero | tr '\\0' x | tee /dev/stderr", "name"}
			for range 18 { // ARG_MAX of the client's own execve bounds it
				args = append(args, long)
			}
			r, err := decode(x.client(t.Context(), "", args...))
			if err != nil && strings.Contains(err.Error(), "busy") {
				busy.Add(1)
			} else if err != nil || len(r.Stdout) != 1<<20 {
				t.Errorf("%d bytes, %.300v", len(r.Stdout), err)
			}
		})
	}
	all.Wait()
	peak := helpersPeak(t, id)
	t.Logf("helpers used at most %d MiB; %d of 64 were told to come later", peak>>20, busy.Load())
	if peak > 640<<20 {
		t.Errorf("helpers used %d MiB, of the 1024 that they may", peak>>20)
	}
	if r := x.run("", "echo well"); r.Stdout != "well\n" {
		t.Errorf("afterwards: %+v", r)
	}
	x.stop()
}

func helpersPeak(t *testing.T, id string) (n uint64) {
	t.Helper()
	for _, p := range []string{"memory/sharness/" + id + "/helpers/memory.max_usage_in_bytes", "sharness/" + id + "/helpers/memory.peak"} {
		data, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", p))
		if err == nil {
			fmt.Sscan(string(data), &n)
			return n
		}
	}
	t.Fatal("the helpers have no group")
	return 0
}
