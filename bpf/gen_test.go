package bpf

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sharness/sharness/internal/kerneltest"
)

func TestGeneratedFilesAreThoseOfTheSource(t *testing.T) {
	kerneltest.RequireProgram(t, "/usr/bin/clang-14")
	kerneltest.RequireProgram(t, "/usr/bin/llvm-strip-14")
	source, err := os.ReadFile("gen.go")
	if err != nil {
		t.Fatal(err)
	}
	_, line, found := strings.Cut(string(source), "//go:generate go ")
	if !found {
		t.Fatal("gen.go has no go:generate line")
	}
	dir := t.TempDir()
	args := strings.Fields(line)
	args = append([]string{args[0], args[1], "-output-dir", dir}, args[2:]...)
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOPACKAGE=bpf")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("bpf2go: %v\n%s", err, out)
	}
	made, err := filepath.Glob(filepath.Join(dir, "trace_*"))
	if err != nil || len(made) != 4 {
		t.Fatalf("got %v, %v, want an object and its Go for each of two architectures", made, err)
	}
	for _, file := range made {
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Base(file))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the source gives (%v): run make generate", filepath.Base(file), err)
		}
	}
}
