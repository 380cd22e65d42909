package launcher

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharness/sharness/internal/kerneltest"
	"github.com/sharness/sharness/launcher/host"
	"golang.org/x/sys/unix"
)

func TestLockThatSomebodyKeepsIsNotWaitedForForEver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	kept, other := open(), open()
	if err := awaitLock(kept, time.Hour, nil); err != nil {
		t.Fatalf("a lock that is free: %v", err)
	}
	if err := awaitLock(other, 20*time.Millisecond, nil); err == nil || !strings.Contains(err.Error(), "another process has held it for 20ms") {
		t.Errorf("a lock that is kept: %v", err)
	}
	enough := errors.New("enough")
	if err := awaitLock(other, time.Hour, func() error { return enough }); !errors.Is(err, enough) {
		t.Errorf("a start that is to end: %v", err)
	}
	if err := unix.Flock(int(kept.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if err := awaitLock(other, time.Hour, func() error { return enough }); err != nil {
		t.Errorf("a lock that is free again: %v", err)
	}
}

// A supervisor that is killed while it looks at the host leaves the group that it looked at.
func TestGCRemovesTheGroupsOfProbesThatDied(t *testing.T) {
	kerneltest.RequireRoot(t)
	root := cgroupMount
	if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
		root = filepath.Join(root, "unified")
	}
	ended := exec.Command("/bin/true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	dead, alive := fmt.Sprintf("%s%d-x", host.ProbeGroup, ended.Process.Pid), fmt.Sprintf("%s%d-x", host.ProbeGroup, os.Getpid())
	for _, name := range []string{dead, alive} {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(dir)
	}
	if removed := removeProbeGroups(); !slices.Contains(removed, filepath.Join(root, dead)) || slices.Contains(removed, filepath.Join(root, alive)) {
		t.Errorf("got %q, want %s alone", removed, dead)
	}
}
