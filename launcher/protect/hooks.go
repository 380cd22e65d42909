package protect

import (
	"bytes"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// maxCompared bounds how many files of worktrees are compared with others: each new one with those of each that was there.
const maxCompared = 20000

// hooksDepth bounds the folders in a folder of hooks.
const hooksDepth = 8

// compareHooks takes what is new in a folder of hooks of a worktree (folder; hooks is the same seen from its top) and what no
// worktree of the same git directory has byte by byte, that was there at the start. A hook runs, or reads, whatever lies beside it:
// each file counts, whatever its mode, and so do those in folders below. A link is taken always: what it names may be another file here.
func (w *Watcher) compareHooks(gitDir, hooks, folder string, moved bool, depth int) {
	st, err := w.lstat(folder)
	if err != nil {
		w.notThere(folder, err, doorGit)
		return
	}
	moved = moved || w.isNew(st)
	if kindOf(st.Mode) != Dir {
		if moved {
			w.takeFrom(folder, hookDetail)
		}
		return
	}
	fd, err := w.open(folder, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if err != nil {
		w.notThere(folder, err, doorGit)
		return
	}
	defer unix.Close(fd)
	for _, e := range w.hooksIn(fd, folder, hookDetail) {
		at, rel := path.Join(folder, e.name), path.Join(hooks, e.name)
		st, err := w.lstat(at)
		switch {
		case err != nil:
			w.notThere(at, err, doorGit)
		case kindOf(st.Mode) == Dir && depth > 0 && w.hasFolder(gitDir, rel):
			w.compareHooks(gitDir, rel, at, moved, depth-1)
		case !moved && !w.isNew(st):
		case kindOf(st.Mode) == File && w.hasHook(gitDir, rel, at, st.Mode&0o111):
		default:
			w.takeFrom(at, hookDetail)
		}
	}
}

// hasFolder says whether a worktree of the git directory, that was there at the start, has a folder at rel.
func (w *Watcher) hasFolder(gitDir, rel string) bool {
	return slices.ContainsFunc(w.worktrees(gitDir), func(top string) bool {
		st, err := w.lstat(path.Join(top, rel))
		return err == nil && kindOf(st.Mode) == Dir
	})
}

// hasHook says whether a worktree of the same git directory, that was there at the start, has the same file at rel below its top,
// executable if this is (mode): what git checked out again may stay.
func (w *Watcher) hasHook(gitDir, rel, at string, mode uint32) bool {
	st, err := w.lstat(at)
	if err != nil || kindOf(st.Mode) != File || st.Size > maxConfig || st.Nlink > 1 {
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
