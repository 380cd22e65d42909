package launcher

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sharness/sharness/internal/kerneltest"
)

// Root makes the state folder and its parents: a parent that a user can rename or replace by a link would lead it away.
func TestStateBelowAFolderOfTheUsersIsRefused(t *testing.T) {
	kerneltest.RequireRoot(t)
	root, err := os.MkdirTemp("/var/tmp", "sharness-state-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	users, open := filepath.Join(root, "users"), filepath.Join(root, "open")
	for _, dir := range []string{users, open} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(users, 4321, 4321); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(root, "link")
	if err := os.Symlink(root, link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(root, "state"):           "",
		filepath.Join(root, "new/deep/state"):  "",
		filepath.Join(users, "state"):          "others than root",
		filepath.Join(users, "new/deep/state"): "others than root",
		filepath.Join(open, "state"):           "others than root",
		filepath.Join(link, "state"):           "without links",
	} {
		err := checkParents(path)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}
