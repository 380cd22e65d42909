package bashserver

import (
	"strings"
	"syscall"
	"testing"

	"github.com/sharness/sharness/bashserver/wire"
)

func TestHintsGoOnceToTheStderrOfACommandThatFails(t *testing.T) {
	s := start(t, Config{}, inProcess, func(s *supervisor) { s.hint, s.hinted = wire.HintGit, 1000 })
	for script, want := range map[string]string{
		"sleep 0.1; exit 3":  "sharness: " + hints[wire.HintGit] + "\n",
		"sleep 0.1; kill $$": "sharness: " + hints[wire.HintGit] + "\n",
		"sleep 0.1":          "",
	} {
		if _, errs, _ := s.output("-c", script); errs != want {
			t.Errorf("%s: got %q, want %q", script, errs, want)
		}
	}
}

func TestLimitsAreSaidInSentencesWithTheirValueAndKey(t *testing.T) {
	s := start(t, Config{Bounds: map[string]string{"memory": "64MiB"}}, inProcess, func(s *supervisor) { s.limits = wire.LimitMemory | wire.LimitSessionPids })
	out, _, _ := s.output("--json", "-c", "exit 1")
	for _, want := range []string{`"limits_hit":["memory","session_pids"]`, `"notes":["a process was killed: the limit of 64MiB`, "can raise sandbox.memory in", "can raise session.pids in"} {
		if !strings.Contains(out, want) {
			t.Errorf("got %s, want %s in it", out, want)
		}
	}
	if _, errs, _ := s.output("-c", "exit 1"); strings.Count(errs, "sharness: ") != 2 || strings.Count(errs, "64MiB") != 1 {
		t.Errorf("stderr: %q, want both sentences once", errs)
	}
}

func TestJobsAreAdvisedOnlyWhereTheyLeadFurther(t *testing.T) {
	for _, c := range []struct {
		cfg              Config
		timeout, session bool
	}{{Config{}, false, false}, {Config{JobsLast: true}, false, false}, {Config{Jobs: 1}, false, true}, {Config{Jobs: 1, JobsLast: true}, true, true}} {
		j := &job{c: &conn{s: &Server{cfg: c.cfg}}}
		for _, l := range limits {
			want := c.timeout && l.bit == wire.LimitTimeout || c.session && strings.HasPrefix(l.key, "session.")
			if got := j.sentence(l); strings.Contains(got, "sharness-bash") != want {
				t.Errorf("jobs %d, lasting %v: %q, want a job advised: %v", c.cfg.Jobs, c.cfg.JobsLast, got, want)
			}
		}
		if got := c.cfg.hint(wire.HintLeft); strings.Contains(got, "--background") != c.timeout {
			t.Errorf("jobs %d, lasting %v: %q", c.cfg.Jobs, c.cfg.JobsLast, got)
		}
		c.cfg.OneNetwork = true
		if got := c.cfg.hint(wire.HintLeft); strings.Contains(got, "sandbox.network") {
			t.Errorf("one network: %q, want no word of it", got)
		}
	}
}

// Agents take every status but 2 as a hook's leave to go on.
func TestRoutedCommandThatFailsAtALimitExitsTwo(t *testing.T) {
	s := start(t, Config{Routes: []string{"/bin/sh"}}, inProcess, func(s *supervisor) { s.limits = wire.LimitMemory })
	for script, want := range map[string]int{"exit 137": 2, "exit 1": 2, "kill -9 $$": 2, "exit 0": 0} {
		c := s.dial(t)
		s.request(t, c, "/bin/sh", script, nullFDs(t)...)
		f, err := wire.ReadFrame(c)
		if err != nil {
			t.Fatal(err)
		}
		if kind, value, err := wire.DecodeExit(f); err != nil || kind != wire.KindStatus || int(value) != want {
			t.Errorf("%s: got kind %d, %d, %v; want status %d", script, kind, value, err, want)
		}
	}
	if _, _, ws := s.output("-c", "exit 137"); ws.ExitStatus() != 137 {
		t.Errorf("not routed: got %v, want 137", ws)
	}
}

// Time that is over is told by SIGTERM, which a program may take for a reason to end well.
func TestCommandOutOfTimeHasNotSucceeded(t *testing.T) {
	s := start(t, Config{Routes: []string{"/bin/sh"}}, inProcess, func(s *supervisor) { s.limits = wire.LimitTimeout })
	c := s.dial(t)
	s.request(t, c, "/bin/sh", "exit 0", nullFDs(t)...)
	f, err := wire.ReadFrame(c)
	if err != nil {
		t.Fatal(err)
	}
	if kind, value, err := wire.DecodeExit(f); err != nil || kind != wire.KindStatus || value != 2 {
		t.Errorf("routed: got kind %d, %d, %v; want status 2", kind, value, err)
	}
	if _, _, ws := s.output("-c", "exit 0"); !ws.Signaled() || ws.Signal() != syscall.SIGTERM {
		t.Errorf("not routed: got %v, want SIGTERM", ws)
	}
	if _, _, ws := s.output("-c", "exit 3"); ws.ExitStatus() != 3 {
		t.Errorf("with a status of its own: got %v", ws)
	}
}

// The supervisor may be busy with what this server told it: whoever waits for it must not be the one who reads from it.
func TestServerReadsOnWhileTheSupervisorDoesNot(t *testing.T) {
	hear := make(chan struct{})
	s := start(t, Config{MaxConnsPerPeer: 1}, inProcess, func(s *supervisor) { s.hear = hear })
	held := s.dial(t)
	const n = 2000 // far more than the socket takes of RecDone
	for range n {
		c := s.dial(t)
		if text := answer(t, c); !strings.Contains(text, "too many connections") {
			t.Fatalf("got %q", text)
		}
		c.Close()
	}
	close(hear)
	eventually(t, "every connection forgotten", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.done) == n })
	held.Close()
	eventually(t, "a place", func() bool { return s.servesAnother(t) })
}
