package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/kerneltest"
)

// TestLearn runs testdata/learn*.txtar: an agent is learned, and then enforced with what was learned. Commands beside those
// of TestEnforce:
//
//	same FILE FILE    two manifests that differ in their learned: header alone, and in that in nothing but the time
//	undenied LOG      no denial but those of the self-probe
func TestLearn(t *testing.T) {
	kerneltest.RequireRoot(t)
	files, err := filepath.Glob("testdata/learn*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	testscript.Run(t, testscript.Params{
		Files: files, WorkdirRoot: sessionRoot(t), RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", filepath.Dir(builtSharness(t))+":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
			e.Setenv("SUDO_UID", "")
			name := "test-" + strings.TrimPrefix(filepath.Base(e.WorkDir), "script-")
			e.Setenv("NAME", name)
			e.Defer(func() { forgetLearned(t, name) })
			return os.Chmod(e.WorkDir, 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"manifest": scriptManifest, "exit": scriptExit, "refused": scriptRefused, "same": scriptSame, "undenied": scriptUndenied,
		},
	})
}

// forgetLearned is forget with the state folder that a manifest of learn has.
func forgetLearned(t *testing.T, name string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join("/var/lib/sharness", name)); err != nil {
		t.Error(err)
	}
	forget(t, name)
}

var learnedAt = regexp.MustCompile(`(?m)^  at: .*\n`)

func scriptSame(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: same FILE FILE")
	}
	a, b := learnedAt.ReplaceAllString(ts.ReadFile(args[0]), ""), learnedAt.ReplaceAllString(ts.ReadFile(args[1]), "")
	if a != b {
		ts.Fatalf("they differ:\n%s\nand\n%s", onlyIn(a, b), onlyIn(b, a))
	}
}

func scriptUndenied(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: undenied LOG")
	}
	started := false
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		e, err := event.Parse([]byte(strings.TrimSuffix(line, "\n")))
		ts.Check(err)
		started = started || e.Type == event.SessionStart
		if e.Type.Denial() && e.Phase != "probe" {
			ts.Fatalf("denied: %s", line)
		}
	}
	if !started {
		ts.Fatalf("%s tells of no session", args[0])
	}
}

// floodScript runs more than the ring holds while nobody reads it.
const floodScript = `#!/bin/bash
echo ready
read -r go
for ((i = 0; i < 3000; i++)); do /usr/bin/true; done
echo flooded
read -r go
`

func TestLearnThatLostRecordsIsIncompleteAndNotEnforced(t *testing.T) {
	kerneltest.RequireRoot(t)
	dir := sessionRoot(t)
	sharness, name := builtSharness(t), "test-learn-lost"
	t.Cleanup(func() { forgetLearned(t, name) })
	agent, ws, file := filepath.Join(dir, "bin", "flood"), filepath.Join(dir, "ws"), filepath.Join(dir, name+".yaml")
	if err := errors.Join(os.Mkdir(filepath.Dir(agent), 0o755), os.Mkdir(ws, 0o755), os.Chown(ws, 4244, 4244), os.WriteFile(agent, []byte(floodScript), 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(sharness, "learn", "-m", file, "--workspace", ws, "--events", "-", "--yes", "--", agent)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	var said bytes.Buffer
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewReader(out)
	expect := func(want string) {
		t.Helper()
		if line, err := lines.ReadString('\n'); err != nil || line != want+"\n" {
			t.Fatalf("the agent said %q, %v, want %q\n%s", line, err, want, said.String())
		}
	}
	expect("ready")
	tracer := childNamed(t, cmd.Process.Pid, "sharness-agent")
	if err := syscall.Kill(tracer, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(tracer, syscall.SIGCONT) }) // a zombie or gone, unless the test failed before
	say := func() {
		t.Helper()
		if _, err := io.WriteString(in, "go\n"); err != nil {
			t.Fatal(err)
		}
	}
	say()
	expect("flooded")
	if err := syscall.Kill(tracer, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	say()
	err = cmd.Wait()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 125 || !strings.Contains(said.String(), "records were lost") {
		t.Fatalf("got %v, want 125 and that records were lost:\n%s", err, said.String())
	}
	if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v: approved although it is incomplete", file, err)
	}
	proposal, err := os.ReadFile(file + ".proposed")
	if err != nil || !strings.Contains(string(proposal), "\n  complete: false\n") {
		t.Errorf("proposal: %v, want complete: false in\n%s", err, proposal)
	}
	wantRefused(t, "incomplete", sharness, "manifest", "approve", "-m", file)
	if err := os.Rename(file+".proposed", file); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, "incomplete", sharness, "enforce", "-m", file, "--workspace", ws, "--", agent)
}

func wantRefused(t *testing.T, why string, argv ...string) {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 126 || !strings.Contains(string(out), why) {
		t.Errorf("%q: got %v %s, want 126 and %q", argv[1:], err, out, why)
	}
}

// childNamed is the child of a process with that name.
func childNamed(t *testing.T, parent int, name string) int {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		lists, err := filepath.Glob("/proc/" + strconv.Itoa(parent) + "/task/*/children")
		if err != nil {
			t.Fatal(err)
		}
		for _, list := range lists {
			pids, err := os.ReadFile(list)
			if err != nil {
				continue // a thread that ended
			}
			for _, pid := range strings.Fields(string(pids)) {
				if comm, err := os.ReadFile("/proc/" + pid + "/comm"); err == nil && string(comm) == name+"\n" {
					n, _ := strconv.Atoi(pid) // digits, by the kernel
					return n
				}
			}
		}
	}
	t.Fatalf("%d has no child %s", parent, name)
	return 0
}
