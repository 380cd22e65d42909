package protect

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// later is when a test gives up.
var later = time.Now().Add(time.Hour)

// gitsIndexes are of git's own making: split and shared, sparse, with conflicts, of SHA-256, with tables for threads.
func gitsIndexes(t testing.TB) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("testdata/index/*")
	if err != nil || len(names) < 10 {
		t.Fatalf("%d files: %v", len(names), err)
	}
	all := map[string][]byte{}
	for _, name := range names {
		if all[filepath.Base(name)], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func hashOf(name string) int {
	if strings.HasPrefix(name, "sha256") {
		return 32
	}
	return 20
}

func TestIndexesOfGitAreHarmless(t *testing.T) {
	for name, b := range gitsIndexes(t) {
		if split, err := checkIndex(bytes.NewReader(b), int64(len(b)), hashOf(name), later); err != nil || split != strings.HasPrefix(name, "split") {
			t.Errorf("%s: split %v, %v", name, split, err)
		}
	}
}

// Git passes over the extensions of a configuration without a version, and a file is read as one of it, whatever else it could be.
func TestHashOfAnIndexIsTheOneThatGitTakes(t *testing.T) {
	for text, want := range map[string]int{
		"": 20, "[core]\nrepositoryformatversion = 1\n": 20, "[extensions]\nobjectformat = sha256\n": 20,
		"[core]\nrepositoryformatversion = 1\n[extensions]\nobjectformat = sha256\n":                      32,
		"[core]\nrepositoryformatversion = 1\n[extensions]\nobjectformat = sha256\nobjectformat = sha1\n": 20,
	} {
		dir := t.TempDir()
		if text != "" {
			if err := os.WriteFile(filepath.Join(dir, "config"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		root, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		w := &Watcher{tree: tree{int(root.Fd()), nil}, configs: configs{}}
		if size, known := w.hashSize(""); size != want || !known {
			t.Errorf("%q: got %d, known %v, want %d", text, size, known, want)
		}
		root.Close()
	}
}

func TestIndexThatTakesTooLongIsGivenUp(t *testing.T) {
	b := gitsIndexes(t)["threads"]
	if _, err := checkIndex(bytes.NewReader(b), int64(len(b)), 20, time.Now().Add(-time.Second)); err != errSlow {
		t.Errorf("got %v, want %v", err, errSlow)
	}
}

// The checksum at the end is not looked at, so that one that ends after an extension is whole.
func TestAnIndexThatIsCutIsNone(t *testing.T) {
	for name, b := range gitsIndexes(t) {
		whole := 0
		for cut := range len(b) {
			if _, err := checkIndex(bytes.NewReader(b[:cut]), int64(cut), hashOf(name), later); err == nil {
				whole++
			}
		}
		if extensions := 4; whole > extensions {
			t.Errorf("%s: counts as an index at %d lengths", name, whole)
		}
		if _, err := checkIndex(bytes.NewReader(b), int64(len(b)), 52-hashOf(name), later); err == nil {
			t.Errorf("%s: counts as an index of another format", name)
		}
	}
}

// indexOf writes entries as git does, each path as it is.
func indexOf(version uint32, hash int, mode uint32, extensions string, paths ...string) []byte {
	b := binary.BigEndian.AppendUint32([]byte("DIRC"), version)
	b = binary.BigEndian.AppendUint32(b, uint32(len(paths)))
	before := ""
	for _, p := range paths {
		start := len(b)
		entry := make([]byte, 40+hash)
		binary.BigEndian.PutUint32(entry[24:], mode)
		b = append(b, entry...)
		b = binary.BigEndian.AppendUint16(b, uint16(min(len(p), 0xfff)))
		if version == 4 {
			common := 0
			for common < min(len(p), len(before)) && p[common] == before[common] {
				common++
			}
			strip := len(before) - common
			if strip >= 128 {
				b = append(b, byte(strip>>7-1)|0x80)
			}
			b = append(b, byte(strip&0x7f))
			b = append(append(b, p[common:]...), 0)
			before = p
			continue
		}
		b = append(append(b, p...), 0)
		for (len(b)-start)%8 != 0 {
			b = append(b, 0)
		}
	}
	return append(append(b, extensions...), make([]byte, hash)...)
}

func TestPathsThatGitWouldNotAddAreFoundInAnIndex(t *testing.T) {
	for _, hash := range []int{20, 32} {
		for version := uint32(2); version <= 4; version++ {
			check := func(paths ...string) error {
				b := indexOf(version, hash, 0o100644, "", paths...)
				_, err := checkIndex(bytes.NewReader(b), int64(len(b)), hash, later)
				return err
			}
			for _, p := range []string{"", "/", "/etc/x", "a//b", "a/", ".", "./a", "a/.", "..", "../x", "a/../b", "a/..", ".git", ".git/hooks/x", "a/.git/config", ".GIT/x", ".gIt",
				".git.", ".git ", ".git . /x", ".git::$INDEX_ALLOCATION/x", ".git:x", "git~1/x", "GIT~1", "git~1 ", "a/git~1./x", ".g\u200cit/x", "\ufeff.git", ".git\u206f/x", ".gi\u202et\u200f ",
				`a\.git\x`, `.git\x`, "a\x00b", "\x00", strings.Repeat("d/", 2047) + "x"} {
				if check(p) == nil {
					t.Errorf("version %d: %q passes", version, p)
				}
				if check("a", "a/b", p, "z") == nil { // after one that it shares letters with
					t.Errorf("version %d: %q passes among others", version, p)
				}
			}
			for _, p := range []string{"a", "a/b/c", ".gitignore", ".github/x", ".gitmodules", ".git-x", ".git.x", ".gita/b", "git/x", "git~2", "git~10", "x.git/y", "a/...", "...", "..a", ".a", `a\b`, "a:b",
				"\u200c", "g", ".g", ".", "\xff\xfe", "ä/ö", "a\nb", " ", strings.Repeat("d/", 2046) + "x"} {
				if err := check(p); err != nil && p != "." {
					t.Errorf("version %d: %q: %v", version, p, err)
				}
			}
			if err := check(".git-a", ".git-b", ".gitx/.git-c", "d/.gitx", "d/e", "d/e2"); err != nil {
				t.Errorf("version %d: %v", version, err)
			}
		}
	}
	// The end of the path before is taken away, which leaves a name that is none.
	b := indexOf(4, 20, 0o100644, "", "a/.gitx", "a/.git", "a/b")
	if _, err := checkIndex(bytes.NewReader(b), int64(len(b)), 20, later); err == nil {
		t.Error("a path that is the beginning of the one before passes")
	}
}

func TestOnlySparseAndSplitIndexesHaveSuchPaths(t *testing.T) {
	empty := "\x00\x00\x00\x00"
	for _, c := range []struct {
		mode      uint32
		extension string
		path      string
		ok        bool
	}{
		{0o40000, "sdir" + empty, "a/", true}, {0o40000, "", "a/", false}, {0o100644, "sdir" + empty, "a/", false}, {0o40000, "sdir" + empty, "a//", false},
		{0o40000, "sdir" + empty, "/", false}, {0o40000, "sdir" + empty, ".git/", false}, {0o40000, "sdir" + empty, "../", false},
		{0o100644, "link" + empty, "", true}, {0o100644, "LINK" + empty, "", false}, {0o100644, "link" + empty, ".git", false}, {0o100644, "abcd" + empty, "a", false},
		{0o100644, "ABCD" + empty, "a", true}, {0o100644, "ABCD\xff\xff\xff\xff", "a", false}, {0o100644, "ABCD\x00\x00\x00\x01", "a", false}, {0o100644, "ABC", "a", false},
	} {
		for version := uint32(2); version <= 4; version++ {
			b := indexOf(version, 20, c.mode, c.extension, c.path)
			if _, err := checkIndex(bytes.NewReader(b), int64(len(b)), 20, later); (err == nil) != c.ok {
				t.Errorf("version %d: %+v: %v", version, c, err)
			}
		}
	}
}

// Git's threads begin where a table says, and look for it where the end of the file says.
func TestIndexHasNoOtherBeginningForThreads(t *testing.T) {
	u32 := func(n ...int) (s string) {
		for _, i := range n {
			s += string(binary.BigEndian.AppendUint32(nil, uint32(i)))
		}
		return s
	}
	table := func(n ...int) string { return "IEOT" + u32(4+4*len(n), 1) + u32(n...) }
	end := func(at int) string { return "EOIE" + u32(24, at) + strings.Repeat("h", 20) }
	const second, entries = 12 + 72, 12 + 3*72
	for name, c := range map[string]struct {
		extensions string
		ok         bool
	}{
		"as git writes it": {table(12, 1, second, 2) + end(entries), true}, "an empty block": {table(12, 3, second, 0), true},
		"another beginning": {table(12, 1, second+8, 2), false}, "one entry too few": {table(12, 1, second, 1), false}, "too many": {table(12, 1, second, 3), false},
		"no first": {table(second, 3), false}, "another end": {table(12, 3) + end(entries-72), false}, "end within another": {"ABCD" + u32(32) + end(12), false},
		"another version": {strings.Replace(table(12, 3), u32(1), u32(2), 1), false},
	} {
		b := indexOf(2, 20, 0o100644, c.extensions, "a1", "a2", "a3")
		if _, err := checkIndex(bytes.NewReader(b), int64(len(b)), 20, later); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	for path, ok := range map[string]bool{"b": true, "a2": false} { // version 4: its letters are those of the one before, or its own
		b := indexOf(4, 20, 0o100644, table(12, 1, 12+66, 1), "a1", path)
		if _, err := checkIndex(bytes.NewReader(b), int64(len(b)), 20, later); (err == nil) != ok {
			t.Errorf("version 4, %s: %v", path, err)
		}
	}
}

func TestIndexOfManyFilesTakesNoMemoryForEach(t *testing.T) {
	var paths []string
	for i := range 50000 {
		paths = append(paths, fmt.Sprintf("some/folder%d/of/a/larger/project/file%d.go", i/100, i))
	}
	for version := uint32(2); version <= 4; version += 2 {
		b := indexOf(version, 20, 0o100644, "", paths...)
		allocs := testing.AllocsPerRun(1, func() {
			if _, err := checkIndex(bytes.NewReader(b), int64(len(b)), 20, later); err != nil {
				t.Error(err)
			}
		})
		if allocs > 200 {
			t.Errorf("version %d: %.0f allocations", version, allocs)
		}
	}
}

func BenchmarkIndex(b *testing.B) {
	var paths []string
	for i := range 50000 {
		paths = append(paths, fmt.Sprintf("some/folder%d/of/a/larger/project/file%d.go", i/100, i))
	}
	text := indexOf(2, 20, 0o100644, "", paths...)
	for b.Loop() {
		if _, err := checkIndex(bytes.NewReader(text), int64(len(text)), 20, later); err != nil {
			b.Fatal(err)
		}
	}
}

// Of an index that passes git reads no name that it would not have added.
func FuzzIndex(f *testing.F) {
	for name, b := range gitsIndexes(f) {
		f.Add(b, hashOf(name) == 32)
	}
	f.Add(indexOf(4, 20, 0o100644, "", "a", "../x"), false)
	f.Add(indexOf(2, 20, 0o100644, "IEOT\x00\x00\x00\x0c\x00\x00\x00\x01\x00\x00\x00\x0c\x00\x00\x00\x01", ".git/x"), false)
	f.Fuzz(func(t *testing.T, b []byte, sha256 bool) {
		hash, format := 20, "sha1"
		if sha256 {
			hash, format = 32, "sha256"
		}
		if _, err := checkIndex(bytes.NewReader(b), int64(len(b)), hash, later); err != nil {
			return
		}
		dir := t.TempDir()
		git := func(args ...string) ([]byte, error) {
			cmd := exec.Command("/usr/bin/git", args...)
			cmd.Dir, cmd.Env = dir, []string{"HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1"}
			return cmd.Output()
		}
		if _, err := git("init", "-q", "--template=", "--object-format="+format); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/.git/index", b, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := git("-c", "index.threads=3", "ls-files", "-z")
		if err != nil {
			return // git does not read it
		}
		for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			for part := range strings.SplitSeq(strings.TrimSuffix(name, "/"), "/") {
				if len(out) > 0 && (part == "" || part == "." || part == ".." || strings.EqualFold(part, ".git")) {
					t.Fatalf("git reads %q", name)
				}
			}
		}
	})
}
