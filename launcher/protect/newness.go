package protect

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of the folders that are remembered of the start: those that the search met, and with those in git directories.
const (
	maxFound   = 1 << 16
	maxFolders = 2 * maxFound
)

// identity is what a rename does not change.
type identity struct{ dev, ino uint64 }

// remember notes which folders a listing has: what stands in their place at the end is another one, or the same.
func (b *builder) remember(l listing, limit int) {
	for _, e := range l.list {
		var st unix.Stat_t
		if len(b.there) < limit && e.typ == unix.DT_DIR && unix.Fstatat(l.fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			b.there[path.Join(l.dir, e.name)] = identity{st.Dev, st.Ino}
		}
	}
}

// rememberIn is remember of the folders in a git directory, which the search does not enter. Those of objects are of no interest.
func (b *builder) rememberIn(dir string) {
	skip := func(at, name string) bool {
		return b.gitDirs[at] && name == "objects" || b.gitDirs[path.Join(at, name)]
	}
	limits := bounds{depth: maxDepth, dirs: maxDirs, names: maxPerDir, only: unix.DT_DIR, skip: skip, closed: func(string) bool { return true }, deadline: b.deadline}
	walk(b.tree, limits, []string{dir}, func(l listing) { b.remember(l, maxFolders) })
}

// newWay says whether what lies at rel came there in the session: by its own ctime, or because a folder on the way from from was made,
// or renamed. A rename changes the ctime of the folder that is renamed and of those that it leaves and comes to, and of nothing
// below it. A folder whose ctime alone is new has new names in it, and is where it was; so is one that has the inode of the start.
func (w *Watcher) newWay(from, rel string) bool {
	if from != "" && !strings.HasPrefix(rel, from+"/") {
		from = ""
	}
	above, err := w.lstat(from)
	newAbove := err != nil || w.isNew(above)
	at := from
	for part := range strings.SplitSeq(strings.TrimPrefix(rel[len(from):], "/"), "/") {
		at = path.Join(at, part)
		st, err := w.lstat(at)
		if err != nil {
			return false // nothing is there; another error is told by who looks
		}
		was, known := w.folders[at]
		isNew := w.isNew(st)
		if isNew && kindOf(st.Mode) != Dir || isNew && newAbove && !(known && was == identity{st.Dev, st.Ino}) {
			return true
		}
		newAbove = isNew
	}
	return false
}
