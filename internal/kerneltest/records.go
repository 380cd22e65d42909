package kerneltest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// ForgetWorkspaces removes what sharness keeps on purpose of each workspace below a folder of a test: the repositories
// that it found there, by the path of the workspace and by its inode. It has to come before the folder is removed.
func ForgetWorkspaces(t testing.TB, root string) {
	t.Helper()
	const kept = "/var/lib/sharness/protected"
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return skipGone(err)
		}
		if !d.IsDir() {
			return nil
		}
		fi, err := d.Info()
		if err != nil {
			return skipGone(err)
		}
		st := fi.Sys().(*syscall.Stat_t)
		return errors.Join(
			skipGone(os.Remove(filepath.Join(kept, fmt.Sprintf("path-%x.json", sha256.Sum256([]byte(path)))))),
			skipGone(os.Remove(filepath.Join(kept, fmt.Sprintf("inode-%x-%d.json", st.Dev, st.Ino)))),
		)
	})
	if err != nil {
		t.Errorf("forget the workspaces below %s: %v", root, err)
	}
}
