package sink

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
)

var nobody = &IDs{UID: 1900099998, GID: 1900099998, Groups: []int{1900099997}}

// openDir is a folder that other users reach, unlike t.TempDir.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sharness-sink-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestLogIsOpenedWithTheUsersReach(t *testing.T) {
	kerneltest.RequireRoot(t)
	dir := openDir(t)
	path := filepath.Join(dir, "log")
	spec := Spec{File, path}
	if _, err := Open(spec, nobody); !errors.Is(err, unix.EACCES) {
		t.Errorf("in a folder of root: got %v, want EACCES", err)
	}
	if err := os.Chown(dir, 0, nobody.Groups[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o770); err != nil {
		t.Fatal(err)
	}
	o, err := Open(spec, nobody) // reached through a supplementary group
	if err != nil {
		t.Fatal(err)
	}
	defer o.File.Close()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	if int(st.Uid) != nobody.UID || int(st.Gid) != nobody.GID || st.Mode&0o777&^0o640 != 0 {
		t.Errorf("got %d:%d mode %o, want the user's with at most 640", st.Uid, st.Gid, st.Mode)
	}
	// The reach ended with the call: as ourselves we still write where the user may not.
	if _, err := os.Create(filepath.Join(openDir(t), "x")); err != nil {
		t.Error(err)
	}
	if n, err := unix.SetfsuidRetUid(-1); err != nil || n != 0 {
		t.Errorf("fsuid: got %d, %v, want 0", n, err)
	}
}

func TestLogRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "real"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "fifo", ".", "missing/log"} {
		if o, err := Open(Spec{File, filepath.Join(dir, name)}, nil); err == nil {
			o.File.Close()
			t.Errorf("%s was opened", name)
		}
	}
	if o, err := Open(Spec{File, "/dev/null"}, nil); err == nil {
		o.File.Close()
		t.Error("a device was opened")
	}
}

func TestLogIsOnlyAppendedTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := openFile(t, path)
	defer o.File.Close()
	flags, err := unix.FcntlInt(o.File.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_APPEND == 0 {
		t.Errorf("flags: got %#x, %v, want O_APPEND", flags, err)
	}
	if b, _ := os.ReadFile(path); string(b) != "before\n" {
		t.Errorf("got %q, want it untouched", b)
	}
}

func TestLineThatWasCutOffEndsBeforeTheNext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("before\n{\"schema\":1,"), 0o200); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds nothing to do
		openFile(t, path).File.Close()
		if b, _ := os.ReadFile(path); string(b) != "before\n{\"schema\":1,\n" {
			t.Errorf("got %q", b)
		}
	}
}
