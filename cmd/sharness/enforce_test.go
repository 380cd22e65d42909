package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
	"github.com/sharness/sharness/launcher/pin"
)

// TestEnforce runs the scripts of sessions and of refusals with the binaries that make build leaves in bin. Commands of
// the scripts beside testscript's own:
//
//	manifest FILE CMD[,CMD…] [EXTRA]   writes a manifest that pins the commands; EXTRA is a file of further keys
//	exit STATUS PROGRAM ARG…           runs a program that must end with this status
//	refused STATUS PROGRAM ARG…        the same, and it says one line and leaves no trace on the host
func TestEnforce(t *testing.T) {
	kerneltest.RequireRoot(t)
	root := sessionRoot(t)
	var files []string
	for _, name := range []string{"enforce", "serve", "gc", "badinput", "prove"} {
		found, err := filepath.Glob("testdata/" + name + "*.txtar")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	testscript.Run(t, testscript.Params{
		Files: files, WorkdirRoot: root, RequireExplicitExec: true, Condition: scriptSince(t),
		Setup: func(e *testscript.Env) error {
			// The scripts run the built sharness and not the test binary's: its helpers lie beside it.
			own, _, _ := strings.Cut(e.Getenv("PATH"), ":")
			e.Setenv("CONTAINED", filepath.Join(own, "contained"))
			e.Setenv("PATH", filepath.Dir(builtSharness(t))+":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
			e.Setenv("SUDO_UID", "")
			// Names the script's sessions, and with them all that one can leave on a host.
			name := "test-" + strings.TrimPrefix(filepath.Base(e.WorkDir), "script-")
			e.Setenv("NAME", name)
			e.Setenv("LONG", strings.Repeat("x", 5000))
			e.Defer(func() {
				forget(t, name)
				kerneltest.ForgetWorkspaces(t, e.WorkDir)
			})
			return os.Chmod(e.WorkDir, 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"manifest": scriptManifest, "exit": scriptExit, "refused": scriptRefused,
		},
	})
}

// sessionRoot is a folder of root's: below /tmp nothing may be pinned.
func sessionRoot(t *testing.T) string {
	t.Helper()
	root, err := os.MkdirTemp("/var/lib", "sharness-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		kerneltest.ForgetWorkspaces(t, root)
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

func builtSharness(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs("../../bin/sharness")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; run: make build", err)
	}
	return path
}

const idRegistry = "/var/lib/sharness/uids"

// forget removes what sessions leave by design, the id and the log, and wants nothing else of them to be there. It looks
// for this name alone: other packages' tests run sessions at the same time.
func forget(t *testing.T, name string) {
	t.Helper()
	var processes string
	var err error
	// Children of a supervisor that was killed are reaped by the host's pid 1, when it comes to that.
	for deadline := time.Now().Add(3 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if processes, err = processesOf(name); err != nil || processes == "" || time.Now().After(deadline) {
			break
		}
	}
	if err := errors.Join(err, forgetID(name), os.RemoveAll("/var/log/sharness/"+name+".jsonl")); err != nil {
		t.Error(err)
	}
	if left := hostTraces(name, "") + processes; left != "" {
		t.Errorf("sessions of %s left behind:\n%s", name, left)
	}
}

// processesOf lists the processes with an id of a manifest's: the orchestrator's, a command's or a helper's.
func processesOf(name string) (string, error) {
	ids, err := os.ReadFile(idRegistry)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	var out strings.Builder
	for line := range strings.Lines(string(ids)) {
		var id int
		var owner string
		if _, err := fmt.Sscan(line, &id, &owner); err != nil || owner != name {
			continue
		}
		n := id - 1900000000
		statuses, err := filepath.Glob("/proc/[0-9]*/status")
		if err != nil {
			return "", err
		}
		for _, path := range statuses {
			status, err := os.ReadFile(path)
			if err != nil {
				continue // ended meanwhile
			}
			var comm string
			var uid int
			for field := range strings.Lines(string(status)) {
				fmt.Sscanf(field, "Name: %s", &comm)
				fmt.Sscanf(field, "Uid: %d", &uid)
			}
			if slot, helper := uid-1900100000, uid-1900200000; uid == id || slot >= 0 && slot/256 == n || helper >= 0 && helper/3 == n {
				fmt.Fprintf(&out, "\t%s %s, uid %d\n", filepath.Dir(path), comm, uid)
			}
		}
	}
	return out.String(), nil
}

// forgetID takes a manifest's line out of the registry of ids, under the lock that sessions take to start.
func forgetID(name string) error {
	for {
		if err := os.MkdirAll("/run/sharness/locks", 0o711); err != nil {
			return err
		}
		lock, err := os.OpenFile("/run/sharness/locks/host", os.O_CREATE|os.O_RDWR, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the last session has just removed the folder
		}
		if err != nil {
			return err
		}
		defer lock.Close()
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
			return err
		}
		mine, err := lock.Stat()
		if now, nerr := os.Lstat(lock.Name()); err == nil && nerr == nil && os.SameFile(mine, now) {
			break
		}
	}
	data, err := os.ReadFile(idRegistry)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var kept []byte
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte(" "+name+"\n")) {
			kept = append(kept, line...)
		}
	}
	// Beside and renamed, as sharness does it: others read the file at any moment.
	beside := fmt.Sprintf("%s.test-%d", idRegistry, os.Getpid())
	if err := os.WriteFile(beside, kept, 0o600); err != nil {
		return err
	}
	return os.Rename(beside, idRegistry)
}

// pinnedManifest is a manifest by hand: the closure of the commands, the first being the command, and further keys.
func pinnedManifest(name string, commands []string, extra string) (string, error) {
	var execs, libraries []string
	var program string
	for i, cmd := range commands {
		c, err := pin.Resolve(cmd, "/usr/bin:/bin:/usr/sbin:/sbin")
		if err != nil {
			return "", err
		}
		if i == 0 {
			program = c.Program
		}
		for _, e := range c.Exec {
			execs = append(execs, fmt.Sprintf("  - {path: %s, sha256: %s, role: %s}\n", e.Path, e.SHA256, e.Role))
		}
		for _, l := range c.Libraries {
			libraries = append(libraries, fmt.Sprintf("  - {path: %s, sha256: %s}\n", l.Path, l.SHA256))
		}
	}
	unique := func(list []string) string {
		slices.Sort(list)
		return strings.Join(slices.Compact(list), "")
	}
	text := "version: 1\nexec:\n" + unique(execs)
	if len(libraries) > 0 {
		text += "libraries:\n" + unique(libraries)
	}
	for _, def := range []string{"name: " + name, "command: [" + program + "]", "read: [/usr]", "workspace: {path: ., orchestrator: write}", "sandbox: {}"} {
		key, _, _ := strings.Cut(def, " ")
		if !strings.HasPrefix(extra, key) && !strings.Contains(extra, "\n"+key) {
			text += def + "\n"
		}
	}
	return text + extra, nil
}

func scriptManifest(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: manifest FILE CMD[,CMD…] [EXTRA]")
	}
	extra := ""
	if len(args) == 3 {
		extra = os.Expand(ts.ReadFile(args[2]), ts.Getenv)
	}
	text, err := pinnedManifest(ts.Getenv("NAME"), strings.Split(args[1], ","), extra)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o644))
}

func scriptExit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exit STATUS PROGRAM ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got, exit := 0, new(exec.ExitError)
	if errors.As(err, &exit) {
		got, err = exit.ExitCode(), nil
	}
	ts.Check(err)
	if got != want {
		ts.Fatalf("exit status: got %d, want %d", got, want)
	}
}

func scriptRefused(ts *testscript.TestScript, neg bool, args []string) {
	before := hostTraces(ts.Getenv("NAME"), ts.Getenv("WORK"))
	scriptExit(ts, neg, args)
	if after := hostTraces(ts.Getenv("NAME"), ts.Getenv("WORK")); after != before {
		ts.Fatalf("a refusal left traces:\n%s", onlyIn(after, before)+onlyIn(before, after))
	}
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("a refusal wrote to its output: %q", out)
	}
	if said := ts.ReadFile("stderr"); strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "sharness: ") {
		ts.Fatalf("want one line, got:\n%s", said)
	}
}

// hostTraces is what a session of these tests can leave: runtime folders, groups, quarantine, log, id; and everything in
// the folder of the test.
func hostTraces(name, work string) string {
	var b strings.Builder
	for _, pattern := range []string{"/run/sharness/%s-*", "/sys/fs/cgroup/sharness/%s-*", "/sys/fs/cgroup/*/sharness/%s-*",
		"/var/lib/sharness/quarantine/%s-*", "/var/lib/sharness/%s", "/var/log/sharness/%s.jsonl"} {
		found, _ := filepath.Glob(fmt.Sprintf(pattern, name)) // the pattern is well-formed
		for _, path := range found {
			fi, err := os.Lstat(path)
			if err == nil {
				fmt.Fprintf(&b, "%s %d\n", path, fi.Size())
			}
		}
	}
	if ids, err := os.ReadFile(idRegistry); err == nil {
		for line := range strings.Lines(string(ids)) {
			if strings.HasSuffix(line, " "+name+"\n") {
				b.WriteString(line)
			}
		}
	}
	_ = filepath.WalkDir(work, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if fi, err := d.Info(); err == nil {
			st := fi.Sys().(*syscall.Stat_t)
			fmt.Fprintf(&b, "%s %v %d:%d %d %v\n", path, fi.Mode(), st.Uid, st.Gid, fi.Size(), fi.ModTime())
			// The lock of a workspace.
			if lock, err := os.Lstat(fmt.Sprintf("/run/sharness/locks/%x-%x", st.Dev, st.Ino)); err == nil {
				fmt.Fprintf(&b, "lock of %s %v\n", path, lock.ModTime())
			}
		}
		return nil
	})
	return b.String()
}

// onlyIn lists the lines that only the first of two texts has.
func onlyIn(a, b string) string {
	var out strings.Builder
	for line := range strings.Lines(a) {
		if !strings.Contains(b, line) {
			out.WriteString("\t" + line)
		}
	}
	return out.String()
}
