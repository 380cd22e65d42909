package sessiontest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/kerneltest"
	"github.com/sharness/sharness/launcher/pin"
	"github.com/sharness/sharness/manifest"
)

// userID owns the workspaces: an ordinary user without an entry in passwd.
const userID = 4321

// name of every manifest here. One name takes one line of the uid registry, which outlives the tests.
const name = "sessiontest"

// TestMain makes runs of these tests take turns on one machine: the ids of one manifest are those of all its sessions,
// and what one run has at work would be what another has left behind.
func TestMain(m *testing.M) {
	turn, err := os.Open("/var/tmp")
	if err == nil {
		err = unix.Flock(int(turn.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "wait for the turn:", err)
		os.Exit(1)
	}
	code := m.Run()
	turn.Close() // not before: the collector would close what nobody names any more
	os.Exit(code)
}

// site is a workspace with what lies around it. base stays root's, so that a manifest may lie in it.
type site struct {
	t               *testing.T
	base, workspace string
	edit            func(*manifest.Manifest)
	logs            int
	env             []string // of sharness itself, beside the usual
}

func newSite(t *testing.T, edit func(*manifest.Manifest)) *site {
	t.Helper()
	kerneltest.RequireRoot(t)
	for _, p := range []string{"sharness", "sharness-bash", "sharness-box", "sharness-init", "sharness-bashd", "sharness-relay", "sharness-agent", "sharness-watch"} {
		program(t, p)
	}
	kerneltest.NoLeaks(t)
	base, err := os.MkdirTemp("/var/tmp", "sharness-sessiontest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		kerneltest.ForgetWorkspaces(t, base)
		os.RemoveAll(base)
	})
	s := &site{t: t, base: base, workspace: filepath.Join(base, "ws"), edit: edit}
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"ws", "out"} {
		if err := errors.Join(os.Mkdir(filepath.Join(base, d), 0o755), os.Chown(filepath.Join(base, d), userID, userID)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// program finds one that make build leaves in bin.
func program(t testing.TB, name string) string {
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

// write makes a file of the user's in the workspace.
func (s *site) write(rel, content string) {
	s.t.Helper()
	s.user("mkdir -p \"$(dirname \"$1\")\" && cat > \"$1\"", content, rel)
}

// user runs a script in the workspace as its owner, outside of any session.
func (s *site) user(script, stdin string, args ...string) string {
	s.t.Helper()
	cmd := exec.Command("/bin/bash", append([]string{"-ec", script, "user"}, args...)...)
	cmd.Dir = s.workspace
	cmd.Env = []string{"PATH=/usr/local/go/bin:/usr/bin:/bin", "HOME=" + s.workspace, "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_AUTHOR_NAME=u", "GIT_AUTHOR_EMAIL=u@example.com", "GIT_COMMITTER_NAME=u", "GIT_COMMITTER_EMAIL=u@example.com"}
	cmd.Stdin = strings.NewReader(stdin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: userID, Gid: userID}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("outside: %s: %v\n%s", script, err, out)
	}
	return string(out)
}

// manifest writes one for bash as the orchestrator, which may write in the workspace.
func (s *site) manifest() string {
	s.t.Helper()
	c, err := pin.Resolve("/usr/bin/bash", "")
	if err != nil {
		s.t.Fatal(err)
	}
	m := &manifest.Manifest{
		Version: manifest.Version, Name: name, Command: []string{c.Program}, Exec: c.Exec, Libraries: c.Libraries,
		Read:      []string{"/usr"},
		Workspace: manifest.Workspace{Path: s.workspace, Orchestrator: manifest.AccessWrite},
	}
	if s.edit != nil {
		s.edit(m)
	}
	file := filepath.Join(s.base, "manifest.yaml")
	if err := os.WriteFile(file, manifest.Format(m), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// session is one running sharness.
type session struct {
	*site
	cmd    *exec.Cmd
	log    string // file of the events
	torn   int    // lines of it that a killed writer may have left in part
	stderr *bytes.Buffer
	socket string
	ended  chan error
}

// sharness makes the command that starts a session, with an event log of its own.
func (s *site) sharness(verb string, args ...string) *session {
	s.t.Helper()
	s.logs++
	x := &session{site: s, log: filepath.Join(s.base, "out", fmt.Sprintf("events-%d.jsonl", s.logs)), stderr: &bytes.Buffer{}, ended: make(chan error, 1)}
	argv := append([]string{verb, "-m", s.manifest(), "--workspace", s.workspace, "--events", x.log}, args...)
	x.cmd = exec.Command(program(s.t, "sharness"), argv...)
	x.cmd.Dir, x.cmd.Stderr = s.workspace, x.stderr
	x.cmd.Env = append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "TERM=dumb", "LANG=C.UTF-8"}, s.env...)
	x.cmd.WaitDelay = 10 * time.Second
	return x
}

// serve starts a session without orchestrator, and ends it with the test.
func (s *site) serve() *session {
	s.t.Helper()
	x := s.sharness("serve")
	out, err := x.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	x.start()
	line, err := bufio.NewReader(out).ReadString('\n')
	socket, ok := strings.CutPrefix(strings.TrimSpace(line), "SHARNESS_SOCKET=")
	if !ok {
		s.t.Fatalf("sharness serve said %q, %v, %v\n%s", line, err, <-x.ended, x.stderr)
	}
	x.socket = socket
	return x
}

// on is the session as a subtest sees it.
func (x *session) on(t *testing.T) *session {
	y, s := *x, *x.site
	y.site, s.t = &s, t
	return &y
}

func (x *session) start() {
	x.t.Helper()
	if err := x.cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
	go func() { x.ended <- x.cmd.Wait(); close(x.ended) }()
	x.t.Cleanup(func() { x.stop() })
}

// stop ends the session as Ctrl-C does, and waits for it.
func (x *session) stop() {
	x.t.Helper()
	_ = x.cmd.Process.Signal(syscall.SIGTERM)
	x.wait(20 * time.Second)
}

// wait waits for the end of the session.
func (x *session) wait(d time.Duration) {
	x.t.Helper()
	d = kerneltest.Within(x.t, d)
	select {
	case <-x.ended:
	case <-time.After(d):
		x.cmd.Process.Kill()
		x.t.Errorf("session still runs after %s\n%s", d, x.stderr)
		<-x.ended
	}
}

// enforce runs a bash script as the orchestrator to its end and returns what it printed.
func (s *site) enforce(script string) (*session, string) {
	s.t.Helper()
	x := s.sharness("enforce", "--", "bash", "-c", script)
	var out bytes.Buffer
	x.cmd.Stdout = &out
	x.start()
	x.wait(3 * time.Minute)
	if code := x.cmd.ProcessState.ExitCode(); code >= 125 && code <= 127 {
		s.t.Fatalf("enforce: exit %d\n%s", code, x.stderr)
	}
	return x, out.String()
}

// reply is what --json prints.
type reply struct {
	ExitCode  int      `json:"exit_code"`
	Signal    int      `json:"signal"`
	Stdout    string   `json:"stdout"`
	Stderr    string   `json:"stderr"`
	Truncated bool     `json:"truncated"`
	LimitsHit []string `json:"limits_hit"`
	Notes     []string `json:"notes"`
}

// client is sharness-bash at the server of this session.
func (x *session) client(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program(x.t, "sharness-bash"), args...)
	cmd.Dir = filepath.Join(x.workspace, dir)
	cmd.Env = []string{"SHARNESS_SOCKET=" + x.socket, "PATH=/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"}
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// run runs a script as one command in a folder of the workspace.
func (x *session) run(dir, script string) reply {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), 4*time.Minute)
	defer cancel()
	r, err := decode(x.client(ctx, dir, "--json", "-c", script))
	if err != nil {
		x.t.Fatalf("command %.60q: %v\n%s", script, err, x.stderr)
	}
	return r
}

func decode(cmd *exec.Cmd) (reply, error) {
	var r reply
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if uerr := json.Unmarshal(out, &r); uerr != nil {
		return r, fmt.Errorf("%v; %w in %.200q; stderr %.300q", err, uerr, out, errs.String())
	}
	return r, nil
}

// events reads the log so far: a line that is being written shows in part.
func (x *session) events() []event.Event {
	x.t.Helper()
	data, err := os.ReadFile(x.log)
	if err != nil && !os.IsNotExist(err) { // it is made a moment after the start
		x.t.Fatal(err)
	}
	var out []event.Event
	torn := x.torn
	for line := range bytes.Lines(data[:bytes.LastIndexByte(data, '\n')+1]) {
		e, err := event.Parse(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil && torn > 0 {
			torn--
			continue
		}
		if err != nil {
			x.t.Errorf("event log: %v in %.200q", err, line)
			continue
		}
		out = append(out, *e)
	}
	return out
}

// wantEvent waits until the log holds one that fits.
func (x *session) wantEvent(what string, fits func(event.Event) bool) {
	x.t.Helper()
	for deadline := time.Now().Add(kerneltest.Within(x.t, 5*time.Second)); !x.saw(fits); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			x.t.Errorf("no event: %s; the last are %s", what, lastOf(x.events()))
			return
		}
	}
}

func (x *session) saw(fits func(event.Event) bool) bool { return slices.ContainsFunc(x.events(), fits) }

func lastOf(all []event.Event) string {
	var b strings.Builder
	for _, e := range all[max(0, len(all)-8):] {
		line, _ := json.Marshal(e)
		fmt.Fprintf(&b, "\n\t%.300s", line)
	}
	return b.String()
}

// wantNoDenials checks that nothing which was tried was denied; the self-probe is denied on purpose.
func (x *session) wantNoDenials() {
	x.t.Helper()
	for _, e := range x.events() {
		if e.Type.Denial() && e.Phase != "probe" {
			line, _ := json.Marshal(e)
			x.t.Errorf("denied: %.500s", line)
		}
	}
}

// tree tells name, mode, owner, links, time of change and size of everything below dir.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		st := fi.Sys().(*syscall.Stat_t)
		size := st.Size
		if fi.IsDir() {
			size = 0
		}
		all[path] = fmt.Sprintf("%v %d:%d nlink %d size %d mtime %d", fi.Mode(), st.Uid, st.Gid, st.Nlink, size, fi.ModTime().UnixNano())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
