package agent

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/sharness/sharness/bpf"
	"github.com/sharness/sharness/internal/kerneltest"
)

var processed = regexp.MustCompile(`processed (\d+) insns`)

// The verifier's work is the first thing that another compiler or kernel changes, long before it refuses a program.
// testdata/verifier.txt holds it per kernel; a kernel that is not in it is compared with the largest of all.
func TestVerifierWorksAsMuchAsRecorded(t *testing.T) {
	kerneltest.RequireRoot(t)
	spec, err := bpf.LoadTrace()
	if err != nil {
		t.Fatal(err)
	}
	if err := configure(spec, Options{Cgroups: make([]string, MaxCgroups), Maps: true, Files: true, Tried: true}, true); err != nil {
		t.Fatal(err)
	}
	loaded, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}})
	var refused *ebpf.VerifierError
	if errors.As(err, &refused) {
		t.Fatalf("%v\n%s", err, strings.Join(refused.Log, "\n"))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer loaded.Close()
	if hook := hookProgram(t, loaded); hook != nil {
		loaded.Programs["hook"] = hook
	}
	kernel := kerneltest.Running(t).String()
	recorded := verifierCounts(t)
	for name, p := range loaded.Programs {
		m := processed.FindStringSubmatch(p.VerifierLog)
		if m == nil {
			t.Fatalf("%s: no count in %q", name, p.VerifierLog)
		}
		got, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s %s %s %d", kernel, runtime.GOARCH, name, got)
		want, known := recorded[fmt.Sprintf("%s %s %s", kernel, runtime.GOARCH, name)]
		if !known {
			for key, n := range recorded {
				if strings.HasSuffix(key, " "+name) {
					want = max(want, n)
				}
			}
		}
		if got > want+want/4 || known && got < want-want/4 {
			t.Errorf("%s: the verifier processed %d instructions, recorded are %d", name, got, want)
		}
	}
}

// hookProgram is one of the hooks, which are the same but for where they are attached. It is nil where the kernel takes none.
func hookProgram(t *testing.T, trace *ebpf.Collection) *ebpf.Program {
	t.Helper()
	spec, err := bpf.LoadHooks()
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.Variables["slots"].Set(uint32(MaxCgroups)); err != nil {
		t.Fatal(err)
	}
	loaded, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats},
		MapReplacements: map[string]*ebpf.Map{"cgroups": trace.Maps["cgroups"], "verdicts": trace.Maps["verdicts"]}})
	var refused *ebpf.VerifierError
	if errors.As(err, &refused) && len(refused.Log) > 0 {
		t.Fatalf("hooks: %v\n%s", err, strings.Join(refused.Log, "\n"))
	}
	if err != nil {
		t.Logf("hooks: %v", err)
		return nil
	}
	defer loaded.Close()
	return loaded.DetachProgram("file_open")
}

func verifierCounts(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile("testdata/verifier.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		n, err := strconv.Atoi(line[i+1:])
		if i < 0 || err != nil {
			t.Fatalf("testdata/verifier.txt: %q", line)
		}
		out[line[:i]] = n
	}
	return out
}
