package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestUnpack runs testdata/unpack.txtar. Where libraries are put is fixed, so the script's manifests have a name that no
// other has, and what is made for it goes again.
func TestUnpack(t *testing.T) {
	for _, dir := range []string{libraryDir, filepath.Dir(libraryDir)} {
		if _, err := os.Lstat(dir); os.IsNotExist(err) {
			t.Cleanup(func() { os.Remove(dir) }) // not if others have come to use it
		}
	}
	runScripts(t, "testdata/unpack.txtar", func(e *testscript.Env) error {
		own := filepath.Join(libraryDir, "unpack-test")
		e.Setenv("OWN", own)
		e.Defer(func() {
			if err := os.RemoveAll(own); err != nil {
				t.Error(err)
			}
		})
		return nil
	})
}
