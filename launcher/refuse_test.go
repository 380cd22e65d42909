package launcher

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
	"github.com/sharness/sharness/manifest"
)

// folder is an opened workspace candidate with these modes and owner.
func folder(t *testing.T, path string, mode os.FileMode, uid, gid int) *os.File {
	t.Helper()
	if err := errors.Join(os.MkdirAll(path, 0o755), os.Chown(path, uid, gid), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { f.Close() })
	return f
}

func TestWorkspaceThatHoldsTheHomeFolderIsRefused(t *testing.T) {
	kerneltest.RequireRoot(t)
	base := t.TempDir()
	home := filepath.Join(base, "homes/person")
	for _, c := range []struct{ name, ws, want string }{
		{"home", home, "holds the home folder of person"},
		{"parent of it", filepath.Join(base, "homes"), "holds the home folder of person"},
		{"parent of that", base, "holds the home folder of person"},
		{"project in it", filepath.Join(home, "project"), ""},
		{"beside it", filepath.Join(base, "homes/person2"), ""},
	} {
		s := &Session{Manifest: &manifest.Manifest{}, User: User{UID: 4244, GID: 4244, Name: "person", Home: home}, Workspace: folder(t, c.ws, 0o755, 4244, 4244)}
		wantRefused(t, c.name, s.checkWorkspace(), c.want)
	}
}

func TestWorkspaceMustBeReadableInTheDomain(t *testing.T) {
	kerneltest.RequireRoot(t)
	base := t.TempDir()
	for _, c := range []struct {
		name     string
		mode     os.FileMode
		uid, gid int
		want     string
	}{
		{"own", 0o700, 4244, 4244, ""},
		{"own without x", 0o600, 4244, 4244, "mode 0600 does not let person read it"},
		{"own, only others may", 0o077, 4244, 4244, "does not let person"},
		{"first group's", 0o750, 1, 4244, ""},
		{"another group's", 0o750, 1, 50, "does not let person"}, // the domain is in none of the user's other groups
		{"everybody's", 0o755, 1, 1, ""},
	} {
		s := &Session{Manifest: &manifest.Manifest{}, User: User{UID: 4244, GID: 4244, Groups: []int{50}, Name: "person"},
			Workspace: folder(t, filepath.Join(base, c.name), c.mode, c.uid, c.gid)}
		wantRefused(t, c.name, s.checkWorkspace(), c.want)
	}
}

func wantRefused(t *testing.T, name string, err error, want string) {
	t.Helper()
	var refused *Refused
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: got %v, want it accepted", name, err)
	case want != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: got %v, want a refusal with %q", name, err, want)
	}
}

func TestFileSystemWithoutIdmapIsNamedWithAChoice(t *testing.T) {
	kerneltest.RequireRoot(t)
	holder, err := filepath.Abs("../bin/sharness-box")
	if err != nil {
		t.Fatal(err)
	}
	ns, err := User{UID: 4244, GID: 4244}.disk(holder, 1900000000)
	if err != nil {
		t.Fatalf("%v; run: make build", err)
	}
	defer ns.Close()
	mnt, err := cloneMount("/proc", clone{set: attrData, userns: ns})
	if err == nil {
		mnt.Close()
		t.Fatal("procfs took an idmap")
	}
	var no *NoIdmapError
	const want = "idmapped mount of /proc: its file system (magic 0x9fa0) does not allow it: invalid argument; move the folder to ext4"
	if !errors.As(err, &no) || !errors.Is(err, unix.EINVAL) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s…", err, want)
	}
}

func TestReplacementsAreSeenByWhoStartedBefore(t *testing.T) {
	var r replacements
	r.add(3)
	mark := r.now()
	if got := r.since(mark); len(got) != 0 {
		t.Errorf("got %v, want none since the mark", got)
	}
	r.add(1)
	r.add(3)
	got := r.since(mark)
	slices.Sort(got)
	if !slices.Equal(got, []int{1, 3}) {
		t.Errorf("got %v, want 1 and 3", got)
	}
}

func TestLineDiffShowsEachLineOnce(t *testing.T) {
	for _, c := range []struct {
		name, old, now string
		want           []string
	}{
		{"same", "a\nb\n", "a\nb\n", nil},
		{"added", "a\n", "a\nb\n", []string{"  + b"}},
		{"gone", "a\nb\n", "b\n", []string{"  - a"}},
		{"changed", "a\nb\nc\n", "a\nx\nc\n", []string{"  - b", "  + x"}},
		{"twice", "a\n", "a\na\n", []string{"  + a"}},
		{"for a terminal", "", "\x1b[2J\u202e", []string{`  - `, `  + \x1b[2J\u{202e}`}},
	} {
		if got := lineDiff(c.old, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
