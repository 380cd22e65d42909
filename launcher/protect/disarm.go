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
	if w.cfg.Protect == manifest.ProtectNone {
		return
	}
	if w.gitDirs[l.dir] {
		w.disarmRemotes(l.dir, false)
	}
	complete := l.has("objects") && l.has("refs") || l.has("HEAD") && l.has("commondir")
	if w.whole[l.dir] || !complete && !w.mayBecome(l.dir) {
		return
	}
	w.like[l.dir] = true
	var st unix.Stat_t
	moved := unix.Fstat(l.fd, &st) == nil && w.isNew(st) // a rename or a new name in it; what lies in it may be older
	w.disarmDir(l.dir, moved || !complete)
}

// mayBecome says whether dir is a place that the next session takes for a git directory, whatever lies in it: what is none
// yet would be protected there as it is, and one name later git obeys it.
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
	}
	return false
}

// disarmDir disarms a git directory. moved: what lies in it counts as new.
func (w *Watcher) disarmDir(dir string, moved bool) {
	for _, name := range []string{"config", "config.worktree"} {
		w.disarmConfig(path.Join(dir, name), moved)
	}
	w.disarmHooks(path.Join(dir, "hooks"), moved, nil)
	w.disarmRemotes(dir, moved)
	w.common(dir, moved)
}

// disarmRemotes takes the files that name remotes beside the configuration: git reads them still, and writes none for long.
func (w *Watcher) disarmRemotes(dir string, moved bool) {
	for _, name := range []string{"remotes", "branches"} {
		w.takeFiles(path.Join(dir, name), files{moved: moved, all: true,
			detail: "a file of a git directory named a remote, which can start programs: it was moved to the quarantine"})
	}
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
	target, ok := w.named(rel, "")
	switch {
	case ok && target != dir:
		w.disarmNamed(target)
	case moved || w.isNew(st):
		w.takeFrom(rel, "a new git directory takes its configuration from outside the workspace, or from no folder: what names it was moved to the quarantine")
	default:
		w.takeLinkTo(rel, "")
	}
}

// takeLinkTo takes a new link on the way that an older file of git's describes. A link of the user's is followed no further.
func (w *Watcher) takeLinkTo(rel, prefix string) {
	name, err := w.readlink(rel)
	if text, rerr := w.readFile(rel, 64<<10); rerr == nil {
		name, err = strings.TrimPrefix(strings.TrimRight(string(text), "\r\n"), prefix), nil
	}
	if err != nil || strings.ContainsFunc(name, control) {
		return
	}
	at, abs := strings.CutPrefix(name, strings.TrimSuffix(w.cfg.Root, "/")+"/")
	on := parent(rel)
	if abs {
		on = ""
	} else if path.IsAbs(name) {
		return
	}
	for part := range strings.SplitSeq(at, "/") {
		switch on = path.Join(on, part); {
		case on == "." || on == ".." || strings.HasPrefix(on, "../"):
			return
		case part == "..":
			continue
		}
		st, err := w.lstat(on)
		if err != nil {
			return
		}
		if kindOf(st.Mode) == Link {
			if w.isNew(st) {
				w.takeFrom(on, "a new link stood where git goes to a git directory: it was moved to the quarantine")
			}
			return
		}
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
	return dir, dir == "" || checkRel(dir) == nil // too long, the next session could not start
}

// newDotGit looks at what a .git that was not protected makes of the folder around it. A file or a link may lead git anywhere: to
// the state, which is the user's own too, into the quarantine, or to a folder that becomes a repository in the next session.
// One that is older may mean something else since: by a link on the way, or by hooks beside it.
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
	dir, fresh := rel, w.isNew(st)
	if kindOf(st.Mode) != Dir {
		var ok bool
		if dir, ok = w.named(rel, "gitdir: "); !ok {
			if fresh {
				w.takeFrom(rel, "a new .git leads out of the workspace, or to no folder, or by a link: it was moved to the quarantine")
			} else {
				w.takeLinkTo(rel, "gitdir: ")
			}
			return
		}
		w.disarmNamed(dir)
	}
	// A relative core.hooksPath of the user's own means a folder of this worktree, too.
	if shared, ok := w.named(path.Join(dir, "commondir"), ""); ok {
		dir = shared
	}
	for _, hooks := range w.hookFolders(dir) {
		folder := path.Join(l.dir, hooks)
		if folder == "." || folder == ".." || strings.HasPrefix(folder, "../") {
			continue
		}
		if on := w.linkOn(folder); on != "" {
			w.takeFrom(on, "a new worktree had a link where git would look for hooks: it was moved to the quarantine")
			continue
		}
		w.disarmHooks(folder, fresh, func(name string) bool { return w.hasHook(dir, path.Join(hooks, name), path.Join(folder, name), 0o111) })
		if path.Base(hooks) == "_" { // husky 9: what lies there runs the scripts beside it, whatever their mode
			hooks, folder := path.Dir(hooks), parent(folder)
			w.takeFiles(folder, files{moved: fresh, all: true, detail: hookDetail, keep: func(name string) bool { return w.hasHook(dir, path.Join(hooks, name), path.Join(folder, name), 0) }})
		}
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

// maxCompared bounds how many files of worktrees are compared with others: each new one with those of each that was there.
const maxCompared = 20000

// hasHook says whether a worktree of the same git directory, that was there at the start, has the same file at rel below its top,
// with one of the bits of mode: what git checked out again may stay.
func (w *Watcher) hasHook(gitDir, rel, at string, mode uint32) bool {
	st, err := w.lstat(at)
	if err != nil || kindOf(st.Mode) != File || st.Size > maxConfig {
		return false
	}
	for _, top := range w.worktrees(gitDir) {
		if w.compared++; w.compared > maxCompared {
			return false
		}
		own := path.Join(top, rel)
		was, err := w.lstat(own)
		if err != nil || w.isNew(was) || was.Size != st.Size || mode != 0 && was.Mode&mode == 0 {
			continue
		}
		want, err := w.readFile(own, maxConfig)
		got, gerr := w.readFile(at, maxConfig)
		if err == nil && gerr == nil && bytes.Equal(got, want) {
			return true
		}
	}
	return false
}

// worktrees are the tops of the worktrees of a git directory that were there at the start.
func (w *Watcher) worktrees(gitDir string) []string {
	if list, ok := w.shares[gitDir]; ok {
		return list
	}
	list := []string{}
	for _, r := range w.known {
		dir := r.GitDir
		if shared, ok := w.named(path.Join(dir, "commondir"), ""); ok {
			dir = shared
		}
		if w.tops[r.Rel] && !r.Outside && dir == gitDir {
			list = append(list, r.Rel)
		}
	}
	w.shares[gitDir] = list
	return list
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

// hookFolders are the relative core.hooksPath that hold for a worktree of a git directory. One that was not known at the start says
// its own: of a new one nothing is left by now, and one that the search did not reach is the user's.
func (w *Watcher) hookFolders(dir string) []string {
	if w.gitDirs[dir] {
		return w.hooks
	}
	text, err := w.readFile(path.Join(dir, "config"), maxConfig)
	if err != nil {
		return nil
	}
	var list []string
	for _, hooks := range readConfig(string(text)).hooks {
		if hooks = path.Clean(hooks); !path.IsAbs(hooks) && hooks != "." && !strings.HasPrefix(hooks, "~") {
			list = append(list, hooks)
		}
	}
	return list
}

const hookDetail = "a new repository had a hook, which git would have run: it was moved to the quarantine"

// disarmHooks takes each hook that git would run, and hooks that is not a folder. keep, if it is set, says which may stay.
func (w *Watcher) disarmHooks(rel string, moved bool, keep func(name string) bool) {
	w.takeFiles(rel, files{moved: moved, keep: keep, detail: hookDetail})
}

// files says which files of a folder takeFiles takes.
type files struct {
	moved  bool                   // what lies in it counts as new
	all    bool                   // those that nobody can execute, too
	keep   func(name string) bool // nil: none stays
	detail string
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
	list, more, _ := readDir(fd, 1024)
	if more { // nobody has so many: all of them
		w.takeFrom(rel, f.detail)
		return
	}
	for _, e := range list {
		var st unix.Stat_t
		err := unix.Fstatat(fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW)
		runs := e.typ == unix.DT_LNK || e.typ == unix.DT_REG && (f.all || st.Mode&0o111 != 0)
		if err == nil && runs && !strings.HasSuffix(e.name, ".sample") && (moved || w.isNew(st)) && (f.keep == nil || !f.keep(e.name)) {
			w.takeFrom(path.Join(rel, e.name), f.detail)
		}
	}
}

// takeFrom is take for what belongs to a repository of the session.
func (w *Watcher) takeFrom(rel, detail string) bool {
	delete(w.existing, rel) // or what we do here would be told as done from outside
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
