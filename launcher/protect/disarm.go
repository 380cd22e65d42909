package protect

import (
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
// worktree's has HEAD and commondir, and a config.worktree.
func (w *Watcher) disarm(l listing) {
	if w.cfg.Protect == manifest.ProtectNone || w.gitDirs[l.dir] || !(l.has("objects") && l.has("refs") || l.has("HEAD") && l.has("commondir")) {
		return
	}
	var st unix.Stat_t
	moved := unix.Fstat(l.fd, &st) == nil && w.isNew(st) // a rename or a new name in it; what lies in it may be older
	for _, name := range []string{"config", "config.worktree"} {
		w.disarmConfig(path.Join(l.dir, name), moved)
	}
	w.disarmHooks(path.Join(l.dir, "hooks"), moved)
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
// .git that is a file. In any other the next checkout would write what the agent committed, such as a .bashrc or a hook.
func (w *Watcher) submoduleAt(gitDir, value string) bool {
	dir := path.Join(gitDir, value)
	if path.IsAbs(value) || path.Clean(value) != value || dir == ".." || strings.HasPrefix(dir, "../") || slices.Contains(strings.Split(dir, "/"), ".git") {
		return false
	}
	st, err := w.lstat(path.Join(dir, ".git")) // beneath the workspace, and by no link
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
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

// disarmHooks takes each hook that git would run, and hooks that is not a folder.
func (w *Watcher) disarmHooks(rel string, moved bool) {
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
		if err == nil && runs && !strings.HasSuffix(e.name, ".sample") && (moved || w.isNew(st)) {
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
	w.report(ev, "disarm "+path.Base(rel))
	return gone
}
