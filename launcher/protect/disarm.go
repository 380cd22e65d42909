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
// worktree's has HEAD and commondir, and a config.worktree. One that a new .git names counts whatever it holds (newDotGit).
func (w *Watcher) disarm(l listing) {
	if w.cfg.Protect == manifest.ProtectNone {
		return
	}
	if w.gitDirs[l.dir] {
		w.disarmRemotes(l.dir, false)
	}
	complete := l.complete()
	if w.whole[l.dir] {
		w.disarmState(l, false)
	}
	if w.whole[l.dir] || !complete && !w.mayBecome(l.dir) {
		return
	}
	w.like[l.dir] = true
	var st unix.Stat_t
	moved := unix.Fstat(l.fd, &st) == nil && w.isNew(st) // a rename or a new name in it; what lies in it may be older
	w.disarmDir(l.dir, moved || !complete)
	w.disarmState(l, moved && complete) // what is none yet will have been changed when it is one
}

// mayBecome says whether dir is a place that the next session takes for a git directory, whatever lies in it: what is none
// yet would be protected there as it is, and one name later git obeys it. What lies in a git directory, such as a branch that
// is called config, is none, for modules either.
func (w *Watcher) mayBecome(dir string) bool {
	if path.Base(dir) == ".git" || w.gitDirs[dir] {
		return true
	}
	const levels = 5 // modules looks four folders deep
	for i, above := 0, parent(dir); i < levels && above != ""; i, above = i+1, parent(above) {
		g := parent(above)
		switch name := path.Base(above); {
		case name != "modules" && (name != "worktrees" || i > 0):
		case w.gitDirs[g] || w.like[g]:
			return true
		}
		if w.isBare(above) {
			return false
		}
	}
	return false
}

// disarmDir disarms a git directory. moved: what lies in it counts as new.
func (w *Watcher) disarmDir(dir string, moved bool) {
	for _, name := range []string{"config", "config.worktree"} {
		w.disarmConfig(path.Join(dir, name), moved)
	}
	w.disarmHooks(path.Join(dir, "hooks"), moved)
	w.disarmRemotes(dir, moved)
	w.common(dir, moved)
	for _, name := range []string{"config", "config.worktree", "commondir"} {
		w.own(path.Join(dir, name), moved)
	}
}

// disarmRemotes takes the files that name remotes beside the configuration: git reads them still, and writes none for long.
func (w *Watcher) disarmRemotes(dir string, moved bool) {
	for _, name := range []string{"remotes", "branches"} {
		rel := path.Join(dir, name)
		if (w.whole[rel] || w.isBare(rel)) && !w.complete(dir) {
			continue // a submodule that is called so, beside others: of no git directory
		}
		w.takeFiles(rel, files{moved: moved, all: true, folders: w.obeys(dir),
			detail: "a file of a git directory named a remote, which can start programs: it was moved to the quarantine"})
	}
}

// disarmNamed disarms what a new file of git's names. One that is no git directory at all may become one in the next session:
// what lies in it counts as new, however old it is. One that is complete and was not touched is somebody's from before.
func (w *Watcher) disarmNamed(dir string) {
	if w.whole[dir] || w.followed[dir] {
		return
	}
	w.followed[dir] = true
	st, err := w.lstat(dir)
	w.disarmDir(dir, err != nil || w.isNew(st) || !w.complete(dir))
}

func (w *Watcher) disarmConfig(rel string, moved bool) {
	st, err := w.lstat(rel)
	if err != nil {
		w.notThere(rel, err, doorGit)
		return
	}
	// Git reads no folder; it is one of the user's sources, or a submodule that is called so.
	if !moved && !w.isNew(st) || kindOf(st.Mode) == Dir || w.pinnedAt(rel) != "" {
		return
	}
	w.disarmWritten(rel, st)
}

// disarmWritten is disarmConfig of what a session wrote for sure.
func (w *Watcher) disarmWritten(rel string, st unix.Stat_t) {
	safe, found := minimalConfig, fmt.Sprintf("it is not a file of at most %d bytes that can be read", maxNewConfig)
	if text, err := w.readFile(rel, maxNewConfig); err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
		safe, found = safeConfig(string(text), func(value string) bool { return w.submoduleAt(parent(rel), value) })
	}
	if found == "" || !w.takeAs(rel, doorGit, fmt.Sprintf("the configuration of a new repository can start programs (%s): it was moved to the quarantine, and what is harmless written anew", event.Escape(found))) {
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

const hookDetail = "a new repository had a hook, which git would have run: it was moved to the quarantine"

// maxHooks bounds the names in a folder of hooks, or of remotes. Nobody has so many.
const maxHooks = 1024

// disarmHooks takes each hook that git would run, and hooks that is not a folder.
func (w *Watcher) disarmHooks(rel string, moved bool) {
	w.takeFiles(rel, files{moved: moved, folders: w.obeys(parent(rel)), detail: hookDetail})
}

// obeys says whether dir is no folder of sources by any chance. What lies in folders of its hooks, where git makes none, is taken
// with them: the next session would find it read-only, as if it were the user's.
func (w *Watcher) obeys(dir string) bool { return w.isBare(dir) || w.mayBecome(dir) }

// files says which files of a folder takeFiles takes.
type files struct {
	moved   bool // what lies in it counts as new
	folders bool // with what lies in folders
	all     bool // those that nobody can execute, too; one with a second name may become one that somebody can
	detail  string
}

// takeFiles takes the new files and links of a folder, and what is no folder in its place.
func (w *Watcher) takeFiles(rel string, f files) {
	st, err := w.lstat(rel)
	if err != nil {
		w.notThere(rel, err, doorGit)
		return
	}
	if kindOf(st.Mode) != Dir {
		if f.moved || w.isNew(st) {
			w.takeFrom(rel, f.detail)
		}
		return
	}
	fd, err := w.open(rel, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if err != nil {
		w.notThere(rel, err, doorGit)
		return
	}
	defer unix.Close(fd)
	moved := f.moved || w.isNew(st)
	for _, e := range w.hooksIn(fd, rel, f.detail) {
		var st unix.Stat_t
		err := unix.Fstatat(fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW)
		runs := e.typ == unix.DT_LNK || e.typ == unix.DT_DIR && f.folders || e.typ == unix.DT_REG && (f.all || st.Mode&0o111 != 0 || st.Nlink > 1)
		if err == nil && runs && !strings.HasSuffix(e.name, ".sample") && (moved || w.isNew(st)) {
			w.takeFrom(path.Join(rel, e.name), f.detail)
		}
	}
}

// hooksIn lists a folder of hooks, or of remotes. One with too many is taken whole, and nothing is left to list, but where something of
// the user's lies in it.
func (w *Watcher) hooksIn(fd int, rel, detail string) []dirent {
	list, more, err := readDir(fd, maxHooks)
	if more {
		if w.takeFrom(rel, detail) {
			return nil
		}
		if _, err = unix.Seek(fd, 0, unix.SEEK_SET); err == nil {
			list, _, err = readDir(fd, sweepNames)
		}
	}
	if err != nil {
		w.notThere(rel, err, doorGit)
	}
	return list
}

// takeFrom is take for what belongs to a repository of the session. What no session could write since this one began is left as
// it is, and told: a new repository can name the user's own folder, or come to be around it.
func (w *Watcher) takeFrom(rel, detail string) bool {
	at := w.pinnedAt(rel)
	if at == "" {
		return w.takeAs(rel, doorGit, detail)
	}
	w.failed++
	w.report(event.Event{Type: event.LayerOpen, Door: doorGit, Layer: Layer, Target: w.target(rel),
		Detail: fmt.Sprintf("a new repository obeys what lies here, and it was not taken away, since %s was protected", event.Escape(at)),
		Hint:   &event.Hint{Person: "look at what lies here, and around it, before you use git there"}}, "pinned "+rel)
	return false
}

func (w *Watcher) takeAs(rel, door, detail string) bool {
	delete(w.existing, rel) // or what we do here would be told as done from outside
	label, err := w.removeAnyhow(rel)
	ev := event.Event{Type: event.FileQuarantined, Door: door, Layer: Layer, Target: w.target(rel), Detail: detail,
		Data: map[string]any{"kept": label}, Hint: &event.Hint{Person: "read it in the quarantine and put it back if you want it"}}
	gone := err == nil || errors.Is(err, errNotKept)
	if !gone {
		w.failed++
		ev.Type, ev.Hint = event.LayerOpen, &event.Hint{Person: "do not use git here before you removed it"}
		ev.Detail = fmt.Sprintf("what can start programs could not be taken away: %v", err)
	} else {
		w.taken++
	}
	w.report(ev, "disarm "+rel)
	return gone
}
