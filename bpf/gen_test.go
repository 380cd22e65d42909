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
	kerneltest.RequireProgram(t, "/usr/bin/clang-19")
	kerneltest.RequireProgram(t, "/usr/bin/llvm-strip-19")
	source, err := os.ReadFile("gen.go")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for line := range strings.Lines(string(source)) {
		args, found := strings.CutPrefix(strings.TrimSpace(line), "//go:generate go ")
		if !found {
			continue
		}
		words := strings.Fields(args)
		words = append([]string{words[0], words[1], "-output-dir", dir}, words[2:]...)
		cmd := exec.Command("go", words...)
		cmd.Env = append(os.Environ(), "GOPACKAGE=bpf")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("bpf2go: %v\n%s", err, out)
		}
	}
	made, err := filepath.Glob(filepath.Join(dir, "*_bpfel.*"))
	if err != nil || len(made) != 8 {
		t.Fatalf("got %v, %v, want two objects and their Go for each of two architectures", made, err)
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
