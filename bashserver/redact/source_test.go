package redact

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Source that an agent reads must not be full of marks. This is a sample of Go's own; make bench BENCH=filter takes 100 MiB
// and logs. docs/secrets.md states the rates.
func TestFewMarksInSource(t *testing.T) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	n := 0
	err = filepath.WalkDir(filepath.Join(strings.TrimSpace(string(root)), "src"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.HasSuffix(path, ".go") {
			return err
		}
		if n++; n%8 != 0 {
			return nil
		}
		b, err := os.ReadFile(path)
		text = append(text, b...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	mib := float64(len(text)) / (1 << 20)
	if mib < 5 {
		t.Fatalf("only %.1f MiB", mib)
	}
	for _, tc := range []struct {
		rules Rules
		most  float64 // in a MiB
	}{{RulesDefault, 0.5}, {RulesAll, 5}} {
		var out appender
		s := NewSet(nil, tc.rules)
		f := s.Filter(&out)
		for rest := text; len(rest) > 0; {
			k := min(len(rest), 32<<10)
			f.Write(rest[:k])
			rest = rest[k:]
		}
		f.Close()
		sum := uint64(0)
		for _, c := range f.Counts() {
			sum += c.N
		}
		t.Logf("%s: %v in %.1f MiB", tc.rules, f.Counts(), mib)
		if float64(sum) > tc.most*mib {
			t.Errorf("%s: %v in %.1f MiB, want at most %v in one", tc.rules, f.Counts(), mib, tc.most)
		}
		passed(t, s, string(text), string(out))
	}
}
