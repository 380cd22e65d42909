//go:build agents

package agentstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/fakellm"
	"github.com/sharness/sharness/manifest"
)

// userID owns the workspaces: an ordinary user without an entry in passwd, as on a machine where only root was set up.
const userID = 4242

// commandUIDs is where the uids of commands begin; the orchestrator's lie below.
const commandUIDs = 1900100000

// kernelUID is, in a script, the uid that the process has outside: inside it sees the user's.
const kernelUID = "$(awk 'NR==1{print $2}' /proc/self/uid_map)"

// secret is the model's key. No command may see it, and no tool result may hold it.
const secret = "sk-agentstest-8c1f0b7e5d2a4c93"

// run is one agent in one workspace.
type run struct {
	t         *testing.T
	agent     string // profile, and name of the command
	base      string // holds everything below
	workspace string
	model     *fakellm.Server
	edit      func(*manifest.Manifest)
	env       []string // of the caller, beside the usual

	stdout, stderr string
	exit           int
}

// newRun makes a git repository to work on and starts the model service; {{WS}} stands for the workspace in script and
// files. The folder lies in /var/tmp because codex refuses a home below /tmp.
func newRun(t *testing.T, agent string, script fakellm.Script, files map[string]string) *run {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("sharness enforce needs root; run: sudo make test-agents")
	}
	base, err := os.MkdirTemp("/var/tmp", "sharness-agentstest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	// What manifest new takes out of an agent's program lies below the manifest's name, which is the agent's by default.
	unpacked := filepath.Join("/var/lib/sharness/lib", agent)
	if _, err := os.Lstat(unpacked); errors.Is(err, os.ErrNotExist) {
		t.Cleanup(func() {
			os.RemoveAll(unpacked)
			_ = os.Remove(filepath.Dir(unpacked)) // stays where there is more
		})
	}
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	r := &run{t: t, agent: agent, base: base, workspace: filepath.Join(base, "ws")}
	r.write("out/.keep", "", 0o644)
	r.write("ws/a.txt", "alpha\n", 0o644)
	for name, content := range files {
		r.write(filepath.Join("ws", name), strings.ReplaceAll(content, "{{WS}}", r.workspace), 0o644)
	}
	r.mustRun(r.workspace, "git", "init", "-q", "-b", "trunk", ".")
	r.mustRun(r.workspace, "git", "add", ".")
	r.mustRun(r.workspace, "git", "-c", "user.name=n", "-c", "user.email=n@example.com", "commit", "-q", "-m", "needle of a subject")
	r.own()
	script, err = script.Expand(map[string]string{"WS": r.workspace})
	if err != nil {
		t.Fatal(err)
	}
	r.model = fakellm.Start(t, script)
	return r
}

func (r *run) write(name, content string, mode os.FileMode) {
	r.t.Helper()
	path := filepath.Join(r.base, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		r.t.Fatal(err)
	}
}

// own gives workspace and output folder to the user; base stays root's, so that the manifest may lie in it.
func (r *run) own() {
	r.t.Helper()
	for _, dir := range []string{r.workspace, filepath.Join(r.base, "out")} {
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, userID, userID))
		})
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *run) mustRun(dir, name string, args ...string) {
	r.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// repoFile finds a file of this checkout.
func repoFile(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; run: make build", err)
	}
	return path
}

// command finds an installed agent, by the link that npm made for it.
func (r *run) command() string {
	r.t.Helper()
	dir := os.Getenv("SHARNESS_AGENTS")
	if dir == "" {
		dir = "/var/cache/sharness-agents"
	}
	path := filepath.Join(dir, "node_modules", ".bin", r.agent)
	if _, err := os.Stat(path); err != nil {
		r.t.Fatalf("%s is not installed: %v; run: make test-agents", r.agent, err)
	}
	return path
}

// manifest makes the one that a person gets from the profile, then gives it this run's state and the model's address.
func (r *run) manifest() (file string, m *manifest.Manifest) {
	r.t.Helper()
	file = filepath.Join(r.base, "manifest.yaml")
	r.mustRun(r.base, repoFile(r.t, "bin/sharness"), "manifest", "new", "-m", file, "--profile", r.agent, "--", r.command())
	data, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	if m, err = manifest.Parse(file, data); err != nil {
		r.t.Fatal(err)
	}
	r.adapt(file, m)
	return file, m
}

// adapt writes m with this run's state and model.
func (r *run) adapt(file string, m *manifest.Manifest) {
	r.t.Helper()
	m.Name = "agentstest-" + r.agent
	m.State.Path = filepath.Join(r.base, "state")
	m.Connect = []manifest.Endpoint{{Name: "127.0.0.1", Port: uint16(r.model.Port), For: "model"}}
	if r.edit != nil {
		r.edit(m)
	}
	if err := os.WriteFile(file, manifest.Format(m), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// start runs the agent to its end. Its environment is the caller's as far as the manifest passes it on.
func (r *run) start(args ...string) {
	r.t.Helper()
	file, m := r.manifest()
	r.session([]string{"enforce", "-m", file}, m, args)
}

// session runs the agent to its end as verb, with its flags, says.
func (r *run) session(verb []string, m *manifest.Manifest, args []string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 3*time.Minute)
	defer cancel()
	argv := slices.Concat(verb, []string{"--workspace", r.workspace, "--events", r.eventFile(), "--", m.Command[0]}, args)
	cmd := exec.CommandContext(ctx, repoFile(r.t, "bin/sharness"), argv...)
	cmd.Dir = r.workspace
	cmd.Env = append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "TERM=xterm", "LANG=C.UTF-8", "BASH_ENV=/nonexistent"}, r.env...)
	// TERM, not KILL: what is tested after a timeout is still how a session ends.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	r.stdout, r.stderr = stdout.String(), stderr.String()
	r.t.Cleanup(func() {
		if r.t.Failed() {
			r.t.Logf("exit %d\nstdout: %.4000s\nstderr: %.4000s", r.exit, r.stdout, r.stderr)
		}
	})
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		r.t.Fatalf("%s did not end in time", r.agent)
	case errors.As(err, &exit):
		r.exit = exit.ExitCode()
	case err != nil:
		r.t.Fatal(err)
	}
	if r.exit >= 125 && r.exit <= 127 {
		r.t.Fatalf("sharness did not start %s", r.agent)
	}
}

func (r *run) eventFile() string { return filepath.Join(r.base, "out", "events.jsonl") }

// result returns what was reported for a call.
func (r *run) result(turn, call int) fakellm.Result {
	r.t.Helper()
	got, ok := r.model.Result(turn, call)
	if !ok {
		r.t.Errorf("turn %d call %d: nothing was reported", turn, call)
	}
	return got
}

// want checks that the report of a call holds each of the texts.
func (r *run) want(turn, call int, texts ...string) {
	r.t.Helper()
	got := r.result(turn, call)
	for _, text := range texts {
		if !strings.Contains(got.Text, text) {
			r.t.Errorf("turn %d call %d: want %q in it, got %.600q", turn, call, text, got.Text)
		}
	}
}

// refuse checks that the report of a call holds none of the texts.
func (r *run) refuse(turn, call int, texts ...string) {
	r.t.Helper()
	got := r.result(turn, call)
	for _, text := range texts {
		if strings.Contains(got.Text, text) {
			r.t.Errorf("turn %d call %d: want no %q in it, got %.600q", turn, call, text, got.Text)
		}
	}
}

// wantFile checks a file of the workspace: its content, and that it is the user's.
func (r *run) wantFile(name, content string) {
	r.t.Helper()
	path := filepath.Join(r.workspace, name)
	data, err := os.ReadFile(path)
	if err != nil {
		r.t.Error(err)
		return
	}
	if string(data) != content {
		r.t.Errorf("%s: got %q, want %q", name, data, content)
	}
	fi, err := os.Lstat(path)
	if err != nil {
		r.t.Error(err)
		return
	}
	if st := fi.Sys().(*syscall.Stat_t); st.Uid != userID || st.Gid != userID {
		r.t.Errorf("%s: belongs to %d:%d, want the user, %d", name, st.Uid, st.Gid, userID)
	}
}

// wantNoFile checks that something did not run: each payload of these tests leaves a file.
func (r *run) wantNoFile(name string) {
	r.t.Helper()
	if _, err := os.Lstat(filepath.Join(r.workspace, name)); !errors.Is(err, os.ErrNotExist) {
		r.t.Errorf("%s exists (%v): what makes it has run", name, err)
	}
}

// wantCommandUID checks that a report's "uid N" is that of a sandbox.
func (r *run) wantCommandUID(turn, call int) {
	r.t.Helper()
	got := r.result(turn, call)
	var uid int
	_, after, _ := strings.Cut(got.Text, "uid ")
	if _, err := fmt.Sscanf(after, "%d", &uid); err != nil || uid < commandUIDs {
		r.t.Errorf("turn %d call %d: got %.200q, want uid N with N from %d on", turn, call, got.Text, commandUIDs)
	}
}

// wantNoDenials reads the event log: nothing was denied but what harmless lists, programs that an agent asks for
// and does well without. The self-probe of the domain is denied on purpose.
func (r *run) wantNoDenials(harmless ...string) {
	r.t.Helper()
	data, err := os.ReadFile(r.eventFile())
	if err != nil {
		r.t.Fatal(err)
	}
	lines := 0
	for line := range bytes.Lines(data) {
		lines++
		e, err := event.Parse(line)
		if err != nil {
			r.t.Errorf("event log: %v in %.300s", err, line)
			continue
		}
		if !e.Type.Denial() || e.Phase == "probe" {
			continue
		}
		if e.Type == event.ExecDenied && e.Target != nil && slices.Contains(harmless, filepath.Base(e.Target.Asked)) {
			continue
		}
		r.t.Errorf("denied: %.500s", line)
	}
	if lines == 0 {
		r.t.Error("the event log is empty; want at least the start and the end of the session")
	}
}

// wantNoSecret checks that the key went to the model service and nowhere else.
func (r *run) wantNoSecret() {
	r.t.Helper()
	for _, e := range r.model.Entries() {
		for _, res := range e.Results {
			if strings.Contains(res.Text, secret) {
				r.t.Errorf("result %s holds the key: %.300q", res.ID, res.Text)
			}
		}
	}
}
