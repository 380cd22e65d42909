package launcher

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sharness/sharness/internal/kerneltest"
	"github.com/sharness/sharness/launcher/protect"
)

func TestRecordIsFoundAfterAMoveAndAfterACopy(t *testing.T) {
	kerneltest.RequireRoot(t)
	dir, at := filepath.Join(t.TempDir(), "protected"), t.TempDir()
	open := func(path string) *record {
		t.Helper()
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r, err := openRecord(dir, f)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	want := []protect.Repo{{Rel: "store.git", GitDir: "store.git"}, {Rel: "\xff", GitDir: "\xff/.git"}}
	if err := open(filepath.Join(at, "ws")).write(&protect.Set{Repos: want, Notes: []string{"not kept"}}); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(at, "ws"), filepath.Join(at, "moved")); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"by its inode": "moved", "by its path": "ws"} {
		got, err := open(filepath.Join(at, path)).read()
		if err != nil || !slices.Equal(got.Repos, want) || len(got.Notes) != 0 {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, want)
		}
	}
	if err := open(filepath.Join(at, "ws")).write(&protect.Set{Repos: []protect.Repo{{Rel: "", GitDir: ".git"}}}); err != nil {
		t.Fatal(err)
	}
	if got, err := open(filepath.Join(at, "ws")).read(); err != nil || len(got.Repos) != 0 {
		t.Errorf("only the repository at the top: got %+v, %v, want nothing kept", got, err)
	}
	if got, err := open(filepath.Join(at, "other")).read(); err != nil || len(got.Repos) != 0 {
		t.Errorf("another folder: got %+v, %v", got, err)
	}
}

// A session of prove that ends removes the folder when nothing is in it.
func TestRecordIsKeptInAFolderThatHasGone(t *testing.T) {
	kerneltest.RequireRoot(t)
	ws, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	dir := filepath.Join(t.TempDir(), "protected")
	r, err := openRecord(dir, ws)
	if err != nil {
		t.Fatal(err)
	}
	want := []protect.Repo{{Rel: "store.git", GitDir: "store.git"}}
	if err := errors.Join(os.Remove(dir), r.write(&protect.Set{Repos: want})); err != nil {
		t.Fatal(err)
	}
	if got, err := r.read(); err != nil || !slices.Equal(got.Repos, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestRecordRefusesWhatOthersCouldHaveWritten(t *testing.T) {
	kerneltest.RequireRoot(t)
	ws, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	theirs, wide := t.TempDir(), t.TempDir()
	if err := os.Chown(theirs, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(wide, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{theirs, wide} {
		if _, err := openRecord(dir, ws); err == nil {
			t.Errorf("%s: accepted", dir)
		}
	}
	r, err := openRecord(filepath.Join(t.TempDir(), "p"), ws)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.files[0], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.read(); err == nil {
		t.Error("a torn record was read as none")
	}
}
