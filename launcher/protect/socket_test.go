package protect

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sharness/sharness/manifest"
)

func TestDiscoverFindsSocketsUpToItsBound(t *testing.T) {
	dir := t.TempDir()
	listen := func(rel string) {
		t.Helper()
		path := filepath.Join(dir, rel)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	discover := func(p manifest.Protect) (*Set, error) {
		root, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		return Discover(root, Options{Root: dir, Protect: p})
	}
	want := []string{".git/fsmonitor--daemon.ipc", "a/b", "s"}
	for _, rel := range want {
		listen(rel)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, p := range []manifest.Protect{manifest.ProtectNone, ""} {
		set, err := discover(p)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Sort(set.Sockets); !slices.Equal(set.Sockets, want) {
			t.Errorf("protect %q: got %q, want %q", p, set.Sockets, want)
		}
	}
	for i := range MaxSockets {
		listen(fmt.Sprint("n", i))
	}
	if _, err := discover(""); err == nil || !strings.Contains(err.Error(), "more than 64 sockets") {
		t.Errorf("got %v, want a refusal", err)
	}
}
