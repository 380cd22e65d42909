package sessiontest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/manifest"
)

// bombs are commands that want more than they may have.
var bombs = []struct {
	name, script string
	limit        string        // in limits_hit
	want         string        // in the output
	status       int           // -1: any
	within       time.Duration // of the start
}{
	{"processes", `f() { f | f & }; f; sleep 1; python3 -c '
import os, sys
n = 0
try:
    while True:
        if os.fork() == 0:
            import time; time.sleep(60)
        n += 1
except OSError as e: print("fork:", e.strerror)'; exit 0`, "pids", "", -1, 60 * time.Second},
	{"threads", `python3 -c '
import threading, time
try:
    for n in range(500): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
except RuntimeError as e: print("at", n, e, flush=True)
import os; os._exit(0)'`, "pids", "can't start new thread", 0, 30 * time.Second},
	{"memory", `python3 -c 'b = bytearray(200 << 20); print("got it")' || echo refused $?`, "memory", "refused 137", 0, 30 * time.Second},
	{"memory in private folders", `head -c 20M /dev/zero > /tmp/x; python3 -c 'b = bytearray(50 << 20); print("got it")' || echo refused $?`, "memory", "refused 137", 0, 30 * time.Second},
	{"disk", `for d in /tmp /var/tmp /dev/shm ~; do head -c 30M /dev/zero > $d/x; echo full $?; rm $d/x; done; echo again > /tmp/y && cat /tmp/y`, "", "full 1\nfull 1\nfull 1\nfull 1\nagain", 0, 30 * time.Second},
	{"full private folder", `head -c 30M /dev/zero > /tmp/x`, "tmp", "", 1, 30 * time.Second},
	{"private folders together", `for d in /var/tmp /dev/shm ~; do head -c 10M /dev/zero > $d/x || exit 1; done`, "tmp", "", 1, 30 * time.Second},
	{"file size", `truncate -s 70M big; exit $?`, "file_size", "", 153, 30 * time.Second},
	{"time", `trap '' TERM INT; echo begun; sleep 60 & sleep 60; wait`, "timeout", "begun", -1, 9 * time.Second},
	{"time of a daemon", `setsid sh -c 'trap "" TERM; sleep 60' & wait`, "timeout", "", -1, 9 * time.Second},
	{"output", `yes | head -c 100000000; echo not reached`, "output", "", -1, 30 * time.Second},
	{"output and error", `while :; do echo 0123456789012345678901234567890123456789 >&2; done`, "output", "", -1, 30 * time.Second},
}

func small(m *manifest.Manifest) {
	m.Sandbox.Memory, m.Sandbox.Tmp = 64*manifest.MiB, 24*manifest.MiB
	m.Sandbox.Timeout = manifest.Timeout(4 * time.Second)
	m.Sandbox.Output, m.Sandbox.FileSize = manifest.MiB, 64*manifest.MiB
}

func TestLimitsOfACommandHoldAndAreReported(t *testing.T) {
	s := newSite(t, small)
	x := s.serve()
	id, uid := x.id()
	for _, c := range bombs {
		t.Run(c.name, func(t *testing.T) {
			x := x.on(t)
			begin := time.Now()
			r := x.run("", c.script)
			took := time.Since(begin)
			t.Logf("exit %d signal %d limits %v truncated %v in %s: %.100q", r.ExitCode, r.Signal, r.LimitsHit, r.Truncated, took.Round(time.Millisecond), r.Stdout)
			if took > c.within {
				t.Errorf("took %s, want at most %s", took, c.within)
			}
			if c.limit != "" && !slices.Contains(r.LimitsHit, c.limit) || c.limit == "" && len(r.LimitsHit) > 0 {
				t.Errorf("limits_hit: got %v, want %q\nstdout %.300q\nstderr %.300q", r.LimitsHit, c.limit, r.Stdout, r.Stderr)
			}
			if !strings.Contains(r.Stdout, c.want) || c.status >= 0 && r.ExitCode != c.status {
				t.Errorf("exit %d, %.300q %.300q; want exit %d and %q", r.ExitCode, r.Stdout, r.Stderr, c.status, c.want)
			}
			if c.limit == "output" && (!r.Truncated || len(r.Stdout)+len(r.Stderr) > 1<<20+4096) {
				t.Errorf("truncated %v, %d bytes", r.Truncated, len(r.Stdout)+len(r.Stderr))
			}
			if c.limit != "" {
				if !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "the user can raise sandbox."+c.limit) }) {
					t.Errorf("notes %q: want a sentence about %s", r.Notes, c.limit)
				}
				x.wantEvent("limit.hit", func(e event.Event) bool {
					return e.Type == event.LimitHit && e.Data["limit"] == c.limit // the second of a kind is only counted for a while
				})
				x.wantEvent("command.end", func(e event.Event) bool {
					return e.Type == event.CommandEnd && e.Time.After(begin) && slices.Contains(e.Command.LimitsHit, c.limit)
				})
			}
			if next := x.run("", "echo next"); next.Stdout != "next\n" || next.ExitCode != 0 {
				t.Errorf("the next command: %+v", next)
			}
			if left := commands(uid); len(left) > 0 {
				t.Errorf("left of the command: %v", left)
			}
			if _, left := commandGroups(t, id); len(left) > 0 {
				t.Errorf("left of the command: %v", left)
			}
		})
	}
}

// commands are the processes of commands. Those of sharness-box are pid 1 of one, or wait with their target for the next.
func commands(agent int) []string {
	return slices.DeleteFunc(processes(agent), func(p string) bool {
		var dir, comm string
		var uid int
		fmt.Sscanf(p, "%s uid %d %s", &dir, &uid, &comm)
		return uid < firstSlot || uid >= firstHelper || comm == "sharness-box"
	})
}

func TestDaemonOfACommandEndsWithIt(t *testing.T) {
	s := newSite(t, nil)
	x := s.serve()
	_, uid := x.id()
	r := x.run("", `python3 -c '
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3): os.close(fd)
        open("daemon", "w").write("alive")
        while True: time.sleep(1)
    os._exit(0)
os.wait()
while not os.path.exists("daemon"): time.sleep(.01)'; nohup sleep 1000 >/dev/null 2>&1 & disown; echo done`)
	if r.Stdout != "done\n" || r.ExitCode != 0 {
		t.Errorf("got %+v", r)
	}
	if left := commands(uid); len(left) > 0 {
		t.Errorf("left of the command: %v", left)
	}
}

func TestClientThatGoesTakesItsCommandAlong(t *testing.T) {
	s := newSite(t, nil)
	x := s.serve()
	_, uid := x.id()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := x.client(ctx, "", "-c", `trap '' HUP PIPE TERM; setsid sleep 1000 & while :; do sleep 1; done`)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for len(commands(uid)) < 3 {
		time.Sleep(10 * time.Millisecond)
	}
	cancel() // kills the client
	begin := time.Now()
	cmd.Wait()
	for len(commands(uid)) > 0 {
		if time.Since(begin) > 2*time.Second {
			t.Fatalf("alive 2 s after the client: %v", commands(uid))
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Logf("gone after %s", time.Since(begin))
}

func TestLimitsOfTheOrchestratorHoldAndAreReported(t *testing.T) {
	s := newSite(t, func(m *manifest.Manifest) {
		m.Limits = manifest.Limits{Pids: 40, Memory: 64 * manifest.MiB, Tmp: 8 * manifest.MiB}
	})
	for _, c := range []struct{ name, script, limit string }{
		{"processes", `f() { f | f & }; f 2>/dev/null; for i in 1 2 3 4 5 6; do read -t 0.3 <> <(:); done 2>/dev/null; exit`, "pids"},
		{"memory", `x=xxxxxxxxxxxxxxxx; while :; do x=$x$x; done`, "memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := *s
			s.t = t
			begin := time.Now()
			x, _ := s.enforce(c.script)
			t.Logf("%s: %v, said %.300q", time.Since(begin).Round(time.Millisecond), x.cmd.ProcessState, x.stderr)
			if !strings.Contains(x.stderr.String(), "the orchestrator met its "+c.limit+" limit") {
				t.Errorf("want a notice of the %s limit", c.limit)
			}
			x.wantEvent("limit.hit", func(e event.Event) bool {
				return e.Type == event.LimitHit && strings.Contains(e.Detail, "orchestrator: "+c.limit) && e.Data["key"] == "limits."+c.limit
			})
			id, uid := x.id()
			s.wantNoTrace(id, uid)
		})
	}
	t.Run("disk", func(t *testing.T) {
		s := *s
		s.t = t
		x, out := s.enforce(`printf -v b %1000000d 0; for i in {1..20}; do echo "$b"; done > /tmp/x; echo $?`)
		if !strings.Contains(out, "1\n") || !strings.Contains(x.stderr.String(), "No space left on device") {
			t.Errorf("got %q, %q; want ENOSPC", out, x.stderr)
		}
	})
	if _, err := os.Stat(s.workspace); err != nil {
		t.Error(err)
	}
}

// The folder is gone with the command, which may have ended before anybody looks.
func TestFullFolderIsToldHoweverShortTheCommand(t *testing.T) {
	s := newSite(t, func(m *manifest.Manifest) { m.Sandbox.Tmp = 256 << 10 })
	x := s.serve()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 8 {
				if r := x.run("", "exec head -c 300000 /dev/zero > /tmp/x"); r.ExitCode != 1 || !slices.Contains(r.LimitsHit, "tmp") {
					t.Errorf("exit %d, limits_hit %v, want 1 and tmp", r.ExitCode, r.LimitsHit)
				}
			}
		})
	}
	all.Wait()
}
