package sessiontest

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/manifest"
)

// greedy are commands that want all there is, and what is said of each.
var greedy = []struct{ script, limit string }{
	{`f() { f | f & }; f; sleep 2; python3 -c '
import os, time
while True:
    if os.fork() == 0: time.sleep(60)'`, "pids"},
	{`python3 -c '
import threading, time
while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()'`, "pids"},
	{`python3 -c 'b = bytearray(200 << 20)'`, "memory"},
	{`cat /dev/zero > /tmp/x`, "tmp"},
	{`yes`, "output"},
	{`python3 -c '
for i in range(1000000): open("/tmp/%d" % i, "w").close()'`, ""}, // of memory or of time: whichever ends first
	{`setsid sh -c 'trap "" TERM HUP; sleep 60' > /dev/null 2>&1 & setsid nohup sleep 60 & sleep 60`, "timeout"},
	{`while :; do :; done`, "timeout"},
}

// What a hostile orchestrator can do to the server of its session, all of it at once and twice over.
func TestBombsIdlersAndGarbageAtOnceStopNobody(t *testing.T) {
	s := newSite(t, func(m *manifest.Manifest) {
		small(m)
		m.Sandbox.FileSize = 0
		// Sixteen at once share the processors; each must come to its own limit before this one.
		m.Sandbox.Timeout = manifest.Timeout(20 * time.Second)
	})
	x := s.serve()
	id, uid := x.id()
	x.run("", "true")
	before := x.steady()
	bashd := x.find("sharness-bashd", anyUID(0))

	stop, done := context.WithCancel(t.Context())
	defer done()
	idle := x.idlers(1000)
	var noise, bombs sync.WaitGroup
	for range 2 {
		noise.Go(func() { x.garbage(stop) })
	}
	frozen := x.frozenClients(3)
	for range 2 {
		for _, b := range greedy {
			bombs.Go(func() {
				r := x.run("", b.script)
				if b.limit != "" && !slices.Contains(r.LimitsHit, b.limit) || len(r.LimitsHit) == 0 || r.ExitCode == 0 || len(r.Notes) == 0 {
					t.Errorf("%.60q: exit %d, limits_hit %v, want %s; notes %q", b.script, r.ExitCode, r.LimitsHit, b.limit, r.Notes)
				}
			})
		}
	}
	took := x.latencies(time.Now().Add(5 * time.Second))
	bombs.Wait()
	done()
	noise.Wait()
	t.Logf("beside it %d commands were served: p50 %s, p95 %s, at most %s", len(took), took[len(took)/2].Round(time.Millisecond),
		took[len(took)*95/100].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	for _, cmd := range frozen {
		_ = unix.Kill(cmd, unix.SIGKILL)
	}
	for _, fd := range idle {
		unix.Close(fd)
	}
	for deadline := time.Now().Add(10 * time.Second); len(commands(uid)) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("left: %v", commands(uid))
		}
	}
	if now := x.find("sharness-bashd", anyUID(0)); now != bashd {
		t.Errorf("sharness-bashd was started again: %d, then %d", bashd, now)
	}
	if r := x.run("", "echo next"); r.Stdout != "next\n" {
		t.Errorf("the next command: %+v", r)
	}
	x.wantNoMore(before)
	x.stop()
	s.wantNoTrace(id, uid)
}

// idlers are connections that say nothing. The server lets go of them; what it does not take at once is let be.
func (x *session) idlers(n int) (fds []int) {
	x.t.Helper()
	for range n {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			x.t.Fatal(err)
		}
		_ = unix.Connect(fd, &unix.SockaddrUnix{Name: x.socket}) // EAGAIN: the backlog is full
		fds = append(fds, fd)
	}
	return fds
}

// garbage writes bytes that mean nothing to new connections until stop.
func (x *session) garbage(stop context.Context) {
	block := make([]byte, 64<<10)
	for n := 0; stop.Err() == nil; n++ {
		_, _ = rand.Read(block)
		c, err := net.DialTimeout("unix", x.socket, time.Second)
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if n%2 == 0 { // a header that is right, and then not
			copy(block, []byte{1, 0, 0, 0, 2, 0, 0, 0, 1, 0})
		}
		_, _ = c.Write(block)
		c.Close()
	}
}

// frozenClients are stopped while their commands print without end.
func (x *session) frozenClients(n int) (pids []int) {
	x.t.Helper()
	for range n {
		cmd := x.client(x.t.Context(), "", "-c", "yes")
		r, w, err := os.Pipe()
		if err != nil {
			x.t.Fatal(err)
		}
		cmd.Stdout = w
		if err := cmd.Start(); err != nil {
			x.t.Fatal(err)
		}
		w.Close()
		if _, err := r.Read(make([]byte, 2)); err != nil {
			x.t.Fatal(err)
		}
		if err := unix.Kill(cmd.Process.Pid, unix.SIGSTOP); err != nil {
			x.t.Fatal(err)
		}
		pids = append(pids, cmd.Process.Pid)
		x.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); r.Close() })
	}
	return pids
}

// A million files in the workspace are the user's to remove; the server is not slower for them, and no other command either.
func TestCommandThatMakesFilesWithoutEndIsEnded(t *testing.T) {
	s := newSite(t, small)
	x := s.serve()
	r := x.run("", `mkdir many; python3 -c '
import os
for i in range(1000000): os.close(os.open("many/%d" % i, os.O_CREAT | os.O_WRONLY))'; exit 1`)
	if len(r.LimitsHit) == 0 || r.ExitCode == 0 {
		t.Errorf("got %+v", r)
	}
	if next := x.run("", "ls many | wc -l"); next.ExitCode != 0 || strings.TrimSpace(next.Stdout) == "0" {
		t.Errorf("the next command: %+v", next)
	} else {
		t.Logf("%s files before %v", strings.TrimSpace(next.Stdout), r.LimitsHit)
	}
	if r := x.run("", "rm -rf many; echo removed"); r.ExitCode != 0 {
		t.Errorf("removing them: %+v", r)
	}
}
