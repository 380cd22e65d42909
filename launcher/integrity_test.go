package launcher

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
	"github.com/sharness/sharness/manifest"
)

// Whatever a session puts in the place of a file under integrity, root opens no other file for it, reads no more than is
// bounded, and does not wait.
func TestIntegrityReadsOnlyTheFileItself(t *testing.T) {
	kerneltest.RequireRoot(t)
	const uid = 4244
	base, err := os.MkdirTemp("/var/lib", "sharness-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(base, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	const hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // of abc
	own := func(path string) error {
		return errors.Join(os.WriteFile(path, []byte("abc"), 0o600), os.Chown(path, uid, uid))
	}
	for _, c := range []struct {
		name string
		make func(path string) error
		want string // part of the error; "" for none
	}{
		{"as it was", own, ""},
		{"a link", func(p string) error { return os.Symlink(secret, p) }, "too many levels of symbolic links"},
		{"a folder that is a link", func(p string) error {
			return errors.Join(os.Remove(filepath.Dir(p)), os.Symlink(filepath.Dir(secret), filepath.Dir(p)))
		}, "too many levels of symbolic links"},
		{"root's, moved there", func(p string) error { return os.WriteFile(p, []byte("abc"), 0o600) }, "open as person: permission denied"},
		{"sparse", func(p string) error {
			return errors.Join(own(p), os.Truncate(p, 16<<30))
		}, "has 17179869184 bytes; integrity is for files of at most 67108864"},
		{"a FIFO", func(p string) error { return errors.Join(unix.Mkfifo(p, 0o600), os.Chown(p, uid, uid)) }, "not a regular file"},
		{"a file with a second name", func(p string) error { return errors.Join(own(p), os.Link(p, p+"2")) }, "has 2 names"},
	} {
		for _, where := range []string{"workspace", "state", "elsewhere"} {
			dir := filepath.Join(base, c.name+where)
			path := filepath.Join(dir, "sub", "secret")
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), c.make(path)); err != nil {
				t.Fatal(err)
			}
			s := &Session{User: User{UID: uid, GID: uid, Name: "person"}, Workspace: folder(t, filepath.Join(base, "ws"), 0o755, uid, uid),
				Manifest: &manifest.Manifest{Integrity: []manifest.File{{Path: path, SHA256: hash}}}}
			switch where {
			case "workspace":
				s.Workspace = folder(t, dir, 0o755, uid, uid)
			case "state":
				s.Manifest.State = &manifest.State{Path: dir}
			default:
				if c.name == "root's, moved there" {
					continue // nobody else can have moved it
				}
			}
			errs := s.checkIntegrity()
			switch {
			case c.want == "" && len(errs) > 0:
				t.Errorf("%s in %s: got %v", c.name, where, errs)
			case c.want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), c.want)):
				t.Errorf("%s in %s: got %v, want %q", c.name, where, errs, c.want)
			}
		}
	}
}
