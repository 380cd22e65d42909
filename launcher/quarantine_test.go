package launcher

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sharness/sharness/internal/kerneltest"
)

func TestQuarantineIsTheUsersOnlyWhenNothingInItCanBeEntered(t *testing.T) {
	kerneltest.RequireRoot(t)
	fill := map[string]func(kept string) error{
		"nothing": func(string) error { return nil },
		"file":    func(kept string) error { return os.WriteFile(filepath.Join(kept, "0000-.envrc"), nil, 0o600) },
		"folder":  func(kept string) error { return os.Mkdir(filepath.Join(kept, "0000-.vscode"), 0o700) },
		"link":    func(kept string) error { return os.Symlink("/", filepath.Join(kept, "0000-.vscode.tar")) },
	}
	for name, f := range fill {
		dir := filepath.Join(t.TempDir(), "quarantine", "session")
		q, err := makeQuarantine(dir, User{UID: 4321, GID: 4322})
		if err != nil {
			t.Fatal(err)
		}
		if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 || fi.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Errorf("%s: while the session lives its folder is not root's alone: %v, %v", name, fi.Mode(), err)
		}
		if err := f(q.kept); err != nil {
			t.Fatal(err)
		}
		err = q.close()
		fi, statErr := os.Stat(dir)
		switch {
		case name == "nothing":
			if err != nil || !os.IsNotExist(statErr) {
				t.Errorf("%s: got %v and %v, want it gone", name, err, statErr)
			}
		case statErr != nil:
			t.Errorf("%s: %v", name, statErr)
		case name == "file":
			if st := fi.Sys().(*syscall.Stat_t); err != nil || st.Uid != 4321 || st.Gid != 4322 {
				t.Errorf("%s: got %v and %d:%d, want the user's", name, err, st.Uid, st.Gid)
			}
		default:
			if err == nil || !strings.Contains(err.Error(), "0000-.vscode") || fi.Sys().(*syscall.Stat_t).Uid != 0 {
				t.Errorf("%s: got %v, owner %d, want root's and an error that names it", name, err, fi.Sys().(*syscall.Stat_t).Uid)
			}
		}
	}
}

// Commands can read the name of their session in mountinfo.
func TestPlaceInTheQuarantineIsNotKnownByTheNameOfTheSession(t *testing.T) {
	kerneltest.RequireRoot(t)
	seen := map[string]bool{}
	for range 3 {
		q, err := makeQuarantine(filepath.Join(t.TempDir(), "quarantine", "session"), User{UID: 4321, GID: 4322})
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(q.dir, q.kept)
		if err != nil || len(name) < 26 || seen[name] {
			t.Errorf("got %q, %v: want 128 random bits", name, err)
		}
		seen[name] = true
		if err := q.close(); err != nil {
			t.Error(err)
		}
	}
}
