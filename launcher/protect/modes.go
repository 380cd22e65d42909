package protect

import (
	"fmt"
	"os"
	"path"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// guarded are the folders in which whoever may write makes what the user's tools obey: git directories, and those above
// protected names. The workspace itself has a mode that is restored whole (restoreMode).
func (w *Watcher) guarded() map[string]bool {
	dirs := map[string]bool{}
	for _, set := range []map[string]bool{w.gitDirs, w.above} {
		for dir := range set {
			dirs[dir] = dir != ""
		}
	}
	return dirs
}

// rememberModes is for the first watcher of a session: a later one does not know what was before.
func (w *Watcher) rememberModes() {
	w.modes, w.acls = map[string]uint32{}, map[string]bool{"": w.listed("")}
	for dir, is := range w.guarded() {
		w.acls[dir] = w.listed(dir)
		if st, err := w.lstat(dir); is && err == nil && kindOf(st.Mode) == Dir {
			w.modes[dir] = st.Mode
		}
	}
}

// closeToOthers takes from rel the right of others to write in it that it got in the session. Of what was there at the start
// that is told by its mode then, its group's too; of what is new, which the user's umask may have left to the group, the
// right of everybody is taken.
func (w *Watcher) closeToOthers(rel string) {
	fd, err := w.open(rel, unix.O_PATH)
	if err != nil {
		return // not there, or a link
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || kindOf(st.Mode) == Link || int(st.Uid) != os.Getuid() || !w.isNew(st) {
		return // whose it is decides
	}
	given := st.Mode & 0o002
	if was, known := w.modes[rel]; known {
		given = st.Mode & 0o022 &^ was
	}
	if given == 0 {
		return
	}
	ev := event.Event{Type: event.FileQuarantined, Door: w.door(rel), Layer: Layer, Target: w.target(rel),
		Detail: fmt.Sprintf("others got the right to write where the user's tools obey (mode %o): it was taken back", st.Mode&0o7777)}
	if err := chmod(fd, st.Mode&^given); err != nil {
		w.failed++
		ev.Type, ev.Detail = event.LayerOpen, fmt.Sprintf("others got the right to write where the user's tools obey (mode %o), and keep it: %v", st.Mode&0o7777, err)
	} else {
		w.taken++
	}
	w.report(ev, "others "+first(rel))
}

// closeGuarded is closeToOthers for all that was known at the start.
func (w *Watcher) closeGuarded() {
	for dir, is := range w.guarded() {
		w.dropACL(dir)
		if is {
			w.closeToOthers(dir)
		}
	}
}

// closeRepository is closeToOthers for a git directory that was not, and for what git obeys in it.
func (w *Watcher) closeRepository(l listing) {
	if w.cfg.Protect == manifest.ProtectNone || w.gitDirs[l.dir] || !l.complete() {
		return
	}
	if l.dir != "" {
		w.dropACL(l.dir)
		w.closeToOthers(l.dir)
	}
	for _, name := range []string{"config", "config.worktree", "commondir", "hooks"} {
		if l.has(name) {
			w.dropACL(path.Join(l.dir, name))
			w.closeToOthers(path.Join(l.dir, name))
		}
	}
}
