package sessiontest

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/manifest"
)

// makeThings makes one of everything that a process can leave in a folder; what must not be left may fail.
const makeThings = `umask 022; mkdir -p D/d/e; cd D
echo new > new; echo old > mode; chmod 0700 mode; echo moved > d/here; mv d/here d/there; ln -s new link; ln -s /etc/shadow out; ln new hard; mkdir -m 0700 locked; echo x > locked/x
chmod 4755 new; chmod 2755 d; chmod u+s,g+s mode; install -m 6755 mode suid; mkfifo fifo; mknod node c 1 3; mknod block b 7 0
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'
python3 -c 'import os; fd = os.open("direct", os.O_CREAT | os.O_WRONLY, 0o6755); os.fchmod(fd, 0o4755)'
cat > gone; rm gone; touch -d 2001-01-01 new; : > empty; truncate -s 1M sparse; cp -a locked copied; true`

// makeInProcess is the part of it that bash does without starting a program.
const makeInProcess = `umask 022; echo in-process > by-orchestrator; : > empty-by-orchestrator; echo more >> before; exec 3> held-by-orchestrator; echo x >&3`

// records are what a session may write outside the workspace: the id that its manifest got, once.
var records = []string{"/var/lib/sharness", "/var/lib/sharness/uids", "/var/lib/sharness/uids.lock", "/var/lib/sharness/quarantine"}

func TestEverythingASessionLeavesIsTheUsers(t *testing.T) {
	bait := func(s *site) string {
		dir := filepath.Join(s.base, "beside")
		if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{"root-file", "sub/other"} {
			if err := os.WriteFile(filepath.Join(dir, f), []byte("bait\n"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	s := newSite(t, func(m *manifest.Manifest) {
		m.Route = []string{"/usr/bin/sh", "/usr/bin/env"}
		m.Workspace.ProtectExtra = []string{"settings.json"}
	})
	s.write("before", "before\n")
	s.user("git init -q . && mkdir -p .claude && ln -s before a-link && mkdir -m 0700 own && git add . && git commit -q -m x", "")
	beside := bait(s)
	before := map[string]map[string]string{}
	for _, dir := range []string{beside, "/etc", "/var/lib/sharness", filepath.Join(s.workspace, ".git/hooks")} {
		before[dir] = tree(t, dir)
	}
	x, out := s.enforce(makeInProcess + `
/run/sharness/bin/sharness-bash -c '` + strings.ReplaceAll(strings.ReplaceAll(makeThings, "'", `'\''`), "D", "by-command") + `'
sh -c 'id -u > by-route; echo evil > .envrc; echo evil > settings.json; echo evil > .git/hooks/post-commit; echo evil > ../beside/root-file; git config core.hooksPath evil'
echo end`)
	if !strings.HasSuffix(out, "end\n") {
		t.Fatalf("the orchestrator did not get to its end: %q\n%s", out, x.stderr)
	}
	t.Logf("said: %.2000s", x.stderr)
	for _, want := range []string{"by-orchestrator", "empty-by-orchestrator", "held-by-orchestrator", "by-command/new", "by-command/d/there", "by-command/link", "by-command/locked/x", "by-command/copied/x", "by-route"} {
		if _, err := os.Lstat(filepath.Join(s.workspace, want)); err != nil {
			t.Errorf("%v: want it made", err)
		}
	}
	for _, no := range []string{".envrc", "settings.json", ".git/hooks/post-commit"} {
		if _, err := os.Lstat(filepath.Join(s.workspace, no)); err == nil {
			t.Errorf("%s is there: want a protected name taken away", no)
		}
	}
	wantUsers(t, s.workspace)
	id, uid := x.id()
	kept := filepath.Join("/var/lib/sharness/quarantine", id)
	for dir, was := range before {
		for path, what := range tree(t, dir) {
			if was[path] != what && !slices.Contains(records, path) && !below(path, kept) {
				t.Errorf("%s was %q and is %q", path, was[path], what)
			}
			delete(was, path)
		}
		for _, path := range slices.Sorted(maps.Keys(was)) {
			t.Errorf("%s is gone", path)
		}
	}
	if fi, err := os.Lstat(kept); err != nil || !fi.IsDir() {
		t.Errorf("%v: want what was taken away to be kept for the user", err)
	}
	wantUsers(t, kept)
	discardKept(id)
	s.wantNoTrace(id, uid)
	x.wantEvent("session.end", func(e event.Event) bool { return e.Type == event.SessionEnd })
}

func below(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
