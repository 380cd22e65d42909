package pin

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzShebang: an interpreter is a word without spaces, and nothing of the line is lost.
func FuzzShebang(f *testing.F) {
	for _, s := range []string{"/bin/sh\n", " /usr/bin/env -S a b \n", "\n", "/a\x00b\n", "/bin/sh\t-e  \n"} {
		f.Add([]byte("#!" + s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !bytes.HasPrefix(data, []byte("#!")) {
			return
		}
		head := data[:min(len(data), 256)]
		interpreter, arg, err := shebang(head)
		if err != nil {
			return
		}
		if interpreter == "" || strings.ContainsAny(interpreter+arg, "\n\x00") || strings.ContainsAny(interpreter, " \t") {
			t.Fatalf("%q: %q, %q", head, interpreter, arg)
		}
		if name, err := envCommand(arg); err == nil && name == "" {
			t.Fatalf("%q: env of nothing", arg)
		}
	})
}

// FuzzCache: whatever ldconfig's file holds, paths are absolute and nothing is read outside of it.
func FuzzCache(f *testing.F) {
	real, err := os.ReadFile("/etc/ld.so.cache")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(real[:min(len(real), 4096)])
	f.Add(append(append([]byte(cacheOld), 0, 0, 0, 0), real[:min(len(real), 200)]...))
	f.Fuzz(func(t *testing.T, data []byte) {
		cache, err := parseCache(data)
		if err != nil {
			return
		}
		for name, paths := range cache {
			for _, p := range paths {
				if !filepath.IsAbs(p) {
					t.Fatalf("%q: %q", name, p)
				}
			}
		}
	})
}

// FuzzObject: no file makes the reader fail in another way than by an error.
func FuzzObject(f *testing.F) {
	for _, name := range []string{"/bin/true", "/bin/sh"} {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := readObject(bytes.NewReader(data), "fuzz")
		if err == nil && o.interp != "" && !filepath.IsAbs(o.interp) {
			t.Fatalf("interpreter %q", o.interp)
		}
	})
}

func TestTheCacheOfThisHostNamesTheCLibrary(t *testing.T) {
	data, err := os.ReadFile("/etc/ld.so.cache")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := parseCache(data)
	if err != nil || len(cache["libc.so.6"]) == 0 {
		t.Errorf("got %v, %v", cache["libc.so.6"], err)
	}
	if _, err := parseCache(data[:60]); err == nil {
		t.Error("a cut-off cache was taken")
	}
}
