package protect

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// In /proc nobody makes a file, so that the host's clock has to do.
func TestBeginDividesWhatWasThereFromWhatComes(t *testing.T) {
	dir := t.TempDir()
	made := func(name string) time.Time {
		var st unix.Stat_t
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		return time.Unix(st.Ctim.Unix())
	}
	for _, at := range []string{dir, "/proc"} {
		root, err := os.Open(at)
		if err != nil {
			t.Fatal(err)
		}
		before := made("before")
		begin := Begin(int(root.Fd()))
		after := made("after")
		root.Close()
		if !before.Before(begin) || after.Before(begin) {
			t.Errorf("%s: %v was there, the session begins at %v, %v came", at, before, begin, after)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("got %v, %v: want nothing left", entries, err)
	}
}
