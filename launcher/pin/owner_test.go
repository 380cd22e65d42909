package pin

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// rootFolder is a folder in which nothing but root can write: t.TempDir lies in /tmp.
func rootFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/lib", "sharness-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestOwnersAreChecked(t *testing.T) {
	type place struct {
		mode, dirMode os.FileMode
		uid           int
		tree, bind    bool
	}
	for name, row := range map[string]struct {
		place
		pinned, manifest string // part of the error, or nothing
	}{
		"root's":                  {place{0o644, 0o755, 0, false, false}, "", ""},
		"a user's":                {place{0o644, 0o755, 1000, false, false}, "", "belongs to uid 1000, not to root"},
		"a session's":             {place{0o644, 0o755, 1900100003, false, false}, "which is a session's", "which is a session's"},
		"file for the group":      {place{0o664, 0o755, 0, false, false}, "file: mode 0664 lets others write", "file: mode 0664 lets others write"},
		"file for everyone":       {place{0o646, 0o755, 0, false, false}, "file: mode 0646 lets others write", "file: mode 0646 lets others write"},
		"folder for everyone":     {place{0o644, 0o777, 0, false, false}, "dir: mode 0777 lets others write", "dir: mode 0777 lets others write"},
		"folder for the group":    {place{0o644, 0o775, 0, false, false}, "dir: mode 0775 lets others write", "dir: mode 0775 lets others write"},
		"sticky folder":           {place{0o644, 0o777 | os.ModeSticky, 0, false, false}, "dir: mode 1777 lets others write; move /", ""},
		"in the workspace":        {place{0o644, 0o755, 0, true, false}, "where the session can write", "where the session can write"},
		"in its other appearance": {place{0o644, 0o755, 0, true, true}, "where the session can write", "where the session can write"},
	} {
		t.Run(name, func(t *testing.T) {
			root := rootFolder(t)
			dir := filepath.Join(root, "dir")
			file := write(t, filepath.Join(dir, "file"), "x", 0o600)
			for path, mode := range map[string]os.FileMode{file: row.mode, dir: row.dirMode} {
				if err := os.Chmod(path, mode); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chown(file, row.uid, row.uid); err != nil {
				t.Fatal(err)
			}
			trees := []string{"/does/not/exist"}
			if row.tree {
				tree := dir
				if row.bind {
					// A link stands for any second name; a bind mount differs in nothing the check looks at.
					tree = filepath.Join(root, "other")
					if err := os.Symlink(dir, tree); err != nil {
						t.Fatal(err)
					}
				}
				trees = append(trees, tree)
			}
			check := func(what string, err error, want string) {
				if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
					t.Errorf("%s: got %v, want %q", what, err, want)
				}
			}
			check("pinned", CheckOwner(file, trees...), row.pinned)
			check("manifest", CheckManifest(file, trees...), row.manifest)
			_, err := ReadManifest(file, trees...)
			check("reading", err, row.manifest)
		})
	}
}

func TestFileWithASecondNameIsPinnedOnlyIfItIsRoots(t *testing.T) {
	for _, row := range []struct {
		name string
		uid  int
		want string
	}{
		{"root's", 0, ""},
		{"a user's", 1000, "file: has 2 names (hard links)"},
	} {
		root := rootFolder(t)
		file := write(t, filepath.Join(root, "dir", "file"), "x", 0o644)
		if err := os.Chmod(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(file, row.uid, row.uid); err != nil {
			t.Fatal(err)
		}
		workspace := filepath.Join(root, "workspace")
		if err := os.Mkdir(workspace, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := CheckOwner(file, workspace); err != nil {
			t.Errorf("%s with one name: got %v", row.name, err)
		}
		if err := os.Link(file, filepath.Join(workspace, "name")); err != nil {
			t.Fatal(err)
		}
		err := CheckOwner(file, workspace)
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s with two names: got %v, want %q", row.name, err, row.want)
		}
		if row.want == "" {
			continue
		}
		// What the text says to do.
		_, line, _ := strings.Cut(err.Error(), "of its own: ")
		if out, err := exec.Command("/bin/sh", "-c", line).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
		if err := CheckOwner(file, workspace); err != nil {
			t.Errorf("%s after %s: got %v", row.name, line, err)
		}
	}
}

func TestNobodyIsToldToTakeAFolderFromItsUsers(t *testing.T) {
	for _, row := range []struct {
		here  string
		mode  os.FileMode
		moves bool
	}{
		{"/var/tmp", os.ModeDir | os.ModeSticky | 0o777, true},
		{"/srv/drop", os.ModeDir | os.ModeSticky | 0o775, true},
		{"/srv", os.ModeDir | 0o777, true},
		{"/usr/local", os.ModeDir | 0o775, true},
		{"/usr/local/app", os.ModeDir | 0o775, false},
		{"/srv/app", os.ModeDir | 0o777, false},
		{"/srv/app/agent", 0o777, false},
	} {
		err := othersWrite("/srv/app/agent", row.here, ofMode{mode: row.mode})
		want := "(chmod go-w " + row.here + ")"
		if row.moves {
			want = "; move /srv/app/agent to where only root can, such as "
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s, %v: got %v, want %q", row.here, row.mode, err, want)
		}
	}
}

// ofMode is a file of which the mode is all that is known.
type ofMode struct {
	os.FileInfo
	mode os.FileMode
}

func (m ofMode) Mode() os.FileMode { return m.mode }
func (m ofMode) IsDir() bool       { return m.mode.IsDir() }

func TestALinkInAnOpenFolderIsNoManifest(t *testing.T) {
	root := rootFolder(t)
	file := write(t, filepath.Join(root, "a.yaml"), "x", 0o644)
	open := filepath.Join(root, "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(open, "link.yaml")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if data, err := ReadManifest(link); err != nil || string(data) != "x" {
		t.Errorf("root's link: got %q, %v", data, err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadManifest(link); err == nil || !strings.Contains(err.Error(), "open: mode 0777 lets others write") {
		t.Errorf("a link that anyone can replace: got %v", err)
	}
}

func TestOpenRefusesLinksAndWhatIsNoFile(t *testing.T) {
	dir := folder(t)
	write(t, filepath.Join(dir, "real", "file"), "x", 0o644)
	for link, target := range map[string]string{"dirlink": "real", "link": "real/file"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"link":         "too many levels of symbolic links",
		"dirlink/file": "too many levels of symbolic links",
		"fifo":         "not a regular file",
		"real":         "not a regular file",
		"none":         "no such file or directory",
	} {
		if _, err := Open(filepath.Join(dir, name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}

func TestHashFDReadsByPosition(t *testing.T) {
	path := write(t, filepath.Join(folder(t), "abc"), "abc", 0o644)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Seek(2, 0); err != nil {
		t.Fatal(err)
	}
	const want = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	for range 2 {
		if got, err := HashFD(int(f.Fd())); err != nil || got != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	if at, err := f.Seek(0, 1); err != nil || at != 2 {
		t.Errorf("the offset moved to %d, %v", at, err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if _, err := HashFD(int(r.Fd())); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a pipe: got %v", err)
	}
}
