package protect

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sharness/sharness/event"
	"golang.org/x/sys/unix"
)

// Bounds of the last walk, which is what a person waits for at exit.
const (
	sweepDepth = 128
	sweepDirs  = 200000
	sweepNames = 200000 // of one folder
	sweepTime  = 10 * time.Second
)

// sweep looks at everything once more, when no process of the session is left to race with: protected names, links in
// git directories, and in the whole workspace what a session must not leave behind (set-id bits, FIFOs, sockets, device
// nodes) and what the user should know of (repositories). What failed while the session ran is tried again here, so only
// failures from here on count.
func (w *Watcher) sweep() {
	w.failed = 0
	w.everything()
	w.q.settle(time.Now())
	w.writtenByAnotherName()
	// Git directories first, with bounds of their own: nothing that fills the workspace keeps us from a link in them.
	// Their objects come with the rest; git writes no file there whose name is known before.
	objects := func(dir, name string) bool { return name == "objects" && w.gitDirs[dir] }
	if walk(w.tree, w.bounds(objects), w.topGitDirs(), w.sweepDir) || w.late() {
		w.cut(doorLink, "", fmt.Sprintf("the last look at the git directories met its bound (%d folders, %d names of one, %s): links in the rest are not known",
			sweepDirs, sweepNames, sweepTime))
	}
	if walk(w.tree, w.bounds(nil), []string{""}, w.sweepDir) || w.late() {
		w.cut(doorSuid, "", fmt.Sprintf("the last look at the workspace met its bound (%d folders, %d names of one, %s): set-id bits, FIFOs, sockets and new repositories in the rest are not known",
			sweepDirs, sweepNames, sweepTime))
	}
	w.closeGuarded()
	w.trim()
	w.restoreMode()
}

// trim packs the quarantine, and says what that was too small for after all.
func (w *Watcher) trim() {
	w.q.settle(time.Now())
	removed, left := w.q.finish()
	for _, label := range removed {
		w.report(event.Event{Type: event.FileQuarantined, Door: doorConfig, Layer: Layer, Data: map[string]any{"kept": "", "removed": w.kept(label)},
			Detail: fmt.Sprintf("something that was taken away is not kept: the quarantine holds %d MiB and no more", maxKeptBytes>>20)}, "trim")
	}
	for label, err := range left {
		w.failed++
		w.report(event.Event{Type: event.LayerOpen, Door: doorConfig, Layer: Layer, Data: map[string]any{"kept": w.kept(label)},
			Detail: fmt.Sprintf("what was taken away could not be packed, or removed again: %v", err),
			Hint:   &event.Hint{Person: "it may start programs when you enter its folder: look at it as another user, without your prompt"}}, "trim left")
	}
}

func (w *Watcher) bounds(skip func(dir, name string) bool) bounds {
	closed := func(dir string) bool {
		for above := dir; above != ""; above = parent(above) {
			if _, ok := w.existing[above]; ok { // read-only in every view
				return true
			}
		}
		w.report(event.Event{Type: event.LayerOpen, Door: doorGit, Layer: Layer, Target: w.target(dir),
			Detail: "a folder of somebody else's can be entered and not listed: what a session left below it is not known",
			Hint:   &event.Hint{Person: "look below it before you use git here, or give its owner's group the right to list it"}}, "closed "+dir)
		return true // no session can make such a folder: it does not fail for it
	}
	w.deadline = time.Now().Add(sweepTime)
	return bounds{depth: sweepDepth, dirs: sweepDirs, names: sweepNames, deadline: w.deadline, skip: skip, closed: closed}
}

// late says whether the walk that bounds were made for has no time left.
func (w *Watcher) late() bool { return time.Now().After(w.deadline) }

// cut says that a bound was met.
func (w *Watcher) cut(door, dir, detail string) {
	w.failed++
	w.report(event.Event{Type: event.LayerOpen, Door: door, Layer: Layer, Target: w.target(dir), Detail: detail}, "bound "+door+dir)
}

// topGitDirs are the protected git directories that lie in no other but the workspace itself, which the second walk is for.
func (w *Watcher) topGitDirs() (list []string) {
	for dir := range w.gitDirs {
		above := parent(dir)
		for above != "" && !w.gitDirs[above] {
			above = parent(above)
		}
		if dir != "" && above == "" {
			list = append(list, dir)
		}
	}
	return list
}

// restoreMode gives the workspace the mode that it had before the session: a command can change it, and so did we.
func (w *Watcher) restoreMode() {
	var st unix.Stat_t
	err := unix.Fstat(w.root, &st)
	if err == nil && st.Mode == w.cfg.Mode {
		return
	}
	ev := event.Event{Type: event.FileQuarantined, Door: doorConfig, Layer: Layer, Target: w.target(""),
		Detail: fmt.Sprintf("the mode of the workspace was changed from %o to %o and is restored", w.cfg.Mode&0o7777, st.Mode&0o7777)}
	if err == nil {
		err = chmod(w.root, w.cfg.Mode)
	}
	if err != nil {
		w.failed++
		ev.Type, ev.Detail = event.LayerOpen, fmt.Sprintf("the mode of the workspace could not be restored to %o: %v", w.cfg.Mode&0o7777, err)
	}
	w.report(ev, "mode")
}

func (w *Watcher) sweepDir(l listing) {
	fd, dir := l.fd, l.dir
	w.newRepo(l)
	w.newDotGit(l)
	w.disarm(l)
	w.closeRepository(l)
	for i, e := range l.list {
		if i%64 == 63 && w.late() {
			return
		}
		rel := path.Join(dir, e.name)
		switch e.typ {
		case unix.DT_REG:
			var st unix.Stat_t
			if unix.Fstatat(fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&0o6000 != 0 && w.isNew(st) {
				w.stripSetID(rel)
			}
		case unix.DT_LNK:
			if gitDir, ok := w.gitDirOf(dir); ok {
				w.takeLink(gitDir, rel, false)
			} else {
				w.takeNewLink(dir, rel)
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
func (w *Watcher) newRepo(l listing) {
	head := l.dir
	switch {
	case l.has(".git"):
		head = path.Join(l.dir, ".git")
	case !l.has("HEAD") || !l.has("objects") || !l.has("refs") || strings.Contains("/"+l.dir+"/", "/.git/"):
		return
	}
	if st, err := w.lstat(head); err == nil && w.isNew(st) {
		w.repository(l.dir, head)
	}
}

// gitDirOf is the nearest known git directory in which dir lies.
func (w *Watcher) gitDirOf(dir string) (gitDir string, ok bool) {
	gitDir = dir
	for ; gitDir != "" && !w.gitDirs[gitDir]; gitDir = parent(gitDir) {
	}
	return gitDir, w.gitDirs[gitDir] && !w.inWorktree(gitDir, dir)
}

// Folders of a git directory in which git, or what comes with it, writes files whose names are known before.
var gitFolders = []string{"NOTES_MERGE_WORKTREE", "annex", "branches", "common", "fsmonitor--daemon", "hooks", "info", "lfs", "logs",
	"modules", "objects", "rebase-apply", "rebase-merge", "refs", "reftable", "remotes", "rr-cache", "sequencer", "svn", "worktrees"}

// inWorktree says whether dir lies in a worktree that somebody keeps inside of a bare repository: what is there is no part of
// the git directory.
func (w *Watcher) inWorktree(gitDir, dir string) bool {
	if dir == gitDir || slices.Contains(strings.Split(gitDir, "/"), ".git") || slices.Contains(gitFolders, first(strings.TrimPrefix(dir[len(gitDir):], "/"))) {
		return false
	}
	for ; dir != gitDir; dir = parent(dir) {
		if at, ok := w.named(path.Join(dir, ".git"), "gitdir: "); ok && parent(at) == path.Join(gitDir, "worktrees") {
			return true
		}
	}
	return false
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
		err = chmod(fd, st.Mode&0o1777)
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
