package sessiontest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What a session that was killed left in /var/lib/sharness, whose folder in /run went with the last boot.
func TestGCRemovesWhatAKilledSessionLeftBeforeTheLastBoot(t *testing.T) {
	const kept, id = "/var/lib/sharness/quarantine", name + "-dead"
	empty, full := filepath.Join(kept, id), filepath.Join(kept, id+"-full")
	written := "/var/lib/sharness/protected/path-" + id + ".json.new"
	for _, dir := range []string{filepath.Join(empty, "RANDOM"), filepath.Join(full, "RANDOM", "taken"), filepath.Dir(written)} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { os.RemoveAll(full) })
	old := time.Now().Add(-time.Hour)
	if err := errors.Join(os.WriteFile(written, []byte("{"), 0o600), os.Chtimes(written, old, old)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program(t, "sharness"), "gc").CombinedOutput(); err != nil {
		t.Fatalf("gc: %v\n%s", err, out)
	} else if !strings.Contains(string(out), empty) || !strings.Contains(string(out), written) {
		t.Errorf("gc did not say what it removed: %s", out)
	}
	for _, path := range []string{empty, written} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want it gone", path, err)
		}
	}
	if _, err := os.Lstat(full); err != nil {
		t.Errorf("what was taken out of a workspace is the user's: %v", err)
	}
}

// A container may have the host's /var/lib and a /run of its own.
func TestGCFromElsewhereLeavesWhatALiveSessionUses(t *testing.T) {
	s := newSite(t, nil)
	x := s.serve()
	id, _ := x.id()
	dir, written := filepath.Join("/var/lib/sharness/quarantine", id), "/var/lib/sharness/protected/path-"+id+".json.new"
	if err := os.WriteFile(written, []byte("{"), 0o600); err != nil { // as another session does just now
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(written) })
	gc := exec.Command("unshare", "--mount", "--propagation", "private", "/bin/sh", "-ec", "mount -t tmpfs none /run; exec \"$1\" gc", "sh", program(t, "sharness"))
	if out, err := gc.CombinedOutput(); err != nil {
		t.Fatalf("gc: %v\n%s", err, out)
	}
	for _, path := range []string{dir, written} {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("gc took it: %v", err)
		}
	}
	x.stop()
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s after the session: %v, want it gone", dir, err)
	}
}

// A client that is told to end ends, though what its command has printed waits for a reader that never comes.
func TestClientThatIsToldToEndDoesNotWaitForAReader(t *testing.T) {
	s := newSite(t, nil)
	x := s.serve()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := x.client(ctx, "", "-c", "touch running; yes | head -c 20000000; sleep 1000")
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	for _, err := os.Stat(filepath.Join(x.workspace, "running")); err != nil && ctx.Err() == nil; _, err = os.Stat(filepath.Join(x.workspace, "running")) {
		time.Sleep(5 * time.Millisecond)
	}
	for full := 0; full < 65536 && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		if full, err = unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ); err != nil {
			t.Fatal(err)
		}
	}
	cmd.Process.Signal(syscall.SIGTERM)
	err = cmd.Wait()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ctx.Err() != nil || !ok || ws.Signal() != syscall.SIGTERM {
		t.Errorf("the client: %v, %v; want it to end by SIGTERM", err, ctx.Err())
	}
	x.stop()
}
