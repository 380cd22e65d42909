package protect

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// minimalConfig is what git needs to take a directory for a repository.
const minimalConfig = "[core]\n\trepositoryformatversion = 0\n"

// disarm takes programs away from the configuration and the hooks of a git directory that came or was changed in the
// session. To read such a repository is not the person's choice: with a gitlink in the index of the repository around it
// a plain git status there starts git in the new one, and that runs its core.fsmonitor.
//
// A directory counts with objects and refs alone: HEAD may lie in another one, whose commondir names this. A linked
// worktree's has HEAD and commondir, and a config.worktree. One that a new .git names counts whatever it holds (newDotGit).
func (w *Watcher) disarm(l listing) {
	if w.cfg.Protect == manifest.ProtectNone || w.gitDirs[l.dir] || !(l.has("objects") && l.has("refs") || l.has("HEAD") && l.has("commondir")) {
		return
	}
	var st unix.Stat_t
	moved := unix.Fstat(l.fd, &st) == nil && w.isNew(st) // a rename or a new name in it; what lies in it may be older
	w.disarmDir(l.dir, moved)
}

// disarmDir disarms a git directory. moved: what lies in it counts as new.
func (w *Watcher) disarmDir(dir string, moved bool) {
	for _, name := range []string{"config", "config.worktree"} {
		w.disarmConfig(path.Join(dir, name), moved)
	}
	w.disarmHooks(path.Join(dir, "hooks"), moved, nil)
	w.common(dir, moved)
}

// common follows the commondir of a git directory that was not known at the start. Where it leads is disarmed too; what
// leads out of the workspace, or to nothing, is taken: git writes no such file, and does not work there in a view.
func (w *Watcher) common(dir string, moved bool) {
	rel := path.Join(dir, "commondir")
	st, err := w.lstat(rel)
	if err != nil {
		w.notThere(rel, err, doorGit)
		return
	}
	if !moved && !w.isNew(st) {
		return
	}
	target, ok := w.named(rel, "")
	if !ok || target == dir {
		w.takeFrom(rel, "a new git directory takes its configuration from outside the workspace, or from no folder: what names it was moved to the quarantine")
		return
	}
	w.disarmNamed(target)
}

// disarmNamed disarms what a new file of git's names. One that is no git directory at all may become one in the next session:
// what lies in it counts as new, however old it is. One that is complete and was not touched is somebody's from before.
func (w *Watcher) disarmNamed(dir string) {
	if w.gitDirs[dir] || w.followed[dir] {
		return
	}
	w.followed[dir] = true
	st, err := w.lstat(dir)
	is := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { _, err := w.lstat(path.Join(dir, name)); return err != nil })
	}
	w.disarmDir(dir, err != nil || w.isNew(st) || !is("objects", "refs") && !is("HEAD", "commondir"))
}

// named is the folder of the workspace that a file of git's names after prefix, reached by no link.
func (w *Watcher) named(rel, prefix string) (dir string, ok bool) {
	text, err := w.readFile(rel, 64<<10)
	if err != nil {
		return "", false
	}
	name, ok := strings.CutPrefix(strings.TrimRight(string(text), "\r\n"), prefix)
	if !ok || name == "" || strings.TrimSpace(name) != name || strings.ContainsFunc(name, control) {
		return "", false // git would read it otherwise than others
	}
	below, abs := strings.CutPrefix(name, strings.TrimSuffix(w.cfg.Root, "/")+"/")
	if !abs {
		below = parent(rel) + "/" + name // an absolute one that does not begin so leads to nothing here
	}
	// Not cleaned: "a/.." is not "." where a is a link. Without links what the kernel finds is what is written.
	fd, err := w.open(strings.TrimLeft(below, "/"), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil || path.IsAbs(name) && !abs {
		return "", false
	}
	unix.Close(fd)
	if dir = path.Clean(strings.TrimLeft(below, "/")); dir == "." {
		dir = ""
	}
	return dir, true
}

// newDotGit looks at what a .git of the session makes of the folder around it. A file or a link may lead git anywhere: to
// the state, which is the user's own too, into the quarantine, or to a folder that becomes a repository in the next session.
func (w *Watcher) newDotGit(l listing) {
	rel := path.Join(l.dir, ".git")
	if w.cfg.Protect == manifest.ProtectNone || w.tops[l.dir] || !l.has(".git") {
		return
	}
	st, err := w.lstat(rel)
	if err != nil {
		w.notThere(rel, err, doorGit)
		return
	}
	if !w.isNew(st) {
		return
	}
	dir := rel
	if kindOf(st.Mode) != Dir {
		var ok bool
		if dir, ok = w.named(rel, "gitdir: "); !ok {
			w.takeFrom(rel, "a new .git leads out of the workspace, or to no folder, or by a link: it was moved to the quarantine")
			return
		}
		w.disarmNamed(dir)
	}
	// A relative core.hooksPath of the user's own means a folder of this worktree, too.
	if shared, ok := w.named(path.Join(dir, "commondir"), ""); ok {
		dir = shared
	}
	if !w.gitDirs[dir] {
		return
	}
	for _, hooks := range w.hooks {
		folder := path.Join(l.dir, hooks)
		if folder == "." || folder == ".." || strings.HasPrefix(folder, "../") {
			continue
		}
		if on := w.linkOn(folder); on != "" {
			w.takeFrom(on, "a new worktree had a link where git would look for hooks: it was moved to the quarantine")
			continue
		}
		w.disarmHooks(folder, true, func(name string) bool { return w.hasHook(hooks, folder, name) })
	}
}

// linkOn is the first link on the way to rel, "" if there is none that is new.
func (w *Watcher) linkOn(rel string) string {
	parts := strings.Split(rel, "/")
	for i := 1; i < len(parts); i++ {
		on := strings.Join(parts[:i], "/")
		if st, err := w.lstat(on); err != nil {
			return ""
		} else if kindOf(st.Mode) == Link && w.isNew(st) {
			return on
		}
	}
	return ""
}

// hasHook says whether a worktree that was there at the start has the same hook: one that git checked out again may stay.
func (w *Watcher) hasHook(hooks, folder, name string) bool {
	got, err := w.readFile(path.Join(folder, name), maxConfig)
	if err != nil {
		return false
	}
	for top := range w.tops {
		own := path.Join(top, hooks, name)
		if st, err := w.lstat(own); err != nil || w.isNew(st) {
			continue
		}
		if want, err := w.readFile(own, maxConfig); err == nil && bytes.Equal(got, want) {
			return true
		}
	}
	return false
}

func (w *Watcher) disarmConfig(rel string, moved bool) {
	st, err := w.lstat(rel)
	if err != nil {
		w.notThere(rel, err, doorGit)
		return
	}
	if !moved && !w.isNew(st) {
		return
	}
	safe, found := minimalConfig, "it is not a file that can be read"
	if text, err := w.readFile(rel, maxConfig); err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
		safe, found = safeConfig(string(text), func(value string) bool { return w.submoduleAt(parent(rel), value) })
	}
	if found == "" || !w.takeFrom(rel, fmt.Sprintf("the configuration of a new repository can start programs (%s): it was moved to the quarantine, and what is harmless written anew", event.Escape(found))) {
		return
	}
	if path.Base(rel) == "config" {
		w.write(rel, safe)
	}
}

// submoduleAt says whether a git directory's core.worktree is what git writes of a submodule: a folder of the workspace with a
// .git file that names this git directory. In any other the next checkout would write what the agent committed, such as a
// .bashrc or a hook.
func (w *Watcher) submoduleAt(gitDir, value string) bool {
	dir := path.Join(gitDir, value)
	if path.IsAbs(value) || path.Clean(value) != value || dir == "." || dir == ".." || strings.HasPrefix(dir, "../") || slices.Contains(strings.Split(dir, "/"), ".git") {
		return false
	}
	back, ok := w.named(path.Join(dir, ".git"), "gitdir: ")
	return ok && back == gitDir
}

// write makes a file that is not there.
func (w *Watcher) write(rel, text string) {
	dir, err := w.open(parent(rel), unix.O_PATH|unix.O_DIRECTORY)
	if err == nil {
		var fd int
		fd, err = unix.Openat(dir, path.Base(rel), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
		unix.Close(dir)
		if err == nil {
			f := os.NewFile(uintptr(fd), "config")
			_, err = f.WriteString(text)
			f.Close()
		}
	}
	if err != nil {
		w.failed++
		w.report(event.Event{Type: event.LayerOpen, Door: doorGit, Layer: Layer, Target: w.target(rel),
			Detail: fmt.Sprintf("the configuration of a new repository was taken away and could not be written anew: %v", err)}, "rewrite")
	}
}

// disarmHooks takes each hook that git would run, and hooks that is not a folder. keep, if it is set, says which may stay.
func (w *Watcher) disarmHooks(rel string, moved bool, keep func(name string) bool) {
	st, err := w.lstat(rel)
	if err != nil {
		w.notThere(rel, err, doorGit)
		return
	}
	const detail = "a new repository had a hook, which git would have run: it was moved to the quarantine"
	if kindOf(st.Mode) != Dir {
		if moved || w.isNew(st) {
			w.takeFrom(rel, detail)
		}
		return
	}
	fd, err := w.open(rel, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if err != nil {
		w.notThere(rel, err, doorGit)
		return
	}
	defer unix.Close(fd)
	moved = moved || w.isNew(st)
	list, more, _ := readDir(fd, 1024)
	if more { // nobody has so many: all of them
		w.takeFrom(rel, detail)
		return
	}
	for _, e := range list {
		var st unix.Stat_t
		err := unix.Fstatat(fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW)
		runs := e.typ == unix.DT_LNK || e.typ == unix.DT_REG && st.Mode&0o111 != 0
		if err == nil && runs && !strings.HasSuffix(e.name, ".sample") && (moved || w.isNew(st)) && !(keep != nil && keep(e.name)) {
			w.takeFrom(path.Join(rel, e.name), detail)
		}
	}
}

// takeFrom is take for what belongs to a repository of the session.
func (w *Watcher) takeFrom(rel, detail string) bool {
	label, err := w.removeAnyhow(rel)
	ev := event.Event{Type: event.FileQuarantined, Door: doorGit, Layer: Layer, Target: w.target(rel), Detail: detail,
		Data: map[string]any{"kept": label}, Hint: &event.Hint{Person: "read it in the quarantine and put it back if you want it"}}
	gone := err == nil || errors.Is(err, errNotKept)
	if !gone {
		w.failed++
		ev.Type, ev.Hint = event.LayerOpen, &event.Hint{Person: "do not use git here before you removed it"}
		ev.Detail = fmt.Sprintf("a new repository can start programs and could not be changed: %v", err)
	} else {
		w.taken++
	}
	w.report(ev, "disarm "+rel)
	return gone
}
