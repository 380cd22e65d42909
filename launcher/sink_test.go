package launcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/internal/kerneltest"
	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

func TestEventsDoNotGoWhereTheSessionWrites(t *testing.T) {
	kerneltest.RequireRoot(t)
	const uid = 4244
	base := t.TempDir()
	for dir := base; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) { // TempDir's are closed to others
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ws, state, logs := filepath.Join(base, "ws"), filepath.Join(base, "state"), filepath.Join(base, "logs")
	s := &Session{User: User{UID: uid, GID: uid, Name: "person"}, Workspace: folder(t, ws, 0o755, uid, uid),
		Manifest: &manifest.Manifest{Name: "x", State: &manifest.State{Path: state}}}
	for _, dir := range []string{filepath.Join(ws, "sub"), state, logs, filepath.Join(base, "bind")} {
		folder(t, dir, 0o755, uid, uid)
	}
	linked := filepath.Join(logs, "linked")
	if err := errors.Join(
		os.Symlink(ws, filepath.Join(logs, "ws")),
		os.WriteFile(filepath.Join(ws, "name"), nil, 0o600), os.Link(filepath.Join(ws, "name"), linked), os.Chown(linked, uid, uid),
		unix.Mount(ws, filepath.Join(base, "bind"), "", unix.MS_BIND, ""),
	); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(filepath.Join(base, "bind"), unix.MNT_DETACH) })
	for _, c := range []struct{ path, want string }{
		{filepath.Join(logs, "log"), ""},
		{filepath.Join(base, "ws-log", "..", "logs", "log2"), ""},
		{filepath.Join(ws, "log"), "where the session can write"},
		{filepath.Join(ws, "sub", "log"), "where the session can write"},
		{filepath.Join(state, "log"), "where the session can write"},
		{filepath.Join(logs, "ws", "sub", "log"), "where the session can write"},
		{filepath.Join(base, "bind", "log"), "where the session can write"},
		{linked, "has 2 names"},
	} {
		opened, err := openSinks(s, []sink.Spec{{Kind: sink.File, Path: filepath.Clean(c.path)}})
		wantRefused(t, c.path, err, c.want)
		if err == nil {
			opened[0].File.Close()
		}
		if _, err := os.Lstat(c.path); c.want != "" && !strings.HasPrefix(c.want, "has") && err == nil {
			t.Errorf("%s: was made", c.path)
		}
	}
}

func TestSinkThatCannotBeOpenedSaysWhatToDo(t *testing.T) {
	s := &Session{User: User{UID: 4244, Name: "person"}}
	file, theirs := sink.Spec{Kind: sink.File, Path: "/x/log"}, &sink.IDs{UID: 4244, GID: 4244}
	for _, c := range []struct {
		spec sink.Spec
		err  error
		want string
	}{
		{sink.Spec{Kind: sink.Journald}, unix.ENOENT, "; no journald listens on this host: give a file with --events FILE, or - for standard error"},
		{sink.Spec{Kind: sink.Syslog}, unix.ECONNREFUSED, "; no syslog listens on this host: give a file with --events FILE, or - for standard error"},
		{file, unix.EACCES, " for person (uid 4244), whose session it is and who opens what --events names; give a file that they may write, or none for one in /var/log/sharness"},
		{file, unix.ENOENT, "; make its folder first, or give another file"},
		{file, unix.EISDIR, "; name a file in it"},
		{file, unix.ENOSPC, ""},
	} {
		if got := s.instead(c.spec, theirs, fmt.Errorf("events: open %s: %w", c.spec, c.err)); got != c.want {
			t.Errorf("%s, %v: got %q, want %q", c.spec, c.err, got, c.want)
		}
	}
}
