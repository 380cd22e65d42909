package protect

import (
	"errors"
	"fmt"
	"math/bits"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sharness/sharness/event"
	"golang.org/x/sys/unix"
)

// Layer is the name of this wall in events; it and the doors are those of internal/sidedoor.
const (
	Layer      = "protect"
	doorConfig = "file-config"
	doorGit    = "file-git"
	doorLink   = "file-link"
	doorFifo   = "file-fifo"
	doorSuid   = "file-suid"
)

// take moves rel into the quarantine and reports it.
func (w *Watcher) take(rel string, door string) {
	label, err := w.removeAnyhow(rel)
	if err == unix.ENOENT {
		return
	}
	ev := event.Event{Type: event.FileQuarantined, Door: door, Layer: Layer, Target: w.target(rel)}
	switch {
	case err == nil:
		ev.Detail = "a protected name appeared and was moved to the quarantine"
		ev.Data = map[string]any{"kept": label}
	case errors.Is(err, errNotKept):
		ev.Detail = "a protected name appeared and was removed"
		ev.Data = map[string]any{"kept": ""}
	default:
		w.failed++
		ev.Type = event.LayerOpen
		ev.Detail = fmt.Sprintf("a protected name appeared and could not be taken away: %v", err)
		ev.Hint = &event.Hint{Person: "look at it before you use a tool in this folder"}
	}
	if err == nil || errors.Is(err, errNotKept) {
		w.taken++
		ev.Hint = &event.Hint{Person: "make it yourself, outside a session, if you want it",
			Model: "will not change on retry; this name is protected; ask the user to create it"}
	}
	key := door + " " + rel
	if !w.absent[rel] {
		key = door + " below " + first(rel)
	}
	w.report(ev, key)
}

// removeAnyhow removes rel although somebody locked it, or a directory above. label says where it is kept.
func (w *Watcher) removeAnyhow(rel string) (label string, err error) {
	label, err = w.remove(rel)
	// Again, a few times: a loop that changes the mode may win one race.
	for try := 0; err == unix.EACCES && try < 8; try++ {
		w.unlock(path.Join(rel, "x")) // rel too: moving a directory writes its ".."
		label, err = w.remove(rel)
	}
	if label != "" {
		label = w.kept(label)
	}
	return label, err
}

// pinnedAt is the entry that rel is or lies in, or that lies in rel, which was read-only in every view and is where it was, "" if
// there is none: no session put it there, and it is the user's whatever came to be around it.
func (w *Watcher) pinnedAt(rel string) string {
	same := func(at string, was identity) bool {
		st, err := w.lstat(at)
		return err == nil && was == identity{st.Dev, st.Ino}
	}
	for at := rel; at != ""; at = parent(at) {
		if was, ok := w.pinned[at]; ok && same(at, was) {
			return at
		}
	}
	for at, was := range w.pinned {
		if strings.HasPrefix(at, rel+"/") && same(at, was) {
			return at
		}
	}
	return ""
}

// kept is where what has a label lies when the session has ended.
func (w *Watcher) kept(label string) string { return path.Join(w.cfg.Quarantine, label) }

func (w *Watcher) remove(rel string) (string, error) {
	dir, err := w.open(parent(rel), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return "", err
	}
	defer unix.Close(dir)
	return w.q.take(dir, path.Base(rel), rel)
}

// report sends the first, second, fourth, eighth … event of one key, so that a loop inside cannot flood the sinks. Count
// is how many there were.
func (w *Watcher) report(ev event.Event, key string) {
	if len(w.times) > 4096 {
		key = "other " + ev.Door
	}
	w.times[key]++
	ev.Count = w.times[key]
	if bits.OnesCount64(ev.Count) == 1 {
		w.emit(ev)
	}
}

// target is the path of rel for an event. Names are bytes from inside; what a terminal obeys or hides is escaped.
func (w *Watcher) target(rel string) *event.Target {
	return &event.Target{Asked: event.Escape(path.Join(w.cfg.Root, rel))}
}

func (w *Watcher) door(rel string) string {
	if w.gitDirs[parent(rel)] {
		return doorGit
	}
	return Door(rel)
}

// Door is the side door of a protected name, as far as the name alone tells: what git obeys, or what something else does.
func Door(rel string) string {
	switch first(rel) {
	case ".gitmodules", ".husky", ".githooks":
		return doorGit
	}
	if slices.ContainsFunc(rootNames, func(n name) bool { return rel == n.path || strings.HasPrefix(rel, n.path+"/") }) {
		return doorConfig
	}
	if slices.ContainsFunc(strings.Split(rel, "/"), func(part string) bool { return strings.HasSuffix(part, ".git") }) {
		return doorGit
	}
	isIt := func(n name) bool { return n.path == path.Base(rel) }
	if slices.ContainsFunc(gitDirNames, isIt) || isIt(worktreeName) {
		return doorGit // in a git directory of another name
	}
	return doorConfig
}

// takeLink takes rel away if it is a symbolic link. Git writes COMMIT_EDITMSG, MERGE_MSG, logs/* and more through a link
// with bytes the agent chose, so that a link there makes the user's next commit overwrite a file of the user's home.
// Git makes no link in a git directory itself; one that Discover met is pinned and in existing or older than the session.
//
// An older link came there with a renamed folder, but not where git only writes names that nobody knows before, and users have links.
// moved: it counts as if it had.
func (w *Watcher) takeLink(gitDir, rel string, moved bool) {
	st, err := w.lstat(rel)
	if err != nil || kindOf(st.Mode) != Link {
		return
	}
	below := first(strings.TrimPrefix(rel[len(gitDir):], "/"))
	if w.isNew(st) || below != "objects" && below != "lfs" && below != "annex" && (moved || w.newWay(gitDir, rel)) {
		w.take(rel, doorLink)
	}
}

// takeNewLink is takeLink of what lies in a git directory of the session's, dir or one above. It takes HEAD for git to write there.
func (w *Watcher) takeNewLink(dir, rel string) {
	gitDir := dir
	for ; gitDir != "" && !w.like[gitDir]; gitDir = parent(gitDir) {
	}
	if gitDir == "" || w.inWorktree(gitDir, dir) {
		return
	}
	if head, err := w.lstat(path.Join(gitDir, "HEAD")); err == nil {
		w.takeLink(gitDir, rel, w.isNew(head))
	}
}

// links is takeLink for every name directly in a git directory.
func (w *Watcher) links(dir string) {
	fd, err := w.open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	list, more, _ := readDirOf(fd, maxPerDir, unix.DT_LNK)
	for _, e := range list {
		w.takeLink(dir, path.Join(dir, e.name), false)
	}
	if more {
		w.cut(doorLink, dir, fmt.Sprintf("a git directory holds more than %d links: those in the rest are not known", maxPerDir))
	}
}

// isNew compares ctime, which nobody can set, with the start, which is a stamp of the same clock (Begin).
func (w *Watcher) isNew(st unix.Stat_t) bool {
	return !time.Unix(st.Ctim.Unix()).Before(w.cfg.Started)
}

// repository reports a repository that appeared in dir. It stays: clone, init and submodule are a day's work. What could
// start a program in it is taken at the end (disarm).
func (w *Watcher) repository(dir, gitDir string) {
	if _, err := w.lstat(gitDir); err != nil || w.repos[dir] || len(w.repos) > 1<<16 {
		return
	}
	w.repos[dir] = true
	w.created++
	w.emit(event.Event{Type: event.RepoCreated, Door: doorGit, Layer: Layer, Target: w.target(gitDir),
		Detail: "a repository was made during the session; its configuration and hooks are the agent's",
		Hint:   &event.Hint{Person: "while the session runs, do not use git there, or around it; what starts programs is taken at its end"}})
}

// replaced is called when something changed at a protected name that existed. No view can do that: it was the user.
func (w *Watcher) replaced(rel string, i int) {
	_ = Record{Type: Replaced, A: uint64(i)}.Send(w.control) // EAGAIN: the event below still tells the user
	w.report(event.Event{Type: event.LayerOpen, Door: w.door(rel), Layer: Layer, Target: w.target(rel),
		Detail: "a protected file was replaced or removed from outside, which ends its protection in views that exist already",
		Hint:   &event.Hint{Person: "start the session again to protect it"}}, "replaced "+rel)
}

// configRefused: git made its lock, could not rename it over the protected file, and removed it.
func (w *Watcher) configRefused(dir string) {
	if _, ok := w.existing[path.Join(dir, "config")]; !ok {
		return
	}
	// A loop that makes and removes the lock must not keep the supervisor busy.
	if now := time.Now(); now.Sub(w.hinted[dir]) >= time.Second {
		w.hinted[dir] = now
		_ = Record{Type: Hint, A: HintGitConfig}.Send(w.control) // EAGAIN: a hint less
	}
	where := w.target(parent(dir)).Asked
	w.report(event.Event{Type: event.FileDenied, Door: doorGit, Layer: Layer, Errno: "EBUSY", Syscall: "rename",
		Target: w.target(path.Join(dir, "config")), Cause: "mount", CauseSource: "inferred",
		Detail: "git tried to change the configuration of a protected repository",
		Hint: &event.Hint{Person: "run it yourself, outside: sharness git-config --workspace '" + where + "' -- …",
			Model: "will not change on retry; git configuration is protected; ask the user to run git config outside"}}, "config "+dir)
}

// first is the first component of rel.
func first(rel string) string {
	name, _, _ := strings.Cut(rel, "/")
	return name
}
