package protect

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// indexes are those that were read at the end of a session.
type indexes struct {
	bytes int64
	took  time.Duration
	seen  map[string]unix.Timespec // ctime
}

// Bounds of what is read of all of them together, and how long that may take: no index of a session's keeps us from the rest.
const (
	maxIndexBytes = 1 << 30
	maxIndexTime  = 15 * time.Second
)

const indexHint = "git reset makes it anew from the last commit; what was staged is in the quarantine"

// disarmIndexes takes an index that came or was changed in the session if git would check out from it what no index of its own
// holds: git checkout and git restore write each name as it stands there, .git/hooks/X and ../../.bashrc too.
func (w *Watcher) disarmIndexes(l listing, moved bool) {
	broken := false
	for _, e := range l.list {
		if strings.HasPrefix(e.name, "sharedindex.") {
			broken = w.disarmIndex(path.Join(l.dir, e.name), moved) || broken
		}
	}
	rel := path.Join(l.dir, "index")
	if w.disarmIndex(rel, moved) || !broken {
		return
	}
	st, err := w.lstat(rel)
	if err != nil {
		return
	}
	if split, err := w.readIndex(rel, st); split || err != nil {
		w.takeState(rel, "the index of a repository took entries from one that was taken: it was moved to the quarantine", indexHint)
	}
}

func (w *Watcher) disarmIndex(rel string, moved bool) (taken bool) {
	st, err := w.newState(rel, moved)
	if err != nil || w.indexes.seen[rel] == st.Ctim {
		return false
	}
	if st.Size <= maxIndex && w.indexes.bytes+st.Size > maxIndexBytes {
		w.cut(doorGit, parent(rel), fmt.Sprintf("the indexes of repositories that were changed have more than %d MiB: this one is not known", maxIndexBytes>>20))
		return false
	}
	switch _, err := w.readIndex(rel, st); {
	case err == errSlow:
		return w.takeState(rel, fmt.Sprintf("the index of a repository was not looked at (%v): it was moved to the quarantine", err), indexHint)
	case err != nil:
		return w.takeState(rel, fmt.Sprintf("the index of a repository is none that git makes (%v): it was moved to the quarantine", err), indexHint)
	}
	if w.indexes.seen == nil {
		w.indexes.seen = map[string]unix.Timespec{}
	}
	w.indexes.seen[rel] = st.Ctim
	return false
}

func (w *Watcher) readIndex(rel string, st unix.Stat_t) (split bool, err error) {
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxIndex {
		return false, errNoIndex
	}
	fd, err := w.open(rel, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return false, err
	}
	file := os.NewFile(uintptr(fd), "index")
	defer file.Close()
	w.indexes.bytes += st.Size
	begin := time.Now()
	defer func() { w.indexes.took += time.Since(begin) }()
	until := begin.Add(maxIndexTime - w.indexes.took)
	hash, known := w.hashSize(parent(rel))
	split, err = checkIndex(file, st.Size, hash, until)
	if err == errNoIndex && !known {
		split, err = checkIndex(file, st.Size, 32, until)
	}
	return split, err
}

// hashSize is that of a git directory's objects, as its configuration says.
func (w *Watcher) hashSize(dir string) (size int, known bool) {
	if shared, ok := w.named(path.Join(dir, "commondir"), ""); ok {
		dir = shared
	}
	c, err := w.configs.read(w.tree, path.Join(dir, "config"))
	if c.format == "sha256" && c.version {
		return 32, true
	}
	return 20, err == nil || errors.Is(err, unix.ENOENT)
}
