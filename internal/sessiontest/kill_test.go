package sessiontest

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/kerneltest"
)

func TestNothingOfASessionLivesTwoSecondsAfterItsSupervisor(t *testing.T) {
	var times []time.Duration
	for range rounds {
		s, x, id, uid := underLoad(t)
		anyMoment()
		kill(t, x.cmd.Process.Pid)
		times = append(times, s.wantGone(id, uid, 2*time.Second))
		x.wait(time.Second)
		out, err := exec.Command(program(t, "sharness"), "gc").CombinedOutput()
		if err != nil {
			t.Errorf("sharness gc: %v\n%s", err, out)
		}
		s.wantNoTrace(id, uid)
		wantUsers(t, s.workspace)
	}
	t.Logf("gone after %v", times)
}

// TestNothingIsLeftOfASupervisorThatDiesInItsStartOrItsEnd does not know the session's name: it may have none yet.
func TestNothingIsLeftOfASupervisorThatDiesInItsStartOrItsEnd(t *testing.T) {
	s := newSite(t, nil)
	s.user("git init -q .", "")
	first, _ := s.enforce("echo begun")
	_, uid := first.id()
	for i := range 4 * rounds {
		x := s.sharness("enforce", "--", "bash", "-c", "echo up >> up; /run/sharness/bin/sharness-bash -c 'sleep 5'")
		ups := s.lines("up")
		x.start()
		if i%2 == 1 {
			x.wantMore("up", ups)
			_ = unix.Kill(x.cmd.Process.Pid, unix.SIGTERM)
			time.Sleep(rand.N(60 * time.Millisecond))
		} else {
			time.Sleep(rand.N(250 * time.Millisecond))
		}
		kill(t, x.cmd.Process.Pid)
		s.wantGone("", uid, 2*time.Second)
		x.wait(time.Second)
		if out, err := exec.Command(program(t, "sharness"), "gc").CombinedOutput(); err != nil {
			t.Errorf("sharness gc: %v\n%s", err, out)
		}
		for _, pattern := range []string{"/run/sharness/", "/var/lib/sharness/quarantine/", "/sys/fs/cgroup/*/sharness/", "/sys/fs/cgroup/sharness/"} {
			if left, _ := filepath.Glob(pattern + name + "-*"); len(left) > 0 {
				t.Errorf("left after gc: %v", left)
			}
		}
		wantUsers(t, s.workspace)
	}
}

func TestNextStartRemovesWhatADeadSupervisorLeft(t *testing.T) {
	s, x, id, uid := underLoad(t)
	kill(t, x.cmd.Process.Pid)
	s.wantGone(id, uid, 2*time.Second)
	x.wait(time.Second)
	if len(groups(t, id)) == 0 {
		t.Errorf("no cgroup of %s is left: nothing to test", id)
	}
	s.edit = nil
	next, out := s.enforce("echo next")
	if out != "next\n" {
		t.Errorf("the next session in the same workspace: %q\n%s", out, next.stderr)
	}
	s.wantNoTrace(id, uid)
}

func TestSessionEndsWithPidOneOfItsOrchestrator(t *testing.T) {
	var times []time.Duration
	for range rounds {
		s, x, id, uid := underLoad(t)
		pid := x.find("sharness-init", func(u int) bool { return u == uid })
		anyMoment()
		kill(t, pid)
		begin := time.Now()
		x.wait(5 * time.Second)
		times = append(times, time.Since(begin))
		if code := x.cmd.ProcessState.ExitCode(); code != 137 {
			t.Errorf("exit %d, want 137\n%s", code, x.stderr)
		}
		s.wantNoTrace(id, uid)
	}
	t.Logf("ended after %v", times)
}

// victims are the processes whose death a session survives.
var victims = []struct {
	name  string
	comm  string
	uid   func(agent int) func(uid int) bool
	event func(event.Event) bool
	check func(*session)
	more  int // how many more die: they live for a moment, and one may be at its end already, or wait for a command
}{
	{"bash-server", "sharness-bashd", anyUID, again("sharness-bashd"), nil, 0},
	{"relay", "sharness-relay", anyUID, again("sharness-relay"), nil, 0},
	{"watcher", "sharness-watch", anyUID, again("sharness-watch"), (*session).wantTakenAway, 0},
	{"sink", "sharness-agent", anyUID, func(e event.Event) bool { return e.Type == event.EventsLost && e.Layer == "sharness-agent" }, (*session).wantOrder, 0},
	{"pid 1 of a command", "sharness-box", slotUID, func(e event.Event) bool {
		return e.Type == event.CommandEnd && e.Command != nil && e.Command.Signal == 9
	}, nil, 20},
	{"maker of sandboxes", "sharness-box", func(int) func(int) bool { return func(u int) bool { return u == 0 } }, again("sharness-box"), nil, 0},
	{"client", "sharness-bash", func(agent int) func(int) bool { return func(u int) bool { return u == agent } }, nil, nil, 4},
}

func anyUID(int) func(int) bool { return func(int) bool { return true } }

func slotUID(int) func(int) bool {
	return func(u int) bool { return u >= firstSlot && u < firstHelper }
}

func again(name string) func(event.Event) bool {
	return func(e event.Event) bool { return e.Layer == name && strings.Contains(e.Detail, "started again") }
}

func TestSessionGoesOnWhenAnyOtherProcessOfItIsKilled(t *testing.T) {
	for _, v := range victims {
		t.Run(v.name, func(t *testing.T) {
			var times []time.Duration
			for range rounds {
				s, x, id, uid := underLoad(t)
				pid := x.find(v.comm, v.uid(uid))
				anyMoment()
				if v.comm == "sharness-agent" {
					x.tearLog(pid)
				}
				kill(t, pid)
				for range v.more {
					kill(t, x.find(v.comm, v.uid(uid)))
				}
				done, called := x.lines("done"), x.lines("called")
				times = append(times, x.wantMore("done", done))
				x.wantMore("called", called)
				if v.event != nil {
					x.wantEvent("the death", v.event)
				}
				if v.check != nil {
					v.check(x)
				}
				x.stop()
				if code := x.cmd.ProcessState.ExitCode(); code != 143 {
					t.Errorf("exit %d, want 143: the orchestrator's end by SIGTERM\n%s", code, x.stderr)
				}
				discardKept(id)
				s.wantNoTrace(id, uid)
				if v.comm == "sharness-agent" {
					x.wantEvent("session.end", func(e event.Event) bool { return e.Type == event.SessionEnd })
				}
			}
			t.Logf("the next command was done after %v", times)
		})
	}
}

const tornLine = `{"schema":1,`

// tearLog leaves the log as agent does when it is killed in a write that crosses a page of the file: most kills miss that.
func (x *session) tearLog(agent int) {
	x.t.Helper()
	x.torn = 2 // and perhaps one that agent was at
	if err := unix.Kill(agent, unix.SIGSTOP); err != nil {
		x.t.Fatal(err)
	}
	f, err := os.OpenFile(x.log, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		x.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(tornLine); err != nil {
		x.t.Fatal(err)
	}
}

// wantTakenAway checks that a protected name which appears is taken away, though the watcher has died meanwhile.
func (x *session) wantTakenAway() {
	x.t.Helper()
	path := filepath.Join(x.workspace, ".envrc")
	x.user("echo evil > .envrc", "")
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Lstat(path); os.IsNotExist(err) {
			return
		}
		if time.Now().After(deadline) {
			x.t.Errorf(".envrc is still there")
			return
		}
	}
}

// wantOrder checks that numbers of the log only rise, over a restart too, and that no line stands in one that was torn.
func (x *session) wantOrder() {
	x.t.Helper()
	if data, err := os.ReadFile(x.log); err != nil || bytes.Count(data, []byte("\n"+tornLine+"\n")) != 1 {
		x.t.Errorf("the line that was torn did not end before the next: %v", err)
	}
	last := uint64(0)
	for _, e := range x.events() {
		if e.Seq <= last {
			x.t.Errorf("event %d after event %d", e.Seq, last)
		}
		last = e.Seq
	}
}

// An orchestrator that ignores signals ends all the same, and what it left is looked at: whoever sent SIGTERM would send
// SIGKILL to the supervisor next.
func TestOrchestratorThatIgnoresSignalsEndsAndIsSweptAfter(t *testing.T) {
	s := newSite(t, nil)
	x := s.sharness("enforce", "--", "bash", "-c", `trap "" TERM INT HUP QUIT
sharness-bash -c 'git init -q r && git -C r config core.fsmonitor "touch /tmp/x" && touch ready'
while :; do sharness-bash -c 'sleep 1'; done`)
	x.start()
	for deadline := time.Now().Add(kerneltest.Within(t, 10*time.Second)); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(s.workspace, "ready")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the orchestrator does not begin\n%s", x.stderr)
		}
	}
	id, uid := x.id()
	x.stop()
	discardKept(id)
	s.wantNoTrace(id, uid)
	if code := x.cmd.ProcessState.ExitCode(); code != 137 || !strings.Contains(x.stderr.String(), "did not end within") {
		t.Errorf("exit %d, want 137 and a word about it\n%s", code, x.stderr)
	}
	config, err := os.ReadFile(filepath.Join(s.workspace, "r/.git/config"))
	if err != nil || strings.Contains(string(config), "fsmonitor") {
		t.Errorf("after the session the configuration is %q, %v", config, err)
	}
}
