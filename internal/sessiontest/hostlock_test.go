package sessiontest

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSignalEndsAStartThatWaitsForTheHostsLock(t *testing.T) {
	s := newSite(t, nil)
	if _, out := s.enforce("echo begun"); out != "begun\n" {
		t.Fatalf("without the lock: %q", out)
	}
	const path = "/run/sharness/locks/host"
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		lock.Close()
		s.enforce("true") // its end removes the folder
	})
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for verb, want := range map[string]int{"enforce": 128 + int(unix.SIGTERM), "serve": 0} {
		x := s.sharness(verb, map[string][]string{"enforce": {"--", "bash", "-c", "echo ran > ran"}}[verb]...)
		x.start()
		time.Sleep(time.Second) // it has come to the lock: a start takes a fifth of that
		if err := x.cmd.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		x.wait(5 * time.Second) // the lock is waited for 30 s
		if got := x.cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: status %d, want %d\n%s", verb, got, want, x.stderr)
		}
	}
	if got := s.lines("ran"); got != 0 {
		t.Error("the orchestrator has run")
	}
}
