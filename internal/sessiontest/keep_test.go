package sessiontest

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
)

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
	list, err := filepath.Glob(filepath.Join("/var/lib/sharness/quarantine", id, "*", "*"))
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
