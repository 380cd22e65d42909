package protect

import (
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/sharness/sharness/event"
	"golang.org/x/sys/unix"
)

// Bounds of the last walk, which is what a person waits for at exit.
const (
	sweepDepth = 128
	sweepDirs  = 200000
	sweepTime  = 10 * time.Second
)

// sweep looks at everything once more, when no process of the session is left to race with: protected names, links in
// git directories, and in the whole workspace what a session must not leave behind (set-id bits, FIFOs, sockets, device
// nodes) and what the user should know of (repositories).
func (w *Watcher) sweep() {
	w.everything()
	w.q.settle(time.Now())
	cut := walk(w.tree, bounds{depth: sweepDepth, dirs: sweepDirs, deadline: time.Now().Add(sweepTime)}, w.sweepDir)
	if cut {
		w.failed++
		w.emit(event.Event{Type: event.LayerOpen, Door: doorSuid, Layer: Layer, Target: w.target(""),
			Detail: fmt.Sprintf("the last look at the workspace met its bound (%d folders, %s): set-id bits, FIFOs, sockets and new repositories in the rest are not known",
				sweepDirs, sweepTime)})
	}
}

func (w *Watcher) sweepDir(fd int, dir string, list []dirent) {
	if has(list, ".git") || (isBare(list) && !strings.Contains("/"+dir+"/", "/.git/")) {
		w.newRepo(dir, list)
	}
	for _, e := range list {
		rel := path.Join(dir, e.name)
		switch e.typ {
		case unix.DT_REG:
			var st unix.Stat_t
			if unix.Fstatat(fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&0o6000 != 0 && w.isNew(st) {
				w.stripSetID(rel)
			}
		case unix.DT_LNK:
			if w.inGitDir(dir) {
				w.takeLink(rel)
			}
		case unix.DT_FIFO, unix.DT_SOCK, unix.DT_CHR, unix.DT_BLK:
			var st unix.Stat_t
			if unix.Fstatat(fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && w.isNew(st) {
				w.take(rel, doorFifo)
			}
		}
	}
}

// newRepo reports a repository that was not there at the start. One that Discover did not reach, because its search is
// bounded, is older than the session.
func (w *Watcher) newRepo(dir string, list []dirent) {
	head := dir
	if has(list, ".git") {
		head = path.Join(dir, ".git")
	}
	if st, err := w.lstat(head); err == nil && w.isNew(st) {
		w.repository(dir, head)
	}
}

func (w *Watcher) inGitDir(dir string) bool {
	for ; dir != ""; dir = parent(dir) {
		if w.gitDirs[dir] {
			return true
		}
	}
	return w.gitDirs[""]
}

// stripSetID removes set-id bits from a file made or changed in the session. On disk it belongs to the user, so that a
// set-id bit would lend the user's identity to everybody on the host.
func (w *Watcher) stripSetID(rel string) {
	fd, err := w.open(rel, unix.O_PATH)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
		err = unix.Fchmodat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), st.Mode&0o1777, 0)
	}
	ev := event.Event{Type: event.FileQuarantined, Door: doorSuid, Layer: Layer, Target: w.target(rel),
		Detail: "set-id bits were removed from a file of the session"}
	if err != nil {
		w.failed++
		ev.Type, ev.Detail = event.LayerOpen, fmt.Sprintf("a file of the session has set-id bits and keeps them: %v", err)
	} else {
		w.taken++
	}
	w.report(ev, "set-id "+first(rel))
}
