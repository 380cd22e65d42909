package stage

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
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

func TestNamesOfARequestStayOutOfReports(t *testing.T) {
	const name = "/tmp/\x1b[2Jname of the domain's choice"
	for _, request := range []int{0, 7} {
		err := (&Plan{Request: request}).named("exec", name, unix.ENOENT)
		if strings.Contains(err.Error(), "name") || !errors.Is(err, unix.ENOENT) || !strings.HasPrefix(err.Error(), "exec: ") {
			t.Errorf("request %d: want the step and the errno alone, got %q", request, err)
		}
	}
	if err := (&Plan{Request: -1}).named("exec", "/usr/bin/x", unix.ENOENT); err.Error() != "exec /usr/bin/x: no such file or directory" {
		t.Errorf("without request: want the name of the plan, got %q", err)
	}
}

// The text of an outside error lists the plan's own folders, never what was asked for.
func TestCwdReportNamesOnlyFoldersOfThePlan(t *testing.T) {
	home, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	defer os.Chdir(home)
	for _, dir := range []string{"/proc/self/..", "/absent-as-asked"} {
		err := (&Plan{Request: 6}).named("cwd", dir, changeDir(dir, []string{"/workspace"}))
		if strings.Contains(err.Error(), "absent-as-asked") || strings.Contains(err.Error(), "self") {
			t.Errorf("%s: the report repeats what was asked: %q", dir, err)
		}
	}
}

func TestRequestIsReadStrictly(t *testing.T) {
	// A well-formed memfd whose path is not absolute: bashserver/wire would say so, with the path.
	relative := binary.LittleEndian.AppendUint32(nil, 0x31434853)
	const body = "garbage\x00/tmp\x00garbage\x00"
	for _, n := range []uint32{uint32(16 + len(body)), 1, 0} {
		relative = binary.LittleEndian.AppendUint32(relative, n)
	}
	for name, data := range map[string]string{"empty": "", "garbage": strings.Repeat("garbage\x00", 40), "relative path": string(relative) + body} {
		if cmd, err := readRequest(memfd(t, []byte(data))); err == nil || !strings.HasPrefix(err.Error(), "request: ") || strings.Contains(err.Error(), "garbage") {
			t.Errorf("%s: want an error that names the step alone, got %+v, %v", name, cmd, err)
		}
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
