package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"sharness": main, "contained": contained})
}

// TestManifest runs testdata/manifest*.txtar.
func TestManifest(t *testing.T) {
	runScripts(t, "testdata/manifest*.txtar", func(*testscript.Env) error { return nil })
}

// runScripts lets scripts work in a folder of root's: below /tmp nothing may be pinned.
func runScripts(t *testing.T, pattern string, setup func(*testscript.Env) error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("must run as root: manifests belong to root")
	}
	root, err := os.MkdirTemp("/var/lib", "sharness-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	testscript.Run(t, testscript.Params{Files: files, WorkdirRoot: root, RequireExplicitExec: true, Setup: func(e *testscript.Env) error {
		// The scripts' own PATH ends with the folder of the test binary's command; a person's has what the script needs.
		e.Setenv("SUDO_UID", "")
		if err := setup(e); err != nil {
			return err
		}
		return os.Chmod(e.WorkDir, 0o755)
	}})
}
