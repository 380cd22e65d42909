package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/internal/confine"
	"github.com/sharness/sharness/internal/kerneltest"
	"github.com/sharness/sharness/launcher/filter"
)

const testID = 1900299001

func build(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sharness-agent-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "sharness-agent")
	cmd := exec.Command("go", "build", "-o", bin, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	return bin
}

// process is a started sharness-agent, as the supervisor starts it.
type process struct {
	cmd    *exec.Cmd
	sender *sink.Sender
	log    string
	stderr *bytes.Buffer
	ready  *os.File // of a tracing one
	names  *os.File
}

func startAgent(t *testing.T, change func(*Config)) *process {
	t.Helper()
	kerneltest.RequireRoot(t)
	a := &process{log: filepath.Join(t.TempDir(), "log"), stderr: &bytes.Buffer{}}
	send, receive, err := sink.Pair()
	if err != nil {
		t.Fatal(err)
	}
	a.sender = sink.NewSender(send, "supervisor")
	log, err := sink.Open(sink.Spec{Kind: sink.File, Path: a.log}, nil)
	if err != nil {
		t.Fatal(err)
	}
	arranged, files, err := sink.Arrange("test", []sink.Feed{{Name: "supervisor", File: receive, Trusted: true}}, []sink.Opened{log}, nil)
	if err != nil {
		t.Fatal(err)
	}
	progs, err := filter.Compile(filter.Options{Kind: filter.Helper})
	if err != nil {
		t.Fatal(err)
	}
	abi, err := confine.LandlockABI()
	if err != nil {
		t.Fatal(err)
	}
	abi = min(abi, confine.MaxLandlockABI)
	c := Config{Config: arranged, Confine: confine.Drop{
		Landlock: confine.Landlock{ABI: abi, FS: true, Net: abi >= 4, Scoped: abi >= 6}, Seccomp: progs}}
	if change != nil {
		change(&c)
	}
	if c.Trace != nil {
		files = append(files, a.traceFiles(t, &c)...)
	}
	files[2] = memfd(t, c)
	a.cmd = exec.Command(build(t))
	a.cmd.ExtraFiles = files
	a.cmd.Env = []string{}
	a.cmd.Stderr = a.stderr
	if c.Trace == nil {
		a.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testID, Gid: testID, Groups: []uint32{}}}
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.cmd.Process.Kill(); _ = a.cmd.Wait() })
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
	return a
}

func memfd(t *testing.T, c Config) *os.File {
	t.Helper()
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.MemfdCreate("config", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "config")
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	return f
}

func (a *process) wait(t *testing.T) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- a.cmd.Wait() }()
	select {
	case err := <-done:
		return err
	case <-time.After(20 * time.Second):
		t.Fatalf("the agent did not end: %s", a.stderr)
		return nil
	}
}

func (a *process) events(t *testing.T) []*event.Event {
	t.Helper()
	b, err := os.ReadFile(a.log)
	if err != nil {
		t.Fatal(err)
	}
	var out []*event.Event
	for line := range bytes.Lines(b) {
		e, err := event.Parse(bytes.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// waitForLine waits until the agent has written something: it is confined before it reads its first event.
func (a *process) waitForLine(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if st, err := os.Stat(a.log); err == nil && st.Size() > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing was written: %s", a.stderr)
		}
	}
}

func TestAgentWritesWithoutAnyPrivilege(t *testing.T) {
	a := startAgent(t, nil)
	a.sender.Send(event.Event{Type: event.SessionStart})
	a.sender.Send(event.Event{Type: event.ExecDenied, Door: "log-inject", Process: &event.Process{PID: 1, Comm: "x\x1b[2J\n{}"}})
	a.waitForLine(t)
	status, err := os.ReadFile("/proc/" + strconv.Itoa(a.cmd.Process.Pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "Uid:\t1900299001\t1900299001\t1900299001\t1900299001", "Groups:\t \n"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("status: want %q in\n%s", want, status)
		}
	}
	if err := a.sender.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.wait(t); err != nil {
		t.Fatalf("%v: %s", err, a.stderr)
	}
	events := a.events(t)
	if len(events) != 3 || events[1].Process.Comm != "x\x1b[2J\n{}" || events[2].Type != event.SessionEnd {
		t.Errorf("got %d events, want start, denial and end: %+v", len(events), events)
	}
}

func TestAgentEndsTheLogOnTerm(t *testing.T) {
	a := startAgent(t, nil)
	a.sender.Send(event.Event{Type: event.SessionStart})
	a.waitForLine(t)
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := a.wait(t); err != nil {
		t.Fatalf("%v: %s", err, a.stderr)
	}
	if events := a.events(t); len(events) != 2 || events[1].Cause != "lost" {
		t.Errorf("got %+v, want the end after the start", events)
	}
}

func TestAgentDoesNotRunUnconfined(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"without landlock":  func(c *Config) { c.Confine.Landlock = confine.Landlock{} },
		"without seccomp":   func(c *Config) { c.Confine.Seccomp = nil },
		"with a broken one": func(c *Config) { c.Confine.Seccomp = [][]byte{make([]byte, 8)} },
	} {
		t.Run(name, func(t *testing.T) {
			a := startAgent(t, change)
			a.sender.Send(event.Event{Type: event.SessionStart})
			if err := a.wait(t); a.cmd.ProcessState.ExitCode() != 125 {
				t.Errorf("got %v, want exit 125", err)
			}
			if st, err := os.Stat(a.log); err != nil || st.Size() != 0 {
				t.Errorf("it wrote %v bytes, want none", st.Size())
			}
			if !strings.HasPrefix(a.stderr.String(), "sharness-agent: ") || strings.Count(a.stderr.String(), "\n") != 1 {
				t.Errorf("stderr: got %q, want one line", a.stderr)
			}
		})
	}
}
