package embedded

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// systemLibrary is the C library's mathematics: every host that can build this has it, with a SONAME.
func systemLibrary(t *testing.T) []byte {
	t.Helper()
	for _, pattern := range []string{"/usr/lib/*-linux-gnu/libm.so.6", "/usr/lib64/libm.so.6", "/lib64/libm.so.6"} {
		if hits, _ := filepath.Glob(pattern); len(hits) > 0 {
			data, err := os.ReadFile(hits[0])
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
	}
	t.Fatal("no libm.so.6 in the usual folders")
	return nil
}

func TestFindReturnsWholeLibraries(t *testing.T) {
	lib := systemLibrary(t)
	cut := lib[:len(lib)/2]
	for _, c := range []struct {
		name  string
		file  []byte
		wants []int // offsets
	}{
		{"nothing", []byte("no library"), nil},
		{"empty", nil, nil},
		{"the file itself", lib, nil},
		{"between other bytes", join(pad(777), lib, pad(5)), []int{777}},
		{"two in a row", join(pad(1), lib, lib), []int{1, 1 + len(lib)}},
		{"magic across two chunks", join(pad(chunk-2), lib), []int{chunk - 2}},
		{"magic at the end of a chunk", join(pad(chunk), lib), []int{chunk}},
		{"magic alone", join(pad(9), magic, pad(90)), nil},
		{"cut off at the end", join(pad(9), cut), nil},
		{"after a false magic", join(pad(9), magic, lib), []int{9 + len(magic)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Find(bytes.NewReader(c.file), int64(len(c.file)))
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(c.wants) {
				t.Fatalf("got %+v, want offsets %v", got, c.wants)
			}
			for i, l := range got {
				if l.Soname != "libm.so.6" || l.Offset != int64(c.wants[i]) || !bytes.Equal(c.file[l.Offset:l.Offset+l.Size], lib) {
					t.Errorf("got %+v, want libm.so.6 at %d with %d bytes", l, c.wants[i], len(lib))
				}
			}
		})
	}
}

func pad(n int) []byte { return bytes.Repeat([]byte{'.'}, n) }

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func FuzzFind(f *testing.F) {
	f.Add(join(pad(3), magic, pad(64)))
	f.Fuzz(func(t *testing.T, data []byte) {
		libs, err := Find(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range libs {
			if l.Offset < 1 || l.Size < 1 || l.Offset+l.Size > int64(len(data)) {
				t.Errorf("%+v lies outside %d bytes", l, len(data))
			}
		}
	})
}
