package protect

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"path"

	"github.com/sharness/sharness/event"
	"golang.org/x/sys/unix"
)

// Bounds of the search for second names below what is read-only, which is mostly a few folders of hooks and settings.
const (
	MaxLinked   = 1024
	linkedDepth = 16
	linkedDirs  = 4096
	linkedNames = 4096 // of one folder
)

// Linked is a read-only file that has another name, by which a command can write it, and what it was at the start.
type Linked struct {
	Rel string
	Sum string // of its mode and content; "" for one that is too long to be read
}

// secondNames lists the read-only files that have another name.
func (b *builder) secondNames(existing []Entry) (list []Linked) {
	file := func(rel string, st unix.Stat_t) {
		if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink < 2 || checkRel(rel) != nil || len(list) > MaxLinked {
			return
		}
		if list = append(list, Linked{rel, b.sum(rel)}); len(list) > MaxLinked {
			b.note("more than %d protected files have a second name: a command can write the rest by that", MaxLinked)
			list = list[:MaxLinked]
		}
	}
	var dirs []string
	for _, e := range existing {
		switch st, err := b.lstat(e.Rel); {
		case e.Mode != ReadOnly || err != nil:
		case e.Kind == Dir:
			dirs = append(dirs, e.Rel)
		default:
			file(e.Rel, st)
		}
	}
	closed := func(string) bool { return true }
	limits := bounds{depth: linkedDepth, dirs: linkedDirs, names: linkedNames, closed: closed}
	cut := walk(b.tree, limits, dirs, func(l listing) {
		for _, e := range l.list {
			var st unix.Stat_t
			if e.typ == unix.DT_REG && unix.Fstatat(l.fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
				file(path.Join(l.dir, e.name), st)
			}
		}
	})
	if cut {
		b.note("the search for second names of protected files met its bound: a command can write those of the rest by them")
	}
	return list
}

// sum tells whether a file was written, or lent the right to be executed.
func (t tree) sum(rel string) string {
	st, err := t.lstat(rel)
	text, rerr := t.readFile(rel, maxConfig)
	if err != nil || rerr != nil {
		return ""
	}
	return fmt.Sprintf("%o %x", st.Mode&0o7777, sha256.Sum256(text))
}

// writtenByAnotherName takes, or disarms, each protected file that another name wrote in the session. No mount protects an
// inode: what is read-only by one name is not by another, which an earlier session may have made before the file was protected.
func (w *Watcher) writtenByAnotherName() {
	for _, f := range w.linked {
		st, err := w.lstat(f.Rel)
		if err != nil { // gone, which is told where it was seen
			continue
		}
		if f.Sum == "" && !w.isNew(st) || f.Sum != "" && w.sum(f.Rel) == f.Sum {
			continue
		}
		name := path.Base(f.Rel)
		if w.gitDirs[parent(f.Rel)] && (name == "config" || name == "config.worktree") {
			w.disarmWritten(f.Rel, st)
			w.own(f.Rel, true)
			continue
		}
		w.takeAs(f.Rel, w.door(f.Rel), "a protected file was written by another name that it had: it was moved to the quarantine")
	}
}

// own makes a new file of git's one that has no other name, by which a later session could write it although it is protected.
func (w *Watcher) own(rel string, moved bool) {
	st, err := w.lstat(rel)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink < 2 || !moved && !w.isNew(st) {
		return // what cannot be looked at is told by who asked before
	}
	text, err := w.readFile(rel, maxConfig)
	if err == nil {
		err = w.replace(rel, text, st.Mode&0o777)
	}
	if err != nil {
		w.takeAs(rel, doorGit, "a file of a new git directory has a second name, by which it could be written later: it was moved to the quarantine")
		return
	}
	w.taken++
	w.report(event.Event{Type: event.FileQuarantined, Door: doorGit, Layer: Layer, Target: w.target(rel),
		Detail: "a file of a new git directory had a second name, by which it could be written later: it is a file of its own now"}, "own "+rel)
}

// replace puts a file of its own in the place of rel.
func (w *Watcher) replace(rel string, text []byte, mode uint32) error {
	dir, err := w.open(parent(rel), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	delete(w.existing, rel)
	return replaceIn(dir, path.Base(rel), ".sharness-own-"+rand.Text(), mode, func(f *os.File) error {
		_, err := bytes.NewReader(text).WriteTo(f)
		return err
	})
}

// replaceIn writes beside name, and renames over it.
func replaceIn(dir int, name, beside string, mode uint32, fill func(*os.File) error) error {
	fd, err := unix.Openat(dir, beside, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("make %s: %w", beside, err)
	}
	f := os.NewFile(uintptr(fd), beside)
	defer f.Close()
	err = fill(f)
	if err == nil {
		err = chmod(fd, mode&0o777)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = unix.Renameat2(dir, beside, dir, name, 0)
	}
	if err != nil {
		_ = unix.Unlinkat(dir, beside, 0)
	}
	return err
}
