package protect

import (
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// bounds keep a walk finite on a tree that somebody else may grow meanwhile.
type bounds struct {
	depth    int // levels below the root
	dirs     int
	deadline time.Time // zero: none
	skip     func(name string) bool
}

// walk lists directories breadth first, without following a link or entering a mount. visit gets the open directory. It
// reports whether a bound cut it short. A directory that cannot be opened is passed over: it is on another mount, gone
// meanwhile, or one that no tool of the user enters either.
func walk(t tree, b bounds, visit func(fd int, dir string, list []dirent)) (cut bool) {
	level, seen := []string{""}, 0
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
			if err != nil {
				continue
			}
			list, more, _ := readDir(fd, maxPerDir)
			cut = cut || more
			visit(fd, dir, list)
			unix.Close(fd)
			for _, e := range list {
				if e.typ == unix.DT_DIR && (b.skip == nil || !b.skip(e.name)) {
					next = append(next, path.Join(dir, e.name))
				}
			}
		}
		level = next
	}
	return cut
}
