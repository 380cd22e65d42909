package sessiontest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// Every command has an id of its own in the kernel, and none in what programs see: git notes the owner of each file in its
// index, and would read the whole repository again for a command whose id is another.
func TestFilesHaveTheSameOwnerForUserAgentAndCommands(t *testing.T) {
	s := newSite(t, func(m *manifest.Manifest) { m.Route = []string{"/usr/bin/git"} })
	s.write("file", "text\n")
	s.user("git init -q . && touch -d '1 hour ago' file && git add file && git commit -q -m x && git status", "")
	index := func() string {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(s.workspace, ".git/index"), &st); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(st.Ino, st.Mtim)
	}
	before := index()
	x, out := s.enforce(`git status >/dev/null; echo "$UID $EUID"
/run/sharness/bin/sharness-bash -c 'git status >/dev/null; id -u; id -g; stat -c "%u %g" . file .git/index /; read _ kernel _ </proc/self/uid_map; echo $kernel'
/run/sharness/bin/sharness-bash -c 'git status >/dev/null; read _ kernel _ </proc/self/uid_map; echo $kernel'`)
	var fi unix.Stat_t
	if err := unix.Stat(s.workspace, &fi); err != nil {
		t.Fatal(err)
	}
	u, g := fi.Uid, fi.Gid
	lines := strings.Split(strings.TrimSpace(out), "\n")
	want := fmt.Sprintf("%d %d\n%d\n%d\n%d %d\n%d %d\n%d %d\n0 0", u, u, u, g, u, g, u, g, u, g)
	if len(lines) != 9 || strings.Join(lines[:7], "\n") != want {
		t.Fatalf("got %q, want %q and the ids of two commands\n%s", out, want, x.stderr)
	}
	if a, b := lines[7], lines[8]; a == b || !strings.HasPrefix(a, "19001") || !strings.HasPrefix(b, "19001") {
		t.Errorf("the commands ran as %s and %s, want two ids of slots", a, b)
	}
	if after := index(); after != before {
		t.Errorf("git wrote its index anew: inode and time were %s, are %s", before, after)
	}
}

// What a command uses up of what the kernel counts by user is its own id's.
func TestInotifyInstancesOfACommandAreNotRoots(t *testing.T) {
	s := newSite(t, nil)
	x := s.serve()
	defer x.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cmd := x.client(ctx, ".", "-c", `exec python3 -c 'import ctypes, time; c = ctypes.CDLL(None); n = 0
while c.inotify_init() >= 0: n += 1
open("instances", "w").write(str(n)); time.sleep(20)'`)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = cmd.Wait() // ended by us
	}()
	limit, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if err != nil {
		t.Fatal(err)
	}
	var n string
	for deadline := time.Now().Add(20 * time.Second); n == "" && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		text, _ := os.ReadFile(filepath.Join(s.workspace, "instances")) // not there yet
		n = string(text)
	}
	if n != strings.TrimSpace(string(limit)) {
		t.Fatalf("the command has %q instances, want all %s of its id", n, limit)
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		t.Fatalf("root gets no inotify instance beside such a command: %v", err)
	}
	unix.Close(fd)
}
