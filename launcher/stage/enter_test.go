package stage

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestChangeDirAsksTheKernelWhereItIs(t *testing.T) {
	home, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	defer os.Chdir(home)
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ws, state := filepath.Join(base, "ws"), filepath.Join(base, "state")
	for _, d := range []string{filepath.Join(ws, "a/b"), state, ws + "2"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"out": "/", "up": "..", "in": "a/b", "loop": "loop", "to-state": state} {
		if err := os.Symlink(target, filepath.Join(ws, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(ws, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, dir string
		want      error
	}{
		{"the folder itself", ws, nil},
		{"below", ws + "/a/b", nil},
		{"link that stays inside", ws + "/in", nil},
		{"dots that stay inside", ws + "/a/../a/b/..", nil},
		{"in through the outside", ws + "/../ws/a", nil},
		{"second folder of the list", state, nil},
		{"link to the second folder", ws + "/to-state", nil},
		{"dots that leave", ws + "/..", unix.EACCES},
		{"link to the root", ws + "/out", unix.EACCES},
		{"link to the parent", ws + "/up", unix.EACCES},
		{"link and dots", ws + "/in/../../..", unix.EACCES},
		{"name with the folder's as prefix", ws + "2", unix.EACCES},
		{"elsewhere", "/", unix.EACCES},
		{"file", ws + "/file", unix.ENOTDIR},
		{"nothing", ws + "/absent", unix.ENOENT},
		{"link to itself", ws + "/loop", unix.ELOOP},
		{"empty", "", unix.ENOENT},
	} {
		err := changeDir(c.dir, []string{ws, state + "/"})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: want %v, got %v", c.name, c.want, err)
		}
	}
	if err := changeDir("/", nil); err != nil {
		t.Errorf("no list: want any folder to do, got %v", err)
	}
	if err := changeDir(ws+"/a", []string{"/"}); err != nil {
		t.Errorf("below /: want any folder to do, got %v", err)
	}
}

func TestChangeDirRefusesAFolderThatIsGone(t *testing.T) {
	home, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	defer os.Chdir(home)
	gone := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(gone, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chdir(gone); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	if err := changeDir(".", []string{filepath.Dir(gone)}); err == nil {
		t.Error("want a folder without a name refused")
	}
}

func TestReleaseWithoutAWordIsAnError(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(r.Fd()))
	r.Close()
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if err := waitRelease(fd); err == nil {
		t.Error("want EOF refused: pid 1 ended before it was ready")
	}
}
