package launcher

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
