package filter

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/confine"
	"github.com/sharness/sharness/internal/kerneltest"
)

// helperInput is what testdata/helper reads.
type helperInput struct {
	Drop confine.Drop
	Dir  string
	Port int
}

// The helper program is built as the real ones are, without cgo: only there do all threads follow.
func buildHelper(t *testing.T) string {
	t.Helper()
	path := filepath.Join(ownFolder(t), "helper")
	build := exec.Command("go", "build", "-o", path, "./testdata/helper")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

func TestHelperIsConfinedAndStillWorks(t *testing.T) {
	kerneltest.RequireRoot(t)
	kerneltest.RequireLandlock(t, 6)
	program := buildHelper(t)
	dir := ownFolder(t)
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(dir, "f"), testUID, testUID); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port

	eperm, eacces := unix.EPERM.Error(), unix.EACCES.Error()
	always := map[string]string{
		"runtime": "", "descriptor": "", "fork": eperm, "raw socket": eperm, "vsock": eperm, "kill": eperm, "ptrace": eperm,
		"process": eperm, "seccomp": eperm, "raise": eperm,
	}
	for _, c := range []struct {
		name  string
		o     Options
		layer confine.Landlock
		want  map[string]string
	}{
		{"nothing", Options{}, confine.Landlock{},
			map[string]string{"seal": eperm, "dial": eperm, "listen": eperm, "file": eperm, "watch": eperm}},
		{"memfd", Options{Memfd: true}, confine.Landlock{},
			map[string]string{"seal": "", "dial": eperm, "listen": eperm, "file": eperm, "watch": eperm}},
		{"network", Options{Network: true}, confine.Landlock{TCP: []uint16{uint16(port)}},
			map[string]string{"seal": eperm, "dial": "", "listen": eacces, "file": eperm, "watch": eperm}},
		{"other port", Options{Network: true}, confine.Landlock{TCP: []uint16{1}},
			map[string]string{"seal": eperm, "dial": eacces, "listen": eacces, "file": eperm, "watch": eperm}},
		{"files", Options{Files: true}, confine.Landlock{Paths: []confine.PathRule{{Path: dir, Access: confine.AccessRead}}},
			map[string]string{"seal": eperm, "dial": eperm, "listen": eperm, "file": "", "watch": ""}},
		{"change", Options{Files: true, Change: true},
			confine.Landlock{Paths: []confine.PathRule{{Path: dir, Access: confine.AccessRead | confine.AccessWrite}}},
			map[string]string{"rename": "", "strip": "", "set": eperm}},
		{"files only", Options{Files: true},
			confine.Landlock{Paths: []confine.PathRule{{Path: dir, Access: confine.AccessRead | confine.AccessWrite}}},
			map[string]string{"rename": eperm, "strip": eperm, "set": eperm}},
		{"other files", Options{Files: true}, confine.Landlock{},
			map[string]string{"seal": eperm, "dial": eperm, "listen": eperm, "file": eacces}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Kind = Helper
			c.layer.ABI, c.layer.FS, c.layer.Net, c.layer.Scoped = 6, true, true, true
			drop := confine.Drop{Keep: []int{5, 6}, Landlock: c.layer, Seccomp: mustCompile(t, c.o)}
			got := runHelper(t, program, helperInput{drop, dir, port})
			for _, want := range []map[string]string{always, c.want} {
				for name, w := range want {
					if g, ok := got[name]; !ok || g != w {
						t.Errorf("%s: want %q, got %q", name, w, g)
					}
				}
			}
		})
	}
}

func runHelper(t *testing.T, program string, in helperInput) map[string]string {
	t.Helper()
	input, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	a, b := os.NewFile(uintptr(pair[0]), "a"), os.NewFile(uintptr(pair[1]), "b")
	defer a.Close()
	defer b.Close()
	var out, errs bytes.Buffer
	cmd := exec.Command(program)
	cmd.Env = []string{}
	cmd.ExtraFiles = []*os.File{null, null, a, b}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testUID, Gid: testUID}}
	if err := cmd.Run(); err != nil {
		t.Fatalf("helper: %v\n%s", err, &errs)
	}
	t.Log(errs.String())
	var got map[string]string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("helper: decode %q: %v", &out, err)
	}
	return got
}
