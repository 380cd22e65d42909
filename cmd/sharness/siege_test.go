package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/kerneltest"
	"github.com/sharness/sharness/internal/sidedoor/attempt"
	"github.com/sharness/sharness/internal/sidedoor/bait"
	"github.com/sharness/sharness/manifest"
)

// baitUser owns the workspace and the bait: an ordinary user whom nobody else is.
const baitUser = 4243

// siege is one run of the probe in a domain.
type siege struct {
	t               *testing.T
	base, workspace string
	probe           string
	access          manifest.Access
	memfd           bool // the manifest opens that door
	files           bool // refused file calls are reported too
	planted         *bait.Planted
	sharness        string // another build of it
}

func newSiege(t *testing.T, build string, access manifest.Access) *siege {
	t.Helper()
	base, err := os.MkdirTemp("/var/tmp", "sharness-sidedoor-")
	if err != nil {
		t.Fatal(err)
	}
	s := &siege{t: t, base: base, workspace: filepath.Join(base, "ws"), probe: copied(t, helper(t, build)), access: access}
	t.Cleanup(func() {
		kerneltest.ForgetWorkspaces(t, base)
		os.RemoveAll(base)
		kept, _ := filepath.Glob("/var/lib/sharness/quarantine/" + s.name() + "-*") // the pattern is well-formed
		for _, dir := range kept {
			os.RemoveAll(dir)
		}
		if err := forgetID(s.name()); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := bait.Repository(s.workspace, baitUser, baitUser); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"bait", "out"} {
		if err := os.Mkdir(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(filepath.Join(base, "out"), baitUser, baitUser); err != nil {
		t.Fatal(err)
	}
	s.planted, err = bait.Plant(bait.Config{Dir: filepath.Join(base, "bait"), Workspace: s.workspace, State: filepath.Join(base, "state"),
		UID: baitUser, GID: baitUser, Probe: helper(t, "sharness-probe"), Unlisted: "/usr/bin/env"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.planted.Close() })
	limits := s.manifest().Limits
	s.planted.Bait.LimitPids, s.planted.Bait.LimitMemory, s.planted.Bait.LimitTmp = limits.Pids, int64(limits.Memory), int64(limits.Tmp)
	if err := s.planted.Write(filepath.Join(s.workspace, "bait.json")); err != nil {
		t.Fatal(err)
	}
	return s
}

// copied puts a program where its path is nobody's home: the way to it is what a view has of the host.
func copied(t *testing.T, program string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/lib", "sharness-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, filepath.Base(program))
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(to, data, 0o755)); err != nil {
		t.Fatal(err)
	}
	return to
}

// helper finds a program that was built beside sharness.
func helper(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; run: make build", err)
	}
	return path
}

// manifest is what a person would write who runs the probe: itself, and what starts it.
func (s *siege) manifest() *manifest.Manifest {
	s.t.Helper()
	m := &manifest.Manifest{
		Version: manifest.Version, Name: s.name(), Command: []string{s.probe},
		Exec:      []manifest.Exec{{Path: s.probe, SHA256: sum(s.t, s.probe), Role: manifest.RoleProgram}},
		Read:      []string{"/usr"},
		State:     &manifest.State{Path: filepath.Join(s.base, "state")},
		Workspace: manifest.Workspace{Path: s.workspace, Orchestrator: s.access},
		Memfd:     s.memfd,
		Limits:    manifest.Limits{Pids: 256, Memory: 256 << 20, Tmp: 32 << 20},
	}
	if strings.HasSuffix(s.probe, "-dynamic") {
		loader, libc := finalPath(s.t, "/lib64/ld-linux-x86-64.so.2"), finalPath(s.t, "/lib/x86_64-linux-gnu/libc.so.6")
		m.Exec = append(m.Exec, manifest.Exec{Path: loader, SHA256: sum(s.t, loader), Role: manifest.RoleLoader})
		m.Libraries = []manifest.File{{Path: libc, SHA256: sum(s.t, libc)}}
	}
	return m
}

func finalPath(t *testing.T, path string) string {
	t.Helper()
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return resolved
}

func sum(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// command is sharness enforce with the probe as orchestrator.
func (s *siege) command(ctx context.Context, args ...string) *exec.Cmd {
	s.t.Helper()
	file := filepath.Join(s.base, "manifest.yaml")
	if err := os.WriteFile(file, manifest.Format(s.manifest()), 0o644); err != nil {
		s.t.Fatal(err)
	}
	argv := append([]string{"enforce", "-m", file, "--workspace", s.workspace, "--events", s.events(), fmt.Sprintf("--events-files=%v", s.files),
		"--", s.probe, "--bait", filepath.Join(s.workspace, "bait.json")}, args...)
	sharness := s.sharness
	if sharness == "" {
		sharness = helper(s.t, "sharness")
	}
	cmd := exec.CommandContext(ctx, sharness, argv...)
	cmd.Dir = s.workspace
	cmd.Env = append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "TERM=xterm", "LANG=C.UTF-8"}, s.planted.Env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // how a session ends is part of the test
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// run makes every attempt and returns the results by door.
func (s *siege) run() map[string][]attempt.Result {
	t := s.t
	t.Helper()
	before := s.snapshot()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := s.command(ctx)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && (!errors.As(err, &exit) || exit.ExitCode() >= 125 || exit.ExitCode() < 0) {
		t.Fatalf("sharness enforce: %v\n%s", err, stderr.Bytes())
	}
	got := results(t, stdout.Bytes())
	n := 0
	for _, tries := range got {
		n += len(tries)
	}
	if want := len(attempt.All()); n != want {
		t.Errorf("%d results, want %d: the probe ended early\n%s", n, want, stderr.Bytes())
	}
	if after := s.snapshot(); after != before {
		t.Errorf("the workspace changed: %s", difference(before, after))
	}
	return got
}

// wantRefusal wants enforce to start nothing and to say why.
func (s *siege) wantRefusal(why string) {
	s.t.Helper()
	cmd := s.command(s.t.Context())
	out, _ := cmd.CombinedOutput() // the exit code is looked at below
	if code := cmd.ProcessState.ExitCode(); code != 126 || !strings.Contains(string(out), why) {
		s.t.Errorf("sharness enforce: exit %d, want 126 and %q:\n%s", code, why, out)
	}
}

// runOnTerminal gives sharness a terminal, and returns what was shown on it.
func (s *siege) runOnTerminal(args ...string) (screen []byte) {
	t := s.t
	t.Helper()
	master, slave := terminal(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := s.command(ctx, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	shown := make(chan []byte)
	go func() {
		var b bytes.Buffer
		b.ReadFrom(master) // ends with EIO when the last holder of the slave is gone
		shown <- b.Bytes()
	}()
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	slave.Close()
	return bytes.ReplaceAll(<-shown, []byte("\r\n"), []byte("\n"))
}

func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// results reads the probe's lines; what sharness itself says on a terminal stands between them.
func results(t *testing.T, out []byte) map[string][]attempt.Result {
	t.Helper()
	got := map[string][]attempt.Result{}
	for line := range bytes.Lines(out) {
		if !bytes.HasPrefix(line, []byte("{\"id\":")) {
			t.Logf("said: %s", bytes.TrimSpace(line))
			continue
		}
		var r attempt.Result
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("result %q: %v", line, err)
		}
		got[r.Door] = append(got[r.Door], r)
	}
	return got
}

// name tells this session from those of other tests that run at the same time.
func (s *siege) name() string { return fmt.Sprintf("siege-%d", os.Getpid()) }

func (s *siege) events() string { return filepath.Join(s.base, "out", "events.jsonl") }

// checkAftermath looks at what the walls' other side saw.
func (s *siege) checkAftermath() {
	t := s.t
	t.Helper()
	if err := s.planted.Close(); err != nil {
		t.Error(err)
	}
	for _, a := range s.planted.Arrived() {
		t.Errorf("arrived outside: %s", a)
	}
	const teardown = 3 * time.Second
	left := s.leftovers()
	for deadline := time.Now().Add(teardown); len(left) > 0 && time.Now().Before(deadline); left = s.leftovers() {
		time.Sleep(20 * time.Millisecond)
	}
	for _, l := range left {
		t.Errorf("left behind: %s", l)
	}
	data, err := os.ReadFile(s.events())
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if _, err := event.Parse(line); err != nil {
			t.Errorf("event log: %v in %.200q", err, line)
		}
		if i := bytes.IndexFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0x202e }); i >= 0 {
			t.Errorf("event log: byte %#x in %.200q", line[i], line)
		}
	}
}

// leftovers lists what is there of this session: runtime folders, cgroups, processes in them, mounts of its folders.
func (s *siege) leftovers() []string {
	s.t.Helper()
	found, err := filepath.Glob("/run/sharness/" + s.name() + "-*")
	if err != nil {
		s.t.Fatal(err)
	}
	filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), s.name()+"-") {
			found = append(found, path)
		}
		return nil // other sessions come and go
	})
	processes, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, p := range append(processes, "/proc/self/mountinfo") {
		text, err := os.ReadFile(p)
		if err == nil && (bytes.Contains(text, []byte("/"+s.name()+"-")) || bytes.Contains(text, []byte(s.base))) {
			found = append(found, p)
		}
	}
	return found
}

// snapshot tells the name, mode, owner and content of everything in the workspace.
func (s *siege) snapshot() string {
	s.t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(s.workspace, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		st := fi.Sys().(*syscall.Stat_t)
		content := ""
		if fi.Mode().IsRegular() {
			content = sum(s.t, path)
		}
		fmt.Fprintf(&b, "%s %v %d:%d %d %s\n", path, fi.Mode(), st.Uid, st.Gid, st.Nlink, content)
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return b.String()
}

// difference lists the lines that only one of two texts has.
func difference(before, after string) string {
	var out []string
	for line := range strings.Lines(after) {
		if !strings.Contains(before, line) {
			out = append(out, "+ "+strings.TrimSpace(line))
		}
	}
	for line := range strings.Lines(before) {
		if !strings.Contains(after, line) {
			out = append(out, "- "+strings.TrimSpace(line))
		}
	}
	return strings.Join(out, "\n")
}
