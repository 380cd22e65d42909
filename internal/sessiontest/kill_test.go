package sessiontest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/manifest"
)

// rounds is how often each process is killed, each time in a session of its own and at another moment.
const rounds = 5

// busy is an orchestrator that always has commands on their way and calls its endpoint; it counts what came back.
const busy = `n=0; c=0; while :; do
for i in 1 2 3; do /run/sharness/bin/sharness-bash -c 'for i in 1 2 3 4 5 6 7 8; do echo $i > f$i; done; sleep 0.0'$i && echo done >> done & done; wait
if exec 3<>/dev/tcp/127.0.0.1/$PORT && read -r -t 2 x <&3; then echo "$x" >> called; fi 2>/dev/null; exec 3>&-
done`

// underLoad starts a busy session and waits until its load is on.
func underLoad(t *testing.T) (s *site, x *session, id string, uid int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, "hello")
			c.Close()
		}
	}()
	port := listener.Addr().(*net.TCPAddr).Port
	s = newSite(t, func(m *manifest.Manifest) {
		m.Connect = []manifest.Endpoint{{Name: "127.0.0.1", Port: uint16(port)}}
	})
	s.user("git init -q .", "")
	x = s.sharness("enforce", "--", "bash", "-c", "PORT="+strconv.Itoa(port)+"; "+busy)
	x.start()
	id, uid = x.id()
	x.wantMore("done", 0)
	x.wantMore("called", 0)
	return s, x, id, uid
}

// lines counts those of a file of the workspace.
func (s *site) lines(rel string) int {
	data, _ := os.ReadFile(filepath.Join(s.workspace, rel))
	return strings.Count(string(data), "\n")
}

// wantMore waits until a file of the workspace has more lines than it had.
func (x *session) wantMore(rel string, than int) time.Duration {
	x.t.Helper()
	begin := time.Now()
	for x.lines(rel) <= than {
		select {
		case err := <-x.ended:
			x.t.Fatalf("the session ended: %v\n%s%s", err, x.stderr, lastOf(x.events()))
		case <-time.After(10 * time.Millisecond):
		}
		if time.Since(begin) > 10*time.Second {
			x.t.Fatalf("nothing new in %s after 10 s\n%s%s", rel, x.stderr, lastOf(x.events()))
		}
	}
	return time.Since(begin)
}

// find returns the pid of a child of the supervisor, or below it, by its name and a test of its uid.
func (x *session) find(comm string, fits func(uid int) bool) int {
	x.t.Helper()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		statuses, _ := filepath.Glob("/proc/[0-9]*/status")
		rand.Shuffle(len(statuses), func(i, j int) { statuses[i], statuses[j] = statuses[j], statuses[i] })
		for _, path := range statuses {
			pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
			name, uid, parent := status(pid)
			if name == comm && fits(uid) && x.under(parent) {
				return pid
			}
		}
	}
	x.t.Fatalf("no process %s of this session", comm)
	return 0
}

func status(pid int) (comm string, uid, parent int) {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(data)) {
		fmt.Sscanf(line, "Name: %s", &comm)
		fmt.Sscanf(line, "Uid: %d", &uid)
		fmt.Sscanf(line, "PPid: %d", &parent)
	}
	return comm, uid, parent
}

// under says whether a process is the supervisor or has it among its ancestors.
func (x *session) under(pid int) bool {
	for range 8 {
		if pid == x.cmd.Process.Pid {
			return true
		}
		if pid <= 1 {
			return false
		}
		_, _, pid = status(pid)
	}
	return false
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
		t.Fatalf("kill %d: %v", pid, err)
	}
}

func anyMoment() { time.Sleep(rand.N(300 * time.Millisecond)) }

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
}{
	{"bash-server", "sharness-bashd", anyUID, again("sharness-bashd"), nil},
	{"relay", "sharness-relay", anyUID, again("sharness-relay"), nil},
	{"watcher", "sharness-watch", anyUID, again("sharness-watch"), (*session).wantTakenAway},
	{"sink", "sharness-agent", anyUID, func(e event.Event) bool { return e.Type == event.EventsLost && e.Layer == "sharness-agent" }, (*session).wantOrder},
	{"pid 1 of a command", "sharness-init", slotUID, func(e event.Event) bool {
		return e.Type == event.CommandEnd && e.Command != nil && e.Command.Signal == 9
	}, nil},
	{"client", "sharness-bash", func(agent int) func(int) bool { return func(u int) bool { return u == agent } }, nil, nil},
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
				if v.comm == "sharness-init" || v.comm == "sharness-bash" {
					for range 5 { // they live for a moment: one may be at its end already
						kill(t, x.find(v.comm, v.uid(uid)))
					}
				} else {
					kill(t, pid)
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

func TestClientOfADeadServerExitsTwoAndTheNextOneWaits(t *testing.T) {
	s := newSite(t, nil)
	x := s.serve()
	_, uid := x.id()
	for range 3 {
		pid := x.find("sharness-bashd", anyUID(0))
		cmd := x.client(t.Context(), "", "-c", "echo begun >> begun; sleep 100")
		n := x.lines("begun")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		x.wantMore("begun", n)
		kill(t, pid)
		begin := time.Now()
		if cmd.Wait(); cmd.ProcessState.ExitCode() != 2 {
			t.Errorf("client of the dead server: %v, want exit 2", cmd.ProcessState)
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("the client of the dead server ended after %s", took)
		}
		// Whoever comes while no server is there has to wait, not to fail: it cannot tell this from having no server at all.
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if out, err := x.client(t.Context(), "", "-c", "echo served").CombinedOutput(); err != nil || string(out) != "served\n" {
					t.Errorf("client %s after the server's death: %v, %q", time.Since(begin), err, out)
				}
			})
			time.Sleep(time.Millisecond)
		}
		all.Wait()
		for time.Since(begin) < 2*time.Second && len(commands(uid)) > 0 {
			time.Sleep(5 * time.Millisecond)
		}
		if left := commands(uid); len(left) > 0 {
			t.Errorf("its command is still there: %v", left)
		}
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

// wantOrder checks that numbers of the log only rise, over a restart too.
func (x *session) wantOrder() {
	x.t.Helper()
	last := uint64(0)
	for _, e := range x.events() {
		if e.Seq <= last {
			x.t.Errorf("event %d after event %d", e.Seq, last)
		}
		last = e.Seq
	}
}

// TestWatcherTakesAwayWhatAppearedWhileItWasDead stops it first, so that the name is there before its death.
func TestWatcherTakesAwayWhatAppearedWhileItWasDead(t *testing.T) {
	s := newSite(t, nil)
	s.user("git init -q . && git init -q sub", "")
	x := s.serve()
	id, uid := x.id()
	pid := x.find("sharness-watch", anyUID(0))
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	appeared := []string{".envrc", ".git/commondir", "sub/.git/config.worktree", ".vscode"}
	r := x.run("", "echo evil > .envrc; echo evil > .git/commondir; echo evil > sub/.git/config.worktree; mkdir .vscode; ls -d .envrc .git/commondir sub/.git/config.worktree .vscode")
	if got := strings.Fields(r.Stdout); len(got) != len(appeared) {
		t.Errorf("made %q %q: nothing to test", r.Stdout, r.Stderr)
	}
	kill(t, pid)
	for _, rel := range appeared {
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if _, err := os.Lstat(filepath.Join(s.workspace, rel)); os.IsNotExist(err) {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("%s is still there", rel)
				break
			}
		}
	}
	x.wantEvent("layer.open", func(e event.Event) bool { return e.Type == event.LayerOpen && e.Layer == "sharness-watch" })
	if r := x.run("", "echo evil > .git/config || echo protected"); !strings.Contains(r.Stdout, "protected") {
		t.Errorf("the set of protected paths has shrunk: %+v", r)
	}
	x.stop()
	kept := filepath.Join("/var/lib/sharness/quarantine", id)
	list, err := os.ReadDir(kept)
	if err != nil || len(list) != len(appeared) {
		t.Errorf("quarantine: %v, %v; want %d", list, err, len(appeared))
	}
	discardKept(id)
	s.wantNoTrace(id, uid)
}

// discardKept removes what was taken away in a session and kept for the user.
func discardKept(id string) {
	kept := filepath.Join("/var/lib/sharness/quarantine", id)
	os.RemoveAll(kept)
	os.Remove(filepath.Dir(kept))
}

// TestSessionEndsWhenItsWatcherCannotBeKept: names that appear would stay, so nothing may go on.
func TestSessionEndsWhenItsWatcherCannotBeKept(t *testing.T) {
	s := newSite(t, nil)
	x := s.sharness("enforce", "--", "bash", "-c", "echo up >> up; while :; do read -t 1 < <(read -t 1); done")
	x.start()
	x.wantMore("up", 0)
	id, uid := x.id()
	deaths := x.killEach("sharness-watch")
	x.wait(5 * time.Second)
	if code := x.cmd.ProcessState.ExitCode(); code != 125 || !strings.Contains(x.stderr.String(), "sharness-watch") {
		t.Errorf("exit %d after %d deaths of the watcher, want 125 and why\n%s", code, deaths, x.stderr)
	}
	s.wantNoTrace(id, uid)
}

// killEach kills a helper each time it is started, until it is not, and returns how often that was.
func (x *session) killEach(comm string) (deaths int) {
	x.t.Helper()
	last := 0
	for quiet := time.Now(); time.Since(quiet) < time.Second; time.Sleep(10 * time.Millisecond) {
		statuses, _ := filepath.Glob("/proc/[0-9]*/status")
		for _, path := range statuses {
			pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
			if name, _, parent := status(pid); name == comm && parent == x.cmd.Process.Pid && pid != last {
				kill(x.t, pid)
				last, quiet = pid, time.Now()
				deaths++
			}
		}
		if deaths > 20 {
			x.t.Fatalf("%s is started again and again", comm)
		}
	}
	return deaths
}

func TestServerThatCannotBeKeptRefusesAtOnce(t *testing.T) {
	s := newSite(t, nil)
	x := s.serve()
	deaths := x.killEach("sharness-bashd")
	begin := time.Now()
	cmd := x.client(t.Context(), "", "-c", "echo served")
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 2 || time.Since(begin) > time.Second {
		t.Errorf("client after %d deaths of the server: %v after %s, %q; want exit 2 at once", deaths, err, time.Since(begin), out)
	}
	x.stop()
	if !strings.Contains(x.stderr.String(), "sharness-bashd") || !strings.Contains(x.stderr.String(), "not started again") {
		t.Errorf("said %q, want why there is no server", x.stderr)
	}
}

func TestSessionWithoutItsLogGoesOnAndSaysSo(t *testing.T) {
	s := newSite(t, nil)
	x := s.serve()
	id, uid := x.id()
	deaths := x.killEach("sharness-agent")
	if r := x.run("", "echo well"); r.Stdout != "well\n" {
		t.Errorf("command after %d deaths of the sink: %+v", deaths, r)
	}
	x.stop()
	if !strings.Contains(x.stderr.String(), "events are no longer written") {
		t.Errorf("said %q, want that events are no longer written", x.stderr)
	}
	s.wantNoTrace(id, uid)
}
