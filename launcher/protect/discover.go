package protect

import (
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/sharness/sharness/manifest"
)

// Bounds of the search for repositories. A workspace beyond them is still protected at its root; the note says so.
const (
	maxDepth = 6
	maxDirs  = 20000
)

// Options say what to look for.
type Options struct {
	Root    string           // absolute path of the workspace, resolved: absolute links and gitdirs are compared with it
	Home    string           // the user's home, for "~/" in git's configuration; may be empty
	Protect manifest.Protect // ProtectNone leaves only Extra
	Extra   []string         // more names, relative to the root
}

// Discover lists what must be read-only in every view of the workspace behind root. It must run with the user's ids: it
// follows what the user's files say. The error is one of reading the root, of a name in Extra, or of a bound (Set.check).
func Discover(root *os.File, opts Options) (*Set, error) {
	if !path.IsAbs(opts.Root) || path.Clean(opts.Root) != opts.Root {
		return nil, fmt.Errorf("protect: workspace path %q is not absolute and clean", opts.Root)
	}
	defer runtime.KeepAlive(root)
	b := &builder{tree: tree{int(root.Fd())}, opts: opts, entries: map[string]Entry{}, absent: map[string]bool{},
		gitDirs: map[string]bool{}, included: map[string]bool{}}
	if _, err := b.lstat(""); err != nil {
		return nil, fmt.Errorf("protect: openat2 workspace: %w", err)
	}
	if opts.Protect != manifest.ProtectNone {
		// Repositories first: holdsRepo has to know them when names are made read-only.
		b.search()
		for _, n := range rootNames {
			b.protect("", n.path)
		}
	}
	for _, extra := range opts.Extra {
		if err := checkRel(extra); err != nil {
			return nil, err
		}
		b.protect("", extra)
	}
	slices.SortFunc(b.repos, func(a, b Repo) int { return strings.Compare(a.Rel, b.Rel) })
	s := &Set{Repos: b.repos, Notes: b.notes}
	s.Existing, s.Absent = collect(b.entries, b.absent)
	return s, s.check()
}

// search finds repositories, nearest first, so that a bound cuts off the deepest.
func (b *builder) search() {
	skip := func(name string) bool { return name == ".git" || name == "node_modules" }
	cut := walk(b.tree, bounds{depth: maxDepth, dirs: maxDirs, skip: skip}, func(_ int, dir string, list []dirent) {
		switch {
		case isBare(list):
			b.repos = append(b.repos, Repo{Rel: dir, GitDir: dir})
			b.gitDir(dir, dir)
		case has(list, ".git"):
			b.repository(dir)
		}
	})
	if cut {
		b.note("the search for repositories met its bound (%d folders, depth %d): deeper ones are not protected", maxDirs, maxDepth)
	}
}

// isBare recognises a git directory that is not called .git, as git itself does (is_git_directory in its setup.c).
func isBare(list []dirent) bool {
	return has(list, "HEAD") && has(list, "objects") && has(list, "refs")
}

func has(list []dirent, name string) bool {
	for _, e := range list {
		if e.name == name {
			return true
		}
	}
	return false
}
