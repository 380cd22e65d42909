package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/kerneltest"
	"github.com/sharness/sharness/launcher/pin"
	"github.com/sharness/sharness/manifest"
)

// TestLearn runs testdata/learn*.txtar: an agent is learned, and then enforced with what was learned. Commands beside those
// of TestEnforce:
//
//	same FILE FILE    two manifests that differ in their learned: header alone, and in that in nothing but the time and peaks
//	undenied LOG      no denial but those of the self-probe, and of io_uring, which no manifest can allow
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
			e.Defer(func() {
				forgetLearned(t, name)
				kerneltest.ForgetWorkspaces(t, e.WorkDir)
			})
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

// varies is what no two runs have in common: the time, and what was measured.
var varies = regexp.MustCompile(`(?m)^  at: .*\n|^  peaks:\n(    .*\n)*`)

func scriptSame(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: same FILE FILE")
	}
	a, b := varies.ReplaceAllString(ts.ReadFile(args[0]), ""), varies.ReplaceAllString(ts.ReadFile(args[1]), "")
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
		// Node tries io_uring at each start since libuv 1.49, whatever UV_USE_IO_URING says, and goes on with epoll.
		if e.Type.Denial() && e.Phase != "probe" && e.Syscall != "io_uring_setup" {
			ts.Fatalf("denied: %s", line)
		}
	}
	if !started {
		ts.Fatalf("%s tells of no session", args[0])
	}
}

// floodScript runs as many programs as it is told between two lines of its standard input.
const floodScript = `#!/bin/bash
echo ready
read -r many
for ((i = 0; i < many; i++)); do /usr/bin/true; done
echo flooded
read -r go
`

// TestLearnShowsItsProgressAndThenTheSummary: on a terminal that the agent does not draw on.
func TestLearnShowsItsProgressAndThenTheSummary(t *testing.T) {
	master, slave := terminal(t)
	r := prepareLearn(t, "test-learn-progress")
	r.cmd.Stderr = slave
	r.begin()
	if err := slave.Close(); err != nil {
		t.Fatal(err)
	}
	r.say("20")
	shown := bufio.NewReader(master)
	var text strings.Builder
	for !regexp.MustCompile(`learning: [0-9]+ images, (2[1-9]|[3-9][0-9]) execs, [0-9]+ mappings, 0 lost`).MatchString(text.String()) {
		part, err := shown.ReadString('\r')
		if text.WriteString(part); err != nil {
			t.Fatalf("%v: no progress in %q", err, text.String())
		}
	}
	r.hear("flooded")
	r.say("go")
	rest, _ := io.ReadAll(shown) // EIO at its end
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, rest)
	}
	for _, want := range []string{`(?m)^(.*\r)?\x1b\[K?.*WHAT +RUN +MAPPED +PATH +HOW`, `(?m)^program +20 +0 +/usr/bin/true +run by `, `(?m)^script +1 .*/bin/flood`, `(?m)^approved `} {
		if !regexp.MustCompile(want).Match(rest) {
			t.Errorf("the summary lacks %q:\n%s", want, rest)
		}
	}
	if i := bytes.Index(rest, []byte("WHAT")); bytes.Contains(rest[max(i, 0):], []byte("learning: ")) {
		t.Errorf("progress after the summary:\n%s", rest)
	}
}

// learnRun is a learn session of floodScript, up to its first word.
type learnRun struct {
	*testing.T
	cmd                     *exec.Cmd
	in                      io.Writer
	out                     *bufio.Reader
	said                    bytes.Buffer
	sharness, file, ws, bin string
	log                     string
}

func startLearn(t *testing.T, name string, flags ...string) *learnRun {
	t.Helper()
	r := prepareLearn(t, name, flags...)
	r.begin()
	return r
}

func prepareLearn(t *testing.T, name string, flags ...string) *learnRun {
	t.Helper()
	kerneltest.RequireRoot(t)
	dir := sessionRoot(t)
	t.Cleanup(func() { forgetLearned(t, name) })
	r := &learnRun{T: t, sharness: builtSharness(t), file: filepath.Join(dir, name+".yaml"), ws: filepath.Join(dir, "ws"), bin: filepath.Join(dir, "bin", "flood"),
		log: filepath.Join(dir, "out", "events")}
	if err := errors.Join(os.Mkdir(filepath.Dir(r.bin), 0o755), os.Mkdir(r.ws, 0o755), os.Mkdir(filepath.Dir(r.log), 0o755),
		os.Chown(r.ws, 4244, 4244), os.Chown(filepath.Dir(r.log), 4244, 4244), os.WriteFile(r.bin, []byte(floodScript), 0o755)); err != nil {
		t.Fatal(err)
	}
	r.cmd = exec.Command(r.sharness, slices.Concat([]string{"learn", "-m", r.file, "--workspace", r.ws, "--events", r.log, "--yes"}, flags, []string{"--", r.bin})...)
	r.cmd.Env, r.cmd.Stderr = []string{"PATH=/usr/bin:/bin"}, &r.said
	in, err := r.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.in, r.out = in, bufio.NewReader(out)
	return r
}

func (r *learnRun) begin() {
	r.Helper()
	if err := r.cmd.Start(); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = r.cmd.Process.Kill() })
	r.hear("ready")
}

func (r *learnRun) hear(want string) {
	r.Helper()
	if line, err := r.out.ReadString('\n'); err != nil || line != want+"\n" {
		r.Fatalf("the agent said %q, %v, want %q\n%s", line, err, want, r.said.String())
	}
}

func (r *learnRun) say(line string) {
	r.Helper()
	if _, err := io.WriteString(r.in, line+"\n"); err != nil {
		r.Fatal(err)
	}
}

func (r *learnRun) signal(pid int, s syscall.Signal) {
	r.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		r.Fatal(err)
	}
}

// incomplete ends the run and wants nothing of it to be policy: not by --yes, by approving, or by hand.
func (r *learnRun) incomplete(why string) {
	r.Helper()
	r.say("go")
	err := r.cmd.Wait()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 125 || !strings.Contains(r.said.String(), why) {
		r.Fatalf("got %v, want 125 and %q:\n%s", err, why, r.said.String())
	}
	if _, err := os.Lstat(r.file); !errors.Is(err, os.ErrNotExist) {
		r.Errorf("%s: %v: approved although it is incomplete", r.file, err)
	}
	proposal, err := os.ReadFile(r.file + ".proposed")
	if err != nil || !strings.Contains(string(proposal), "\n  complete: false\n") {
		r.Errorf("proposal: %v, want complete: false in\n%s", err, proposal)
	}
	wantRefused(r.T, "incomplete", r.sharness, "manifest", "approve", "-m", r.file)
	if err := os.Rename(r.file+".proposed", r.file); err != nil {
		r.Fatal(err)
	}
	wantRefused(r.T, "incomplete", r.sharness, "enforce", "-m", r.file, "--workspace", r.ws, "--", r.bin)
}

func TestLearnThatLostRecordsIsIncompleteAndNotEnforced(t *testing.T) {
	r := startLearn(t, "test-learn-lost")
	tracer := childNamed(t, r.cmd.Process.Pid, "sharness-agent")
	r.signal(tracer, syscall.SIGSTOP)
	t.Cleanup(func() { _ = syscall.Kill(tracer, syscall.SIGCONT) }) // of no process of ours, unless the test failed before
	r.say("3000")                                                   // more than the ring holds while nobody reads it
	r.hear("flooded")
	r.signal(tracer, syscall.SIGCONT)
	r.incomplete("records were lost")
}

// TestLearnWithASmallRingIsIncompleteAndNotEnforced: nobody stops the tracer here, it only has less room than a run needs.
func TestLearnWithASmallRingIsIncompleteAndNotEnforced(t *testing.T) {
	r := startLearn(t, "test-learn-ring", "--ring", "4KiB")
	r.say("20")
	r.hear("flooded")
	r.incomplete("records were lost")
}

func TestLearnWhoseTracerDiedIsIncompleteAndNotEnforced(t *testing.T) {
	r := startLearn(t, "test-learn-died")
	tracer := childNamed(t, r.cmd.Process.Pid, "sharness-agent")
	r.signal(tracer, syscall.SIGKILL)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if log, err := os.ReadFile(r.log); err == nil && bytes.Contains(log, []byte("; started again")) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("sharness-agent was not started again")
		}
	}
	r.say("3")
	r.hear("flooded")
	r.incomplete("did not see the whole run")
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

// The folder and the descriptors of this process are none that the program had.
func TestNamesOfARunAreNotFollowedThroughThisProcess(t *testing.T) {
	dir := t.TempDir()
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"here": "/proc/self/cwd", "hop": "here", "file": "sub/../tool", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"sub/x", "tool"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"//proc/self/cwd/learn_test.go", "/usr/../proc/self/fd/0", "/dev/stdin", dir + "/here/learn_test.go", dir + "/hop/learn_test.go", dir + "/loop",
		dir + "/gone", "learn_test.go"} {
		if got, err := realOutside(name); err == nil {
			t.Errorf("%s: got %s, want an error", name, got)
		}
	}
	for name, want := range map[string]string{dir + "/file": real + "/tool", dir + "//./sub/x/..": real + "/sub", "/": "/"} {
		if got, err := realOutside(name); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", name, got, err, want)
		}
	}
}

func TestLearnNamesTheProgramsThatItAddsToTheAgentsOwn(t *testing.T) {
	program := func(path string, role manifest.Role) manifest.Exec { return manifest.Exec{Path: path, Role: role} }
	l := &learning{closure: &pin.Closure{Exec: []manifest.Exec{program("/opt/agent", manifest.RoleProgram)}},
		former: &manifest.Manifest{Exec: []manifest.Exec{program("/usr/bin/known", manifest.RoleProgram)}}}
	m := &manifest.Manifest{Exec: []manifest.Exec{program("/opt/agent", manifest.RoleProgram), program("/usr/bin/known", manifest.RoleProgram),
		program("/usr/bin/curl", manifest.RoleProgram), program("/opt/script", manifest.RoleScript)}}
	if got := l.besideServer(m); !slices.Equal(got, []string{"/usr/bin/curl"}) {
		t.Errorf("got %q, want curl alone", got)
	}
	l.former = nil
	for i := range 40 {
		m.Exec = append(m.Exec, program(fmt.Sprintf("/usr/bin/p%02d", i), manifest.RoleProgram))
	}
	if got := l.besideServer(m); len(got) > 12 || !strings.HasSuffix(got[len(got)-1], " more") {
		t.Errorf("got %q, want the first few, and how many more", got)
	}
}
