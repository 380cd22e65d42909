package protect

import (
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// bounds keep a walk finite on a tree that somebody else may grow meanwhile.
type bounds struct {
	depth    int // levels below the first
	dirs     int
	names    int       // of one directory
	only     byte      // the type of names that are listed and count, 0: all
	deadline time.Time // zero: none
	skip     func(dir, name string) bool

	// closed is told of a directory that its owner, somebody else, lets be entered and not listed: what lies below is known to
	// nobody here, and the tools of the user may go there. It says whether that does not matter; nil: it does.
	closed func(dir string) bool
}

// maxPaths bounds the bytes of the paths that wait for their turn: their folders are made faster than they are looked at.
const maxPaths = 64 << 20

// listing is a directory while it is visited. more: its names met the bound, so that what is not in the list may be there.
type listing struct {
	fd   int
	dir  string
	list []dirent
	more bool
}

// has looks a name up in the directory itself where the list cannot say.
func (l listing) has(name string) bool {
	if has(l.list, name) {
		return true
	}
	var st unix.Stat_t
	return l.more && unix.Fstatat(l.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// complete is tree.complete of the directory that is visited.
func (l listing) complete() bool {
	return l.has("objects") && l.has("refs") || l.has("HEAD") && l.has("commondir")
}

// walk lists directories breadth first, those of from and what is below, without following a link or entering a mount. It
// reports whether a bound, or an error, cut it short. A directory is passed over when it is on another mount, gone
// meanwhile, or somebody else's, which no tool of the user enters either.
func walk(t tree, b bounds, from []string, visit func(listing)) (cut bool) {
	level, seen, paths := from, 0, 0
	for d := 0; len(level) > 0; d++ {
		if d > b.depth {
			return true
		}
		var next []string
		for _, dir := range level {
			if seen++; seen > b.dirs || (!b.deadline.IsZero() && time.Now().After(b.deadline)) {
				return true
			}
			fd, err := t.open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
			if err == unix.EACCES && t.enters(dir) {
				cut = cut || b.closed == nil || !b.closed(dir)
				continue
			}
			if err != nil {
				cut = cut || !passedOver(err)
				continue
			}
			list, more, err := readDirOf(fd, b.names, b.only)
			cut = cut || more || err != nil && !passedOver(err)
			visit(listing{fd, dir, list, more})
			unix.Close(fd)
			for _, e := range list {
				if e.typ == unix.DT_DIR && (b.skip == nil || !b.skip(dir, e.name)) {
					if paths += len(dir) + len(e.name); paths > maxPaths {
						return true
					}
					next = append(next, path.Join(dir, e.name))
				}
			}
		}
		level, paths = next, 0
	}
	return cut
}

func passedOver(err error) bool {
	return err == unix.ENOENT || err == unix.EXDEV || err == unix.ENOTDIR || err == unix.ELOOP || err == unix.EACCES || err == unix.EPERM
}

// enters says whether dir can be entered.
func (t tree) enters(dir string) bool {
	fd, err := openat(t.root, dir+"/.", unix.O_PATH|unix.O_DIRECTORY, beneath|unix.RESOLVE_NO_XDEV)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}
