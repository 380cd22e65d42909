package bashserver

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/bashserver/wire"
)

// begin starts the client on a script that says "ready" when it runs, and returns once it has.
func (s *supervisor) begin(cmd *exec.Cmd) *bufio.Reader {
	s.t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); line != "ready\n" {
		s.t.Fatalf("got %q, %v", line, err)
	}
	return r
}

func (s *supervisor) reason(t *testing.T) wire.Reason {
	t.Helper()
	select {
	case r := <-s.killed:
		return r
	case <-time.After(5 * time.Second):
		t.Fatal("the command was not killed")
		return 0
	}
}

func TestSignalsReachTheCommand(t *testing.T) {
	s := start(t, Config{}, inProcess)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1,
		syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT} {
		cmd := s.command("-c", "trap 'echo got; exit 7' "+strconv.Itoa(int(sig))+"; echo ready; while :; do sleep 0.01; done")
		r := s.begin(cmd)
		cmd.Process.Signal(sig)
		line, _ := r.ReadString('\n')
		cmd.Wait()
		if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); line != "got\n" || ws.ExitStatus() != 7 {
			t.Errorf("%v: %q, %v", sig, line, ws)
		}
	}
	cmd := s.command("-c", "echo ready; exec sleep 100")
	s.begin(cmd)
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != syscall.SIGTERM {
		t.Errorf("a command that TERM kills: %v", ws)
	}
}

func TestIgnoredSignalsStayIgnored(t *testing.T) {
	s := start(t, Config{}, inProcess)
	cmd := exec.Command("bash", "-c", "trap '' HUP; exec "+client+" -c 'trap \"exit 7\" HUP; echo ready; read x; exit 3'")
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "SHARNESS_SOCKET="+s.sock)
	in, _ := cmd.StdinPipe()
	s.begin(cmd)
	cmd.Process.Signal(syscall.SIGHUP)
	in.Write([]byte("\n"))
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 3 {
		t.Errorf("status %d: a signal that nohup hides came through", code)
	}
}

func TestKilledClientTakesItsCommandAlong(t *testing.T) {
	s := start(t, Config{}, inProcess)
	cmd := s.command("-c", "echo ready; exec sleep 100")
	s.begin(cmd)
	cmd.Process.Kill()
	if r := s.reason(t); r != wire.ReasonClientGone {
		t.Errorf("killed for reason %d", r)
	}
	eventually(t, "connection forgotten", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.done[1] })
}

// A client whose output nobody reads waits for its reader in the server; it must still be able to go.
func TestKilledClientWithStalledOutputIsForgotten(t *testing.T) {
	s := start(t, Config{}, inProcess)
	cmd := s.command("-c", "echo ready; yes")
	s.begin(cmd)
	time.Sleep(50 * time.Millisecond) // let it fill the pipe; the test holds either way
	cmd.Process.Kill()
	if r := s.reason(t); r != wire.ReasonClientGone {
		t.Errorf("killed for reason %d", r)
	}
	eventually(t, "connection forgotten", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.done[1] })
}

func TestInterruptEndsAClientThatWaitsForItsReader(t *testing.T) {
	s := start(t, Config{}, inProcess)
	cmd := s.command("-c", "echo ready; head -c 70000 /dev/zero") // more than the client's pipe, less than both
	r := s.begin(cmd)
	eventually(t, "command ended", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.jobs) == 0 })
	cmd.Process.Signal(syscall.SIGTERM)
	state, err := cmd.Process.Wait()
	if err != nil || state.ExitCode() != 0 {
		t.Errorf("%v, %v", state, err)
	}
	_ = r
}

// The parent is followed as a process: PDEATHSIG would follow the thread that forked.
func TestClientDoesNotOutliveItsParent(t *testing.T) {
	s := start(t, Config{}, inProcess)
	cmd := exec.Command("bash", "-c", client+" -c 'echo ready; exec sleep 100'; true")
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "SHARNESS_SOCKET="+s.sock)
	s.begin(cmd)
	cmd.Process.Kill()
	if r := s.reason(t); r != wire.ReasonClientGone {
		t.Errorf("killed for reason %d", r)
	}
}

func TestClientOutlivesTheThreadThatStartedIt(t *testing.T) {
	s := start(t, Config{}, inProcess)
	script := filepath.Join(s.dir, "spawn.py")
	os.WriteFile(script, []byte(`
import subprocess, sys, threading
p = []
t = threading.Thread(target=lambda: p.append(subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)))
t.start(); t.join()
p[0].stdin.write(b"go\n"); p[0].stdin.close()
sys.exit(p[0].wait() & 255)
`), 0o644)
	cmd := exec.Command("python3", script, client, "-c", "read x; sleep 0.2; echo $x")
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "SHARNESS_SOCKET="+s.sock)
	if out, errs, ws := s.finish(cmd); out != "go\n" || ws != 0 {
		t.Errorf("got %q, %q, %v", out, errs, ws)
	}
}

func TestClientWithoutServerExitsTwo(t *testing.T) {
	cmd := exec.Command(client, "-c", "true")
	cmd.Env = []string{"SHARNESS_SOCKET=/nonexistent/sock"}
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 || string(out) != "sharness-bash: cannot reach the bash-server at /nonexistent/sock: no such file or directory; no session has its socket there: set SHARNESS_SOCKET to that of one that runs\n" {
		t.Errorf("got %q, %v", out, cmd.ProcessState)
	}
	dead := filepath.Join(t.TempDir(), "sock")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: dead}), unix.Close(fd)); err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(client, "-c", "true")
	cmd.Env = []string{"SHARNESS_SOCKET=" + dead}
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 2 || string(out) != "sharness-bash: cannot reach the bash-server at "+dead+": connection refused; its session has ended: set SHARNESS_SOCKET to the socket of one that runs\n" {
		t.Errorf("nobody listens: %q, %v", out, cmd.ProcessState)
	}
	cmd = exec.Command(client, "-c", "true")
	cmd.Env = []string{"SHARNESS_SOCKET=/" + strings.Repeat("x", 200)}
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 2 || strings.Count(string(out), "\n") != 1 {
		t.Errorf("long path: %q, %v", out, cmd.ProcessState)
	}
}

func TestClientWhoseServerDiesExitsTwo(t *testing.T) {
	s := start(t, Config{}, ownProcess)
	cmd := s.command("-c", "echo ready; exec sleep 100")
	var errs strings.Builder
	cmd.Stderr = &errs
	s.begin(cmd)
	s.server.Process.Kill()
	cmd.Wait()
	if cmd.ProcessState.ExitCode() != 2 || strings.Count(errs.String(), "\n") != 1 {
		t.Errorf("got %q, %v", errs.String(), cmd.ProcessState)
	}
	s.mu.Lock()
	for _, j := range s.jobs {
		syscall.Kill(-j.Process.Pid, syscall.SIGKILL)
	}
	s.mu.Unlock()
}

func TestRefusedCommandExitsTwoWithTheReason(t *testing.T) {
	for reason, text := range map[wire.Reason]string{wire.ReasonBusy: "busy", wire.ReasonCwd: "working directory",
		wire.ReasonInternal: "sandbox", wire.ReasonShutdown: "ending"} {
		s := start(t, Config{}, inProcess, func(s *supervisor) { s.refuse = reason })
		if _, errs, ws := s.output("-c", "true"); ws.ExitStatus() != 2 || !strings.Contains(errs, text) {
			t.Errorf("reason %d: %q, %v", reason, errs, ws)
		}
	}
}

// Who asked for an object reads standard output, also of a command that does not run.
func TestRefusalIsAnObjectForAClientThatWantsOne(t *testing.T) {
	object := func(out string) (r struct {
		ExitCode int `json:"exit_code"`
		Stdout   string
		Notes    []string
	}) {
		t.Helper()
		if err := json.Unmarshal([]byte(out), &r); err != nil || strings.Count(out, "\n") != 1 {
			t.Errorf("%q: %v", out, err)
		}
		return r
	}
	refuses := start(t, Config{}, inProcess, func(s *supervisor) { s.refuse = wire.ReasonBusy })
	runs := start(t, Config{}, inProcess)
	outside := runs.command("--json", "-c", "true")
	outside.Dir = "/"
	for name, c := range map[string]struct {
		s      *supervisor
		cmd    *exec.Cmd
		status int
		note   string
	}{
		"by the supervisor":    {refuses, refuses.command("--json", "-c", "true"), 2, "busy"},
		"a job":                {refuses, refuses.command("--json", "--background", "-c", "true"), 2, "no command may run in the background"},
		"working directory":    {runs, outside, 2, "outside the workspace"},
		"usage":                {runs, runs.command("--json"), 2, "usage"},
		"no such job":          {runs, runs.command("--json", "--job-log", "77"), 1, "no job 77"},
		"no such job, to kill": {runs, runs.command("--json", "--kill", "77"), 1, "no job 77"},
	} {
		out, errs, ws := c.s.finish(c.cmd)
		if r := object(out); r.ExitCode != c.status || ws.ExitStatus() != c.status || r.Stdout != "" || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], c.note) || !strings.Contains(errs, c.note) {
			t.Errorf("%s: got %q, %q, %v", name, out, errs, ws)
		}
	}
	if out, _, ws := refuses.output("-c", "true"); out != "" || ws.ExitStatus() != 2 {
		t.Errorf("without --json: %q, %v", out, ws)
	}
}

func TestStoppedClientStopsItsCommandAndGoesOn(t *testing.T) {
	s := start(t, Config{}, inProcess)
	cmd := s.command("-c", "echo ready; read x; echo got $x")
	// In a group of its own, whose parent is this process: an orphaned group, as this one is when whoever started the tests has
	// ended, nobody could continue, and SIGTSTP stops nobody in it (setpgid(2)).
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, _ := cmd.StdinPipe()
	r := s.begin(cmd)
	cmd.Process.Signal(syscall.SIGTSTP)
	var ws unix.WaitStatus
	if _, err := unix.Wait4(cmd.Process.Pid, &ws, unix.WUNTRACED, nil); err != nil || !ws.Stopped() || ws.StopSignal() != unix.SIGTSTP {
		t.Fatalf("not stopped: %v, %v", ws, err)
	}
	in.Write([]byte("later\n"))
	cmd.Process.Signal(syscall.SIGCONT)
	if line, _ := r.ReadString('\n'); line != "got later\n" {
		t.Errorf("got %q", line)
	}
}
