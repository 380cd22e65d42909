package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sharness/sharness/event"
)

// keptBytes is what the quarantine takes on the disk.
func (s *session) keptBytes() (n int64) {
	filepath.WalkDir(s.kept, func(p string, d os.DirEntry, err error) error {
		if fi, e := d.Info(); err == nil && e == nil {
			n += fi.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return nil
	})
	return n
}

// However it comes there, the quarantine holds no more than its bound when the session ends.
func TestQuarantineIsBoundedAlsoForWhatIsRenamedIntoIt(t *testing.T) {
	for name, script := range map[string]string{
		"files":       `for n in .envrc .mcp.json .exrc; do dd if=/dev/zero of=x bs=1M count=40 status=none; mv x $n; while [ -e $n ]; do :; done; done`,
		"folders":     `for n in .vscode .idea .zed; do mkdir x; dd if=/dev/zero of=x/f bs=1M count=40 status=none; mv x $n; while [ -e $n ]; do :; done; done`,
		"grows after": `mkdir x; exec 3>x/f; mv x .vscode; while [ -e .vscode ]; do :; done; dd if=/dev/zero bs=1M count=80 status=none >&3`,
		"many names":  `python3 -c 'import os; os.mkdir("x"); [os.mknod("x/%d" % i) for i in range(20000)]; os.rename("x", ".vscode")'`,
		"deep": `python3 -c '
import os
os.mkdir("x"); fd = os.open("x", os.O_RDONLY)
for i in range(300):
    os.mkdir("d", dir_fd=fd); fd2 = os.open("d", os.O_RDONLY, dir_fd=fd); os.close(fd); fd = fd2
f = os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=fd); os.posix_fallocate(f, 0, 80 << 20)
os.rename("x", ".vscode")'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", shm)
			s := start(t, `true`, "")
			s.sh(script)
			if r := s.sweep(); r.A == 0 || r.C != 0 {
				t.Errorf("sweep: got %+v, want something taken and nothing failed", r)
			}
			if n := s.keptBytes(); n > 64<<20 {
				t.Errorf("the quarantine takes %d MiB", n>>20)
			}
			entries, _ := filepath.Glob(s.kept + "/*/*")
			if len(entries) > 5000 {
				t.Errorf("the quarantine holds %d names", len(entries))
			}
			s.await("the event", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				for _, e := range s.events {
					if e.Type == event.FileQuarantined && e.Data["kept"] == "" {
						return true
					}
				}
				return false
			})
			if left := s.sh(`find . ../kept -name '.sharness*'`); left != "" {
				t.Errorf("left: %s", left)
			}
		})
	}
}

// inQuarantine are names that were taken, each of which would start a program where the person goes there or types git.
var inQuarantine = map[string]string{
	"repository": `git init -q x; git -C x config core.fsmonitor "` + evil + `"; mv x .vscode`,
	"bare": `git init -q --bare x; printf '[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\nfsmonitor = "touch '$PWD'/../PWNED; false"\n' >x/config
mv x .vscode`,
	"below":  `mkdir x; git init -q x/deep; git -C x/deep config core.fsmonitor "` + evil + `"; mv x .vscode`,
	"locked": `git init -q x; git -C x config core.fsmonitor "` + evil + `"; chmod 0 x/.git/config; chmod 0 x/.git; mv x .vscode`,
	"link":   `git init -q ../elsewhere; git -C ../elsewhere config core.fsmonitor "` + evil + `"; ln -s $PWD/../elsewhere .vscode`,
}

// entered is what a person does who looks for what was taken away, with a prompt that asks git.
const entered = `chmod -R u+rwX ../kept; find ../kept/ -type d -o -type l | while read -r d; do (cd "$d" && git status --short) || true; done >/dev/null 2>&1`

func testQuarantined(t *testing.T, kept string, sweep bool) {
	for name, script := range inQuarantine {
		t.Run(name, func(t *testing.T) {
			s := start(t, `true`, kept)
			s.sh(script + `; while [ -e .vscode -o -L .vscode ]; do :; done; rm -f ../PWNED`)
			if sweep {
				if r := s.sweep(); r.A == 0 || r.C != 0 {
					t.Errorf("sweep: got %+v, want something taken and nothing failed", r)
				}
			}
			s.sh(strings.ReplaceAll(entered, "../kept", s.kept))
			_, err := os.Stat(filepath.Join(s.root, "../PWNED"))
			if ran := err == nil; ran == sweep {
				t.Errorf("a program of the session ran: %v", ran)
			}
			if sweep && name != "link" && !(name == "locked" && kept != "") && !strings.Contains(s.keptContents(), "PWNED") {
				t.Error("the quarantine does not hold what was taken")
			}
		})
	}
}

func TestSideDoor_FileGit_NothingInTheQuarantineRunsWhereThePersonEntersIt(t *testing.T) {
	testQuarantined(t, "", true)
}

func TestSideDoor_FileGit_NothingInACopiedQuarantineRunsEither(t *testing.T) {
	testQuarantined(t, shm, true)
}

// Before the end of a session its folder is root's: the rows above show something.
func TestQuarantineOfARunningSessionWouldRunPrograms(t *testing.T) { testQuarantined(t, "", false) }

func TestWhatWasPackedIsReadable(t *testing.T) {
	s := start(t, `true`, "")
	s.sh(`mkdir -p x/a/b; echo one >x/a/b/1; echo two >x/$(printf '\377\n"'); ln -s a/b x/l; mkfifo x/p; echo s >x/s; chmod 0000 x/s x/a; python3 -c 'print("x" * 200, end="")' >n
mkdir x/$(cat n); echo long >x/$(cat n)/$(cat n); chmod 4755 x/$(cat n)/$(cat n); mv x .vscode; while [ -e .vscode ]; do :; done`)
	if r := s.sweep(); r.A == 0 || r.C != 0 {
		t.Errorf("sweep: got %+v", r)
	}
	want := "one\ntwo\nl -> a/b\ns\nlong\n755"
	if got := s.sh(`f=$PWD/../kept/0000-.vscode.tar; mkdir ../read; cd ../read; tar -xf $f; cd 0000-.vscode; chmod u+rwx a; cat a/b/1; cat $(printf '\377')*
find l -printf '%p -> %l\n'; chmod u+r s; cat s; test ! -e p; cat xxx*/x*; stat -c %a xxx*/x*`); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.await("an event that says where it is", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.ContainsFunc(s.events, func(e event.Event) bool { return e.Data["kept"] == filepath.Join(s.kept, "0000-.vscode.tar") })
	})
}

// A sparse file takes nothing on the disk, and its archive would.
func TestSideDoor_FileConfig_SparseFileDoesNotFillTheDisk(t *testing.T) {
	s := start(t, `true`, "")
	s.sh(`mkdir x; truncate -s 1T x/f; mv x .vscode; while [ -e .vscode ]; do :; done`)
	if r := s.sweep(); r.A == 0 || r.C != 0 {
		t.Errorf("sweep: got %+v", r)
	}
	if n := s.keptBytes(); n > 64<<20 {
		t.Errorf("the quarantine takes %d MiB", n>>20)
	}
	if left := s.sh(`ls -A ../kept`); left != "" {
		t.Errorf("left: %s", left)
	}
}
