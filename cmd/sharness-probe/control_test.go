package main

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sharness/sharness/internal/kerneltest"
	"github.com/sharness/sharness/internal/sidedoor/attempt"
	"github.com/sharness/sharness/internal/sidedoor/bait"
)

// stranger is a uid that nobody has: an ordinary user without any file, group or process of its own.
const stranger = 4242

func TestDynamicBuildIsStartedByTheLoader(t *testing.T) {
	static, dynamic, err := bait.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{static: false, dynamic: true} {
		if got := hasInterp(t, path); got != want {
			t.Errorf("%s: PT_INTERP %v, want %v", filepath.Base(path), got, want)
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
	kerneltest.RequireProgram(t, "/usr/bin/gcc")
	kerneltest.RequireProgram(t, "/usr/bin/git")
	for _, build := range []string{"static", "dynamic"} {
		t.Run(build, func(t *testing.T) { controls(t, build) })
	}
}

func controls(t *testing.T, build string) {
	dir, err := os.MkdirTemp("", "sharness-control-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	static, dynamic, err := bait.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	probe := map[string]string{"static": static, "dynamic": dynamic}[build]
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
	planted, err := bait.Plant(bait.Config{Dir: outside, Workspace: workspace, State: state, UID: stranger, GID: stranger, Probe: static})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { planted.Close() })
	file := filepath.Join(dir, "bait.json")
	if err := planted.Write(file); err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command(probe, "--bait", file, "--control")
	cmd.Dir = workspace
	cmd.Env = append(planted.Env, "HOME="+state, "PATH=/usr/bin:/bin")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("sharness-probe --control: %v\n%s", err, stderr.Bytes())
	}
	check(t, results(t, out), build)

	if err := planted.Close(); err != nil {
		t.Error(err)
	}
	if len(planted.Arrived()) == 0 {
		t.Error("nothing arrived at the bait: it would not notice an attack either")
	}
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

func check(t *testing.T, got map[string]attempt.Result, build string) {
	t.Helper()
	excused := map[string]bool{}
	for _, id := range impossibleHere[build] {
		excused[id] = true
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
				t.Errorf("%s: %s, want impossible in the %s build", a.ID, r.Verdict, build)
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
	t.Logf("%s: %d of %d attempts open without sharness", build, open, len(got))
}
