package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sharness/sharness/internal/kerneltest"
)

func TestTestsFindThePaceWhereTheyLookForIt(t *testing.T) {
	if paceEnv != kerneltest.PaceEnv {
		t.Errorf("got %s, want %s", paceEnv, kerneltest.PaceEnv)
	}
}

// Results of subtests stand at the end of their test, far from what they said.
const output = `=== RUN   TestA
=== RUN   TestA/old
    a_test.go:1: kernel 6.1 is older than Landlock ABI 6 (the kernel has 2, errno 0), which came with 6.12
=== RUN   TestA/lazy
    a_test.go:2: no time
=== RUN   TestA/wrong
    a_test.go:3: got 1, want 2
--- FAIL: TestA (0.10s)
    --- SKIP: TestA/old (0.00s)
    --- SKIP: TestA/lazy (0.00s)
    --- FAIL: TestA/wrong (0.00s)
=== RUN   TestB
    b_test.go:1: chatter
--- PASS: TestB (0.00s)
FAIL`

func TestSkipsWithoutAnOldKernelAreFailures(t *testing.T) {
	o := outcome{lines: strings.Split(output, "\n"), ended: true}
	o.count()
	if o.passed != 1 || o.failed != 2 || o.skipped != 2 {
		t.Errorf("got %d passed, %d failed, %d skipped, want 1, 2, 2", o.passed, o.failed, o.skipped)
	}
	if want := []string{"TestA/lazy"}; !slices.Equal(o.unexplained, want) || !o.bad() {
		t.Errorf("skipped without a reason: got %q, want %q", o.unexplained, want)
	}
}

func TestFailedJobShowsWhatFailedTestsSaid(t *testing.T) {
	o := outcome{lines: strings.Split(output, "\n"), ended: true, exit: 1}
	said := strings.Join(o.telling(), "\n")
	if !strings.Contains(said, "got 1, want 2") || !strings.Contains(said, "--- FAIL: TestA/wrong") || strings.Contains(said, "chatter") {
		t.Errorf("got %q", said)
	}
}

func TestFailedProgramShowsWhatItSaidLast(t *testing.T) {
	lines := strings.Split(strings.Repeat("closed\n", 100)+"NOT PROVEN", "\n")
	prove := &outcome{name: "prove", lines: lines, ended: true, exit: 1}
	r := &report{kernel: kernel{name: "newest"}, jobs: []*outcome{prove}}
	var said strings.Builder
	r.print(&said)
	if got := strings.Split(said.String(), "\n"); len(got) > 16 || !strings.Contains(said.String(), "\tNOT PROVEN\n") {
		t.Errorf("got %d lines:\n%s", len(got), said.String())
	}
	if err := summary(&said, []*report{r}); err == nil || !strings.Contains(err.Error(), "newest/prove") {
		t.Errorf("got %v, want it to name the job", err)
	}
}

func TestModulesComeAfterWhatTheyNeed(t *testing.T) {
	const dep = `kernel/drivers/virtio/virtio_pci.ko.xz: kernel/drivers/virtio/virtio.ko.xz kernel/drivers/virtio/virtio_ring.ko.xz
kernel/drivers/virtio/virtio_ring.ko.xz: kernel/drivers/virtio/virtio.ko.xz
kernel/drivers/virtio/virtio.ko.xz:
kernel/net/other.ko.xz:
`
	got, err := closure(dep, []string{"virtio_pci", "built_in"})
	want := []string{"kernel/drivers/virtio/virtio.ko.xz", "kernel/drivers/virtio/virtio_ring.ko.xz", "kernel/drivers/virtio/virtio_pci.ko.xz"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

// Since 7.2 Debian keeps the kernel beside its modules.
func TestKernelIsFoundWhereDebianPutsIt(t *testing.T) {
	const release = "7.2.13-cloud-amd64"
	for name, c := range map[string]struct{ image, modules string }{
		"boot":           {"boot/vmlinuz-" + release, "lib/modules/" + release},
		"merged usr":     {"boot/vmlinuz-" + release, "usr/lib/modules/" + release},
		"beside modules": {"usr/lib/modules/" + release + "/vmlinuz", "usr/lib/modules/" + release},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			place(t, filepath.Join(dir, c.image))
			place(t, filepath.Join(dir, c.modules, "modules.dep"))
			k, err := open("newest", dir)
			if err != nil {
				t.Fatal(err)
			}
			want := kernel{name: "newest", dir: dir, release: release, image: filepath.Join(dir, c.image), modules: filepath.Join(dir, c.modules)}
			if k != want {
				t.Errorf("got %+v, want %+v", k, want)
			}
			place(t, filepath.Join(dir, "boot", "vmlinuz-second"))
			if _, err := open("newest", dir); err == nil || !strings.Contains(err.Error(), "want one kernel") {
				t.Errorf("two kernels: got %v, want an error", err)
			}
		})
	}
}

func place(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// A machine that ends early has said what it has said; its last line may be cut.
func TestWhatAMachineSaidComesHomeAsFiles(t *testing.T) {
	dir := t.TempDir()
	channel := filepath.Join(dir, "said.jsonl")
	const said = `{"Job":"","Fact":"6.1.0"}
{"Job":"","Pace":2}
{"Job":"prove","Start":true}
{"Job":"prove","Out":"all closed"}
{"Job":"prove","File":"../evidence.md","Data":"IyA2LjE="}
{"Job":"prove","Exit":0,"Took":1}
{"Job":"agent","Start":true}
{"Job":"agent","Ou`
	if err := os.WriteFile(channel, []byte(said), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := readReport(kernel{name: "6.1"}, channel, dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.release != "6.1.0" || r.pace != 2 || len(r.jobs) != 2 || r.jobs[0].bad() || !r.jobs[1].bad() {
		t.Errorf("got %+v", r)
	}
	for name, want := range map[string]string{"prove.txt": "all closed\n", "evidence.md": "# 6.1"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
	}
}
