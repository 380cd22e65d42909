package main

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sharness/sharness/internal/kerneltest"
	"github.com/sharness/sharness/internal/sidedoor/attempt"
	"github.com/sharness/sharness/internal/sidedoor/bait"
	"github.com/sharness/sharness/internal/sidedoor/probe"
)

// stranger is a uid that nobody has: an ordinary user without any file, group or process of its own.
const stranger = 4242

// builds are both builds of the probe, made once.
var builds = sync.OnceValues(func() (map[string]string, error) {
	dir, err := os.MkdirTemp("", "sharness-builds-")
	if err != nil {
		return nil, err
	}
	// Users other than root execute them.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	static, dynamic, err := bait.Build(dir)
	return map[string]string{"dir": dir, "static": static, "dynamic": dynamic}, err
})

func TestMain(m *testing.M) {
	status := m.Run()
	if b, _ := builds(); b != nil {
		os.RemoveAll(b["dir"])
	}
	os.Exit(status)
}

func build(t *testing.T, name string) string {
	t.Helper()
	b, err := builds()
	if err != nil {
		t.Fatal(err)
	}
	return b[name]
}

func TestDynamicBuildIsStartedByTheLoader(t *testing.T) {
	for name, want := range map[string]bool{"static": false, "dynamic": true} {
		if got := hasInterp(t, build(t, name)); got != want {
			t.Errorf("%s: PT_INTERP %v, want %v", name, got, want)
		}
	}
}

func hasInterp(t *testing.T, path string) bool {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return true
		}
	}
	return false
}

// Without sharness the attempts have to succeed, or "closed" would say nothing of sharness.
func TestAttemptsSucceedWithoutSharness(t *testing.T) {
	kerneltest.RequireRoot(t)
	for _, name := range []string{"static", "dynamic"} {
		t.Run(name, func(t *testing.T) { controls(t, name) })
	}
}

func controls(t *testing.T, name string) {
	dir, err := os.MkdirTemp("", "sharness-control-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	workspace, state, outside := filepath.Join(dir, "ws"), filepath.Join(dir, "state"), filepath.Join(dir, "bait")
	if err := bait.Repository(workspace, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{state, outside} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(state, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	planted, err := bait.Plant(bait.Config{Dir: outside, Workspace: workspace, State: state, UID: stranger, GID: stranger, Probe: build(t, "static"), Unlisted: "/usr/bin/env"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { planted.Close() })
	file := filepath.Join(dir, "bait.json")
	if err := planted.Write(file); err != nil {
		t.Fatal(err)
	}

	others := neighbour(t, dir)
	cmd := exec.Command(build(t, name), "--bait", file, "--control")
	cmd.Dir = workspace
	cmd.Env = append(planted.Env, "HOME="+state, "PATH=/usr/bin:/bin")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("sharness-probe --control: %v\n%s", err, stderr.Bytes())
	}
	check(t, results(t, out), name)

	if err := planted.Close(); err != nil {
		t.Error(err)
	}
	if len(planted.Arrived()) == 0 {
		t.Error("nothing arrived at the bait: it would not notice an attack either")
	}
	others.SetDeadline(time.Now().Add(50 * time.Millisecond)) // one in the past would not look
	if _, err := others.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("accept at the bait of others: %v, want nothing to have come: their prove would take it for an attack", err)
	}
}

// neighbour is the bait of a prove that runs at the same time.
func neighbour(t *testing.T, dir string) *net.UnixListener {
	t.Helper()
	path := filepath.Join(dir, "others", probe.StreamName)
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	return l
}

func results(t *testing.T, out []byte) map[string]attempt.Result {
	t.Helper()
	found := map[string]attempt.Result{}
	d := json.NewDecoder(bytes.NewReader(out))
	for d.More() {
		var r attempt.Result
		if err := d.Decode(&r); err != nil {
			t.Fatalf("result: %v", err)
		}
		found[r.ID] = r
	}
	return found
}

// impossibleHere are attempts of Opens that one of the builds cannot make.
var impossibleHere = map[string][]string{
	"static":  {"exec-inject/ld_preload", "exec-inject/ld_audit", "exec-inject/ld_library_path"},
	"dynamic": {},
}

// cameWith are attempts at what older kernels do not have. There they have to be impossible, and on all others open: the
// attempts find that out by asking the kernel, and not by its version.
var cameWith = map[string]kerneltest.Kernel{
	"exec-ldso/memfd-noexec-seal": {Major: 6, Minor: 3},
	"exec-memfd/exec":             {Major: 6, Minor: 3},
	"exec-memfd/exec-sealing":     {Major: 6, Minor: 3},
	"sig/peerpidfd":               {Major: 6, Minor: 5},
	"file-suid/fchmodat2-suid":    {Major: 6, Minor: 6},
	"file-suid/fchmodat2-sgid":    {Major: 6, Minor: 6},
	"file-suid/fchmodat2-both":    {Major: 6, Minor: 6},
}

func check(t *testing.T, got map[string]attempt.Result, name string) {
	t.Helper()
	excused := map[string]bool{}
	for _, id := range impossibleHere[name] {
		excused[id] = true
	}
	for id, since := range cameWith {
		excused[id] = kerneltest.Running(t).Before(since)
	}
	open := 0
	for _, a := range attempt.All() {
		r, ok := got[a.ID]
		switch {
		case !ok:
			t.Errorf("%s: not tried", a.ID)
		case r.Verdict == attempt.Error:
			t.Errorf("%s: the attempt broke: %s", a.ID, r.Detail)
		case a.Control == attempt.Opens && excused[a.ID]:
			if r.Verdict != attempt.Impossible {
				t.Errorf("%s: %s, want impossible in the %s build on this kernel", a.ID, r.Verdict, name)
			}
		case a.Control == attempt.Opens && r.Verdict != attempt.Open:
			t.Errorf("%s: %s (%s), want open without sharness", a.ID, r.Verdict, r.Detail)
		case (a.Control == attempt.Refused || a.Control == attempt.NoServer) && r.Verdict == attempt.Open:
			t.Errorf("%s: open (%s), but its control says %s", a.ID, r.Detail, a.Control)
		}
		if r.Verdict == attempt.Open {
			open++
		}
	}
	t.Logf("%s: %d of %d attempts open without sharness", name, open, len(got))
}
