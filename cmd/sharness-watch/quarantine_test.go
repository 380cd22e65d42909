package main

import (
	"os"
	"path/filepath"
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
