package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sharness/sharness/agent"
	"github.com/sharness/sharness/event"
)

// traceFiles makes the pipe on which the agent says that it is ready, and the one on which it is told the protected names,
// as the files after those of a.
func (a *process) traceFiles(t *testing.T, c *Config) []*os.File {
	t.Helper()
	ready, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r, names, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ready.Close(); names.Close() })
	a.ready, a.names = ready, names
	c.Trace.UID, c.Trace.GID = testID, testID
	c.Trace.Ready = 3 + 2 + len(c.Sources) + len(c.Sinks) // after control, config, sources and sinks
	c.Trace.Names = c.Trace.Ready + 1
	return []*os.File{w, r}
}

// protect tells the agent the protected names.
func (a *process) protect(t *testing.T, names string) {
	t.Helper()
	if _, err := a.names.WriteString(names); err != nil {
		t.Fatal(err)
	}
	if err := a.names.Close(); err != nil {
		t.Fatal(err)
	}
}

func (a *process) report(t *testing.T) Report {
	t.Helper()
	if err := a.ready.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := json.NewDecoder(a.ready).Decode(&r); err != nil {
		t.Fatalf("the agent did not report: %v: %s", err, a.stderr)
	}
	return r
}

func cgroupDir(t *testing.T) string {
	t.Helper()
	parent := "/sys/fs/cgroup/unified"
	if _, err := os.Stat(parent); err != nil {
		parent = "/sys/fs/cgroup"
	}
	dir, err := os.MkdirTemp(parent, "tracetest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var err error
		for range 1000 {
			if err = os.Remove(dir); err == nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Errorf("remove cgroup: %v", err)
	})
	return dir
}

// inCgroup has a shell of the cgroup run a script.
func inCgroup(t *testing.T, dir, script, arg string) error {
	t.Helper()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	cmd := exec.Command("/bin/sh", "-c", script, arg)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(d.Fd())}
	return cmd.Run()
}

// refused runs a program of the cgroup that is refused an exec.
func refused(t *testing.T, dir, file string) {
	t.Helper()
	if err := inCgroup(t, dir, `exec "$0"`, file); err == nil {
		t.Fatalf("%s was executed", file)
	}
}

func TestAgentTracesAfterItHasGivenUpRoot(t *testing.T) {
	dir := cgroupDir(t)
	file := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, func(c *Config) {
		c.Trace = &Trace{Options: agent.Options{Cgroups: []string{dir}}, Policy: agent.Policy{Scratch: []string{"/tmp"}, Layers: []string{"view"}}}
	})
	if r := a.report(t); !r.Traced || r.Reason != "" {
		t.Fatalf("got %+v, want it to trace", r)
	}
	a.protect(t, "")
	a.sender.Send(event.Event{Type: event.SessionStart})
	a.waitForLine(t)
	status, err := os.ReadFile("/proc/" + strconv.Itoa(a.cmd.Process.Pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2",
		"Uid:\t1900299001\t1900299001\t1900299001\t1900299001", "Groups:\t \n"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("status: want %q in\n%s", want, status)
		}
	}
	refused(t, dir, file)
	a.sender.Send(event.Event{Type: event.SessionEnd})
	if err := a.sender.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.wait(t); err != nil {
		t.Fatalf("%v: %s", err, a.stderr)
	}
	var denied, counted *event.Event
	events := a.events(t)
	for _, e := range events {
		switch e.Type {
		case event.ExecDenied:
			denied = e
		case event.Heartbeat:
			counted = e
		}
	}
	if denied == nil || denied.Door != "exec-workspace" || denied.Target.Asked != file || denied.Process.Comm != "sh" || denied.Cause != "view" {
		t.Errorf("got %+v, want the denial", denied)
	}
	if counted == nil || counted.Data["denied"] != 1.0 || counted.Data["read"] != 1.0 {
		t.Errorf("got %+v, want the tracer's counts", counted)
	}
	if last := events[len(events)-1]; last.Type != event.SessionEnd || last.Cause == "lost" {
		t.Errorf("the last line is %+v, want the supervisor's end", last)
	}
}

func TestAgentThatCannotTraceKeepsTheLog(t *testing.T) {
	a := startAgent(t, func(c *Config) {
		c.Trace = &Trace{Options: agent.Options{Cgroups: []string{"/sys/fs/cgroup/there-is-none"}}}
	})
	if r := a.report(t); r.Traced || !strings.Contains(r.Reason, "there-is-none: no such file") {
		t.Fatalf("got %+v, want the reason", r)
	}
	a.sender.Send(event.Event{Type: event.SessionStart})
	a.protect(t, "")
	if err := a.sender.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.wait(t); err != nil {
		t.Fatalf("%v: %s", err, a.stderr)
	}
	open := 0
	for _, e := range a.events(t) {
		if e.Type == event.LayerOpen && e.Layer == "trace" {
			open++
		}
	}
	if open != 1 {
		t.Errorf("%d events say that the tracer is missing, want 1", open)
	}
}

// A name may hold any byte but NUL; one that was cut off is left out.
func TestAgentKnowsProtectedNamesBeforeItExplains(t *testing.T) {
	dir, work := cgroupDir(t), t.TempDir()
	name := ".git/ho\xffoks"
	for _, p := range []string{name, ".git/plain"} {
		if err := os.MkdirAll(filepath.Join(work, p), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	a := startAgent(t, func(c *Config) {
		c.Trace = &Trace{Options: agent.Options{Cgroups: []string{dir}, Files: true}, Policy: agent.Policy{Workspace: work}}
	})
	if r := a.report(t); !r.Traced {
		t.Fatalf("got %+v, want it to trace", r)
	}
	a.sender.Send(event.Event{Type: event.SessionStart})
	a.waitForLine(t)
	for _, p := range []string{name, ".git/plain"} {
		if err := inCgroup(t, dir, `exec setpriv --reuid=65534 --clear-groups sh -c 'cat >"$0/new"; exit 0' "$0"`, filepath.Join(work, p)); err != nil {
			t.Fatal(err)
		}
	}
	a.protect(t, "file-git "+name+"\x00file-git .git/pl")
	if err := a.sender.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.wait(t); err != nil {
		t.Fatalf("%v: %s", err, a.stderr)
	}
	doors := map[string]string{}
	for _, e := range a.events(t) {
		if e.Type == event.FileDenied {
			doors[e.Target.Asked] = e.Door
		}
	}
	if len(doors) != 2 || doors[filepath.Join(work, ".git/ho")+`\xffoks/new`] != "file-git" || doors[filepath.Join(work, ".git/plain/new")] != "file-config" {
		t.Errorf("got %q, want the protected one through file-git and the other through file-config", doors)
	}
}

func TestTracingAgentEndsOnTerm(t *testing.T) {
	dir := cgroupDir(t)
	a := startAgent(t, func(c *Config) { c.Trace = &Trace{Options: agent.Options{Cgroups: []string{dir}}} })
	a.report(t)
	a.protect(t, "")
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := a.wait(t); err != nil {
		t.Fatalf("%v: %s", err, a.stderr)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
}
