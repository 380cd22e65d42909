package protect

import (
	"fmt"
	"path"
	"strings"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

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
	case kindOf(st.Mode) == Dir: // git reads none
	case ok && (target == dir || w.holds(target, "objects", "refs")):
		w.disarmNamed(target)
	case moved || w.isNew(st):
		w.takeFrom(rel, "a new git directory takes its configuration from outside the workspace, or from what is no git directory: what names it was moved to the quarantine")
	default:
		w.olderWay(rel, "")
	}
}

const byLink = "a .git or commondir led by a link to where git goes, and it or the link came there in the session: it was moved to the quarantine"

// olderWay looks at where an older file of git's leads that describes no plain way: by a link, or out of the workspace. A new link on
// it is taken. Where the file, or the link, came to its place in the session, it may mean something else than before and is taken itself.
// What is all of it older is the user's; it is told, since nothing here looks behind the link.
func (w *Watcher) olderWay(rel, prefix string) {
	name, err := w.readlink(rel)
	isLink := err == nil
	if text, rerr := w.readFile(rel, 64<<10); rerr == nil {
		name, err = strings.TrimPrefix(strings.TrimRight(string(text), "\r\n"), prefix), nil
	}
	if err != nil || strings.ContainsFunc(name, control) {
		return
	}
	at, abs := strings.CutPrefix(name, strings.TrimSuffix(w.cfg.Root, "/")+"/")
	on, moved := parent(rel), w.newWay("", rel)
	switch {
	case abs:
		on = ""
	case path.IsAbs(name):
		return // wherever it lies, it leads where it did
	case isLink && moved:
		w.takeFrom(rel, byLink)
		return
	}
	for part := range strings.SplitSeq(at, "/") {
		switch on = path.Join(on, part); {
		case on == ".." || strings.HasPrefix(on, "../"):
			if moved {
				w.takeFrom(rel, "a .git or commondir that was moved in the session leads out of the workspace: it was moved to the quarantine")
			}
			return
		case on == "." || part == "..":
			continue
		}
		st, err := w.lstat(on)
		if err != nil {
			return
		}
		if kindOf(st.Mode) != Link {
			continue
		}
		switch {
		case w.isNew(st):
			w.takeFrom(on, "a new link stood where git goes to a git directory: it was moved to the quarantine")
		case moved || w.newWay("", on):
			if w.pinnedAt(rel) != "" { // the user's own file: it is the link that came there
				rel = on
			}
			w.takeFrom(rel, byLink)
		default:
			w.report(event.Event{Type: event.LayerOpen, Door: doorGit, Layer: Layer, Target: w.target(rel),
				Detail: "a .git or commondir that is older than the session leads by a link: what lies behind that was not looked at",
				Hint:   &event.Hint{Person: "look where it leads before you use git there"}}, "older way "+rel)
		}
		return
	}
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
	return dir, len(dir) <= maxGitDir // in a longer one the next session could not protect what git obeys
}

// namesGitDir says whether git takes dir for the git directory that a .git file names (is_git_directory in its setup.c). Any other
// folder may be one of the user's sources, with a config and hooks that have nothing to do with git: it is left alone.
func (w *Watcher) namesGitDir(dir string) bool {
	return w.hasHead(dir) && w.complete(dir)
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
				w.olderWay(rel, "gitdir: ")
			}
			return
		}
		fresh = fresh || w.newWay("", rel) || w.newGitDir(dir)
		if !w.namesGitDir(dir) {
			if fresh {
				w.takeFrom(rel, "a new .git leads to a folder that is no git directory: it was moved to the quarantine")
			}
			return
		}
		w.disarmNamed(dir)
		w.own(rel, fresh)
	} else if !w.gitDirs[dir] {
		w.disarmNamed(dir) // first: what a new configuration says holds for nobody
	}
	w.own(path.Join(l.dir, ".gitmodules"), fresh)
	// A relative core.hooksPath of the user's own means a folder of this worktree, too.
	if shared, ok := w.named(path.Join(dir, "commondir"), ""); ok {
		fresh = fresh || w.newGitDir(shared) || !w.gitDirs[dir] && w.newWay("", path.Join(dir, "commondir"))
		dir = shared
	}
	for _, hooks := range w.hookFolders(dir) {
		folder := path.Join(l.dir, hooks)
		if folder == "." || folder == ".." || strings.HasPrefix(folder, "../") {
			continue
		}
		if on := w.linkOn(l.dir, folder, fresh); on != "" {
			w.takeFrom(on, "a new worktree had a link where git would look for hooks: it was moved to the quarantine")
			continue
		}
		if path.Base(hooks) == "_" && path.Dir(hooks) != "." { // husky 9: what lies there runs the scripts beside it
			hooks, folder = path.Dir(hooks), parent(folder)
		}
		w.compareHooks(dir, hooks, folder, fresh || w.newWay(l.dir, folder), hooksDepth)
	}
}

// newGitDir says whether a git directory came to its place in the session. In every view those that were known cannot be renamed.
func (w *Watcher) newGitDir(dir string) bool { return !w.gitDirs[dir] && w.newWay("", dir) }

// hookFolders are the relative core.hooksPath that hold for a worktree of a git directory. One that was not known at the start says
// its own: of a new one nothing is left by now, and one that the search did not reach is the user's.
func (w *Watcher) hookFolders(dir string) []string {
	if w.gitDirs[dir] {
		return w.hooks
	}
	config, err := w.configs.read(w.tree, path.Join(dir, "config"))
	if err != nil {
		return nil
	}
	var list []string
	for _, hooks := range config.hooks {
		if hooks = path.Clean(hooks); path.IsAbs(hooks) || hooks == "." || strings.HasPrefix(hooks, "~") || len(hooks) > maxLookup {
			continue // of the last kind git finds none
		}
		if len(list) == MaxHooks {
			w.cut(doorGit, dir, fmt.Sprintf("a configuration names more than %d folders of hooks: those in the rest are not known", MaxHooks))
			break
		}
		list = append(list, hooks)
	}
	return list
}

// linkOn is the first link on the way to rel in the worktree at top, "" if there is none that is new, or counts as new (moved).
func (w *Watcher) linkOn(top, rel string, moved bool) string {
	parts := strings.Split(rel, "/")
	for i := 1; i < len(parts); i++ {
		on := strings.Join(parts[:i], "/")
		if st, err := w.lstat(on); err != nil {
			return ""
		} else if kindOf(st.Mode) == Link && (moved || w.newWay(top, on)) {
			return on
		}
	}
	return ""
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
		if w.tops[r.Rel] && dir == gitDir {
			list = append(list, r.Rel)
		}
	}
	w.shares[gitDir] = list
	return list
}
