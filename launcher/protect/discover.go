package protect

import (
	"fmt"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// Bounds of the search for repositories. A workspace beyond them is still protected at its root; the note says so.
const (
	maxDepth = 6
	maxDirs  = 20000
)

// discoverTime bounds the whole of it, well below what the supervisor waits: it knows where it was.
const discoverTime = 30 * time.Second

// Options say what to look for.
type Options struct {
	Root    string           // absolute path of the workspace, resolved: absolute links and gitdirs are compared with it
	Home    string           // the user's home, for "~/" in git's configuration; may be empty
	Protect manifest.Protect // ProtectNone leaves only Extra
	Extra   []string         // more names, relative to the root

	// Mounts are paths below the root on which another file system, or another part of one, is mounted. A view shows what
	// lies below such a mount, which nothing here can look at.
	Mounts []string

	// Before is what earlier sessions found (Set.Repos). It is looked up by name, before the search and whatever that
	// meets: a command can make a repository look like none, or hide it behind the search's bounds.
	Before []Repo

	Around []Around // of the repository that the workspace belongs to, where that is outside
}

// Discover lists what must be read-only in every view of the workspace behind root. It must run with the user's ids: it
// follows what the user's files say. The error is one of reading the root, of a name in Extra, or of a bound (Set.check).
func Discover(root *os.File, opts Options) (*Set, error) {
	return discoverUntil(root, opts, time.Now().Add(discoverTime))
}

func discoverUntil(root *os.File, opts Options, deadline time.Time) (*Set, error) {
	if !path.IsAbs(opts.Root) || path.Clean(opts.Root) != opts.Root {
		return nil, fmt.Errorf("protect: workspace path %q is not absolute and clean", opts.Root)
	}
	defer runtime.KeepAlive(root)
	b := &builder{opts: opts, entries: map[string]Entry{}, absent: map[string]bool{}, gitDirs: map[string]bool{},
		tops: map[string]bool{}, included: map[string]bool{}, listed: map[Repo]bool{}, configs: configs{}, there: map[string]identity{}, deadline: deadline}
	b.tree = tree{int(root.Fd()), func(dir string) { b.note("%+q could not be read by its owner: it was unlocked (u+rx)", dir) }}
	if _, err := b.lstat(""); err != nil {
		return nil, fmt.Errorf("protect: openat2 workspace: %w", err)
	}
	if opts.Protect != manifest.ProtectNone {
		// Repositories first: holdsRepo has to know them when names are made read-only.
		b.again()
	}
	b.search(opts.Protect != manifest.ProtectNone)
	if opts.Protect != manifest.ProtectNone {
		b.around()
		b.mountPoints()
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
	if b.err != nil {
		return nil, b.err
	}
	slices.SortFunc(b.repos, func(a, b Repo) int { return strings.Compare(a.Rel+"\x00"+a.GitDir, b.Rel+"\x00"+b.GitDir) })
	slices.Sort(b.hooks)
	var gitDirs []GitDir
	for _, dir := range slices.Sorted(maps.Keys(b.gitDirs)) {
		b.rememberIn(dir)
		gitDirs = append(gitDirs, GitDir{dir, !b.complete(dir)})
	}
	s := &Set{Repos: b.repos, GitDirs: gitDirs, Sockets: b.sockets, Hooks: b.hooks, folders: b.there}
	s.Existing, s.Absent = collect(b.entries, b.absent)
	s.Linked, s.Notes = b.secondNames(s.Existing), b.notes
	if err := s.check(); err != nil {
		return nil, err
	}
	return s, s.fits()
}

// mountPoints makes the places of mounts read-only: what a session put there would be found when the mount has gone.
func (b *builder) mountPoints() {
	for _, rel := range b.opts.Mounts {
		if checkRel(rel) != nil {
			continue
		}
		// Its file system is asked nothing: one that does not answer, such as FUSE without its daemon, has a place as well.
		fd, err := openat(b.root, rel, unix.O_PATH|unix.O_DIRECTORY, beneath)
		if err == nil {
			unix.Close(fd)
		}
		kind := Dir // Attach knows for certain
		switch err {
		case unix.ENOENT: // gone
			continue
		case unix.ENOTDIR:
			kind = File
		}
		b.shut(rel, kind)
		b.note("%+q is a mount point: the session sees what lies below the mount, read-only", rel)
	}
}

// shut makes a path read-only that was not asked for by name.
func (b *builder) shut(rel string, kind Kind) {
	b.pinDir(parent(rel))
	b.entries[rel] = Entry{rel, ReadOnly, kind}
}

// again protects what an earlier session protected. No file inside is asked whether it still is a repository: the agent
// may have renamed each of them. What is gone from its place was removed outside, because a view cannot do it.
func (b *builder) again() {
	for _, r := range b.opts.Before {
		if _, err := b.lstat(path.Join(r.Rel, ".git")); err == nil {
			b.repository(r.Rel)
		}
		if r.Outside {
			continue
		}
		if st, err := b.lstat(r.GitDir); err != nil || kindOf(st.Mode) != Dir {
			b.note("%+q was the directory of a repository in an earlier session and is gone", r.GitDir)
			continue
		}
		b.found(r)
		b.gitDir(r.GitDir, r.Rel, false)
		if r.Rel == r.GitDir {
			b.noDotGit(r.Rel)
		}
	}
}

// noDotGit has a .git watched in a bare repository, where git would look first.
func (b *builder) noDotGit(dir string) {
	if _, err := b.lstat(path.Join(dir, ".git")); err == unix.ENOENT {
		b.protect(dir, ".git")
	}
}

// search finds sockets, and repositories where these are to be protected, nearest first, so that a bound cuts off the deepest. Whether a folder is one is asked by
// name, and only folders are listed: no number of files hides anything.
func (b *builder) search(repositories bool) {
	skip := func(_, name string) bool { return name == ".git" || name == "node_modules" }
	closed := func(dir string) bool {
		if repositories {
			b.note("%+q is somebody else's and can be entered, not listed: it is read-only", dir)
			b.shut(dir, Dir)
		}
		return true
	}
	limits := bounds{depth: maxDepth, dirs: maxDirs, names: maxPerDir, only: unix.DT_DIR, skip: skip, closed: closed, deadline: b.deadline}
	at := ""
	cut := walk(b.tree, limits, []string{""}, func(l listing) {
		at = l.dir
		b.socketsIn(l)
		if b.late(l.dir) || !repositories {
			return
		}
		b.remember(l, maxFound)
		if l.dir == "" && l.more {
			b.refuse("the workspace holds more than %d folders at its top: repositories in the rest could not be protected; remove some", maxPerDir)
		}
		// Both: HEAD, objects and refs beside a .git are no reason to leave that alone.
		if _, err := b.lstat(path.Join(l.dir, ".git")); err == nil {
			b.repository(l.dir)
		}
		if b.isBare(l.dir) {
			b.found(Repo{Rel: l.dir, GitDir: l.dir})
			b.gitDir(l.dir, l.dir, false)
			b.noDotGit(l.dir)
		}
	})
	b.late(at)
	if cut && !repositories {
		b.note("the search for sockets met its bound (%d folders, depth %d): deeper ones can be connected to", maxDirs, maxDepth)
	}
	if cut && repositories {
		b.note("the search for repositories met its bound (%d folders, depth %d): deeper ones are not protected", maxDirs, maxDepth)
	}
}

// socketsIn notes the sockets of one directory, and that of the file system monitor in the git directory beside them, which
// is not entered. A socket that lies there at the start is some process's outside: what stands behind it obeys the user,
// and may hand out descriptors that no layer of ours has seen.
func (b *builder) socketsIn(l listing) {
	var names []string
	if _, err := unix.Seek(l.fd, 0, unix.SEEK_SET); err == nil {
		list, _, _ := readDirOf(l.fd, MaxSockets, unix.DT_SOCK)
		for _, e := range list {
			names = append(names, e.name)
		}
	}
	const monitor = ".git/fsmonitor--daemon.ipc"
	if st, err := b.lstat(path.Join(l.dir, monitor)); err == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK {
		names = append(names, monitor)
	}
	for _, name := range names {
		if len(b.sockets) == MaxSockets {
			b.refuse("the workspace holds more than %d sockets: no more can be closed to the session; remove what nothing listens on", MaxSockets)
			return
		}
		b.sockets = append(b.sockets, path.Join(l.dir, name))
	}
}

// found lists a repository once.
func (b *builder) found(r Repo) {
	if !b.listed[r] {
		b.listed[r] = true
		b.repos = append(b.repos, r)
	}
}

// isBare recognises a git directory that is not called .git, as git itself does (is_git_directory in its setup.c).
func (t tree) isBare(dir string) bool { return t.hasHead(dir) && t.holds(dir, "objects", "refs") }

func has(list []dirent, name string) bool {
	for _, e := range list {
		if e.name == name {
			return true
		}
	}
	return false
}
