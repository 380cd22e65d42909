package bait

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build compiles the probe twice into dir: static, and linked by the system's linker so that the dynamic loader starts
// it. Some doors exist only for the second.
func Build(dir string) (static, dynamic string, err error) {
	static, dynamic = filepath.Join(dir, "sharness-probe"), filepath.Join(dir, "sharness-probe-dynamic")
	const pkg = "github.com/sharness/sharness/cmd/sharness-probe"
	for _, b := range []struct {
		cgo  string
		args []string
	}{
		{"CGO_ENABLED=0", []string{"build", "-o", static, pkg}},
		{"CGO_ENABLED=1", []string{"build", "-ldflags=-linkmode=external", "-o", dynamic, pkg}},
	} {
		cmd := exec.Command("go", b.args...)
		cmd.Env = append(os.Environ(), b.cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", "", fmt.Errorf("go build %s: %w: %s", pkg, err, out)
		}
	}
	return static, dynamic, nil
}
