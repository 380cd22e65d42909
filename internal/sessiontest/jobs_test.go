package sessiontest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/manifest"
)

// ask runs the client with options of its own and returns what it printed.
func (x *session) ask(args ...string) string {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
	defer cancel()
	out, err := x.client(ctx, "", args...).Output()
	if err != nil {
		x.t.Fatalf("sharness-bash %v: %v %q\n%s", args, err, out, x.stderr)
	}
	return string(out)
}

// job starts one and returns its number.
func (x *session) job(script string) string {
	x.t.Helper()
	var r struct{ Job uint64 }
	out := x.ask("--json", "--background", "-c", script)
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Job == 0 {
		x.t.Fatalf("--background: %q, %v", out, err)
	}
	return fmt.Sprint(r.Job)
}

// dial tries a port of loopback for a while and prints what it was told.
const dial = `python3 -c '
import socket, sys, time
for i in range(int(sys.argv[2])):
    try:
        s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2); print(s.recv(100).decode(), end=""); break
    except OSError as e: last = e.strerror; time.sleep(0.05)
else: print(last)' %d %d`

const devServer = `exec python3 -c '
import socket
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.1", 8123)); s.listen()
print("up", flush=True)
while True: c, _ = s.accept(); c.sendall(b"served\n"); c.close()'`

func TestDevServerIsReachedByLaterCommandsAndNobodyElse(t *testing.T) {
	s := newSite(t, func(m *manifest.Manifest) { m.Sandbox.Network = manifest.NetworkSession })
	host, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	x := s.serve()
	id, uid := x.id()
	job := x.job(devServer)
	if r := x.run("", fmt.Sprintf(dial, 8123, 100)); r.Stdout != "served\n" {
		t.Errorf("a later command: %+v", r)
	}
	if got := x.ask("--job-log", job); got != "up\n" {
		t.Errorf("its log: %q", got)
	}
	if r := x.run("", fmt.Sprintf(dial, host.Addr().(*net.TCPAddr).Port, 1)); r.Stdout != "Connection refused\n" {
		t.Errorf("a listener of the host: %+v", r)
	}
	if c, err := net.Dial("tcp", "127.0.0.1:8123"); err == nil {
		c.Close()
		t.Error("the host reaches the job")
	}
	begin := time.Now()
	if got := x.ask("--kill", job); !strings.HasPrefix(got, job+"\tsignal 15\t") {
		t.Errorf("--kill: %q", got)
	}
	x.wantEvent("the end of the job", func(e event.Event) bool {
		return e.Type == event.CommandEnd && e.Command.Signal == 15 && fmt.Sprint(e.Command.ID) == job && e.Time.After(begin)
	})
	if r := x.run("", fmt.Sprintf(dial, 8123, 1)); r.Stdout != "Connection refused\n" {
		t.Errorf("after its end: %+v", r)
	}
	// The rest ends with the session.
	x.job(devServer)
	if len(commands(uid)) == 0 {
		t.Error("the second job does not run")
	}
	x.stop()
	s.wantNoTrace(id, uid)
}

func TestOrchestratorDoesNotReachTheNetworkOfItsCommands(t *testing.T) {
	s := newSite(t, func(m *manifest.Manifest) { m.Sandbox.Network = manifest.NetworkSession })
	_, out := s.enforce(`b=/run/sharness/bin/sharness-bash
id=$($b --background -c '` + strings.ReplaceAll(devServer, "'", `'\''`) + `' 2>&1); echo "$id" | head -n 1 | tr -d 0-9
$b -c 'for i in {1..100}; do read -t 2 x <>/dev/tcp/127.0.0.1/8123 2>/dev/null && break; sleep 0.05; done; echo "command $x"'
read -t 2 x <>/dev/tcp/127.0.0.1/8123 2>/dev/null; echo "orchestrator $?"`)
	if !strings.Contains(out, "command served\n") || !strings.Contains(out, "orchestrator 1\n") {
		t.Errorf("got %q", out)
	}
}

func TestStoppedOrStubbornJobIsKilledWhole(t *testing.T) {
	s := newSite(t, nil)
	x := s.serve()
	_, uid := x.id()
	for name, script := range map[string]string{
		"tidies up": `trap 'echo tidy > tidied; exit 7' TERM; touch up; while :; do sleep 0.1; done`,
		"stubborn":  `trap '' TERM INT HUP; setsid sleep 1000 & touch up; while :; do sleep 1; done`,
		"stopped":   `touch up; kill -STOP $$; sleep 1000`,
	} {
		job := x.job(script)
		for !exists(filepath.Join(s.workspace, "up")) {
			time.Sleep(10 * time.Millisecond)
		}
		got := x.ask("--kill", job)
		want := map[string]string{"tidies up": "exit 7", "stubborn": "signal 9", "stopped": "signal 15"}[name]
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %s", name, got, want)
		}
		if left := commands(uid); len(left) > 0 {
			t.Errorf("%s: left %v", name, left)
		}
		os.Remove(filepath.Join(s.workspace, "up"))
	}
	if !exists(filepath.Join(s.workspace, "tidied")) {
		t.Error("a job that handles TERM could not tidy up")
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestWhatACommandLeavesRunningIsEndedAndSaid(t *testing.T) {
	s := newSite(t, nil)
	x := s.serve()
	_, uid := x.id()
	const said = "start it with: sharness-bash --background"
	for _, c := range []struct {
		script string
		want   bool
	}{
		{"echo alone", false},
		{"cat <(echo a) <(echo b) | wc -l; true & wait", false},
		{"sleep 1000 & echo on", true},
		{"setsid -f sleep 1000", false}, // said a moment ago
	} {
		r := x.run("", c.script)
		if r.ExitCode != 0 || strings.Contains(r.Stderr, said) != c.want {
			t.Errorf("%s: %+v, want it said: %v", c.script, r, c.want)
		}
		if left := commands(uid); len(left) > 0 {
			t.Errorf("%s: left %v", c.script, left)
		}
	}
}

// Nobody would read what they print: commands and jobs of a bash-server that dies are ended (docs/decisions/0015).
func TestJobsAndCommandsEndWithTheirBashServer(t *testing.T) {
	s := newSite(t, nil)
	x := s.serve()
	_, uid := x.id()
	x.job("sleep 1000")
	cmd := x.client(t.Context(), "", "-c", "sleep 1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for len(commands(uid)) < 2 { // sleep, twice
		time.Sleep(10 * time.Millisecond)
	}
	if err := unix.Kill(x.find("sharness-bashd", anyUID(0)), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("the client ended with %v, want status 2", err)
	}
	for deadline := time.Now().Add(5 * time.Second); len(commands(uid)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("left: %v", commands(uid))
		}
	}
	x.wantEvent("its death", again("sharness-bashd"))
	if r := x.run("", "echo next"); r.Stdout != "next\n" {
		t.Errorf("the next command: %+v", r)
	}
	if got := x.ask("--jobs"); got != "" {
		t.Errorf("jobs of the new server: %q", got)
	}
}

func TestJobHasATimeOfItsOwn(t *testing.T) {
	s := newSite(t, func(m *manifest.Manifest) {
		m.Sandbox.Timeout = manifest.Timeout(time.Second)
		m.Sandbox.Background.Timeout = manifest.Timeout(3 * time.Second)
	})
	x := s.serve()
	job := x.job("sleep 1.5; echo later; sleep 1000")
	x.wantEvent("its limit", func(e event.Event) bool {
		return e.Type == event.CommandEnd && fmt.Sprint(e.Command.ID) == job && fmt.Sprint(e.Command.LimitsHit) == "[timeout]"
	})
	x.wantEvent("the key of jobs", func(e event.Event) bool {
		return e.Type == event.LimitHit && fmt.Sprint(e.Command.ID) == job && e.Data["key"] == "sandbox.background.timeout"
	})
	if log := x.ask("--job-log", job); !strings.HasPrefix(log, "later\n") || !strings.Contains(log, "raise sandbox.background.timeout") {
		t.Errorf("log: %q", log)
	}
}
