package protect

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// builder gathers a set. It runs with the user's ids.
type builder struct {
	tree
	opts     Options
	entries  map[string]Entry
	absent   map[string]bool
	notes    []string
	sockets  []string
	repos    []Repo
	listed   map[Repo]bool   // repos
	err      error           // why the start must be refused
	gitDirs  map[string]bool // git directories already done
	tops     map[string]bool // git directories and where their hooks run, already done
	included map[string]bool // configuration files already read, and where hooks run
	configs  configs
	deadline time.Time
	hooks    []string            // relative core.hooksPath
	there    map[string]identity // folders that the search met
	own      []string            // of the repository that is being protected: its directory and its top
}

func (b *builder) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if len(text) > 1000 {
		text = text[:1000]
	}
	switch {
	case len(b.notes) < MaxNotes-1:
		b.notes = append(b.notes, text)
	case len(b.notes) == MaxNotes-1:
		b.notes = append(b.notes, "more notes were left out")
	}
}

// refuse makes Discover fail. The first reason counts.
func (b *builder) refuse(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf("protect: "+format, args...)
	}
}

// late says that the start is refused, which it does itself once the search took too long. at is where it is then.
func (b *builder) late(at string) bool {
	if b.err != nil || time.Now().Before(b.deadline) {
		return b.err != nil
	}
	b.refuse("the search for protected paths took more than %s and was at %+q then: look at what lies there, remove it, or start in a smaller workspace",
		discoverTime, path.Join(b.opts.Root, at))
	return true
}

func (b *builder) pin(rel string, kind Kind) {
	if _, ok := b.entries[rel]; !ok && rel != "" && len(rel) <= maxLookup {
		b.entries[rel] = Entry{rel, Pin, kind}
	}
}

// pinDir keeps rel and every directory above it from being renamed in a view.
func (b *builder) pinDir(rel string) {
	for ; rel != ""; rel = parent(rel) {
		b.pin(rel, Dir)
	}
}

// whereabouts of a path that was followed.
type whereabouts int

const (
	exists whereabouts = iota
	missing
	outside // leaves the workspace, or cannot be resolved: no view shows it, and there is nothing to mount on
)

// follow resolves name from the directory dir as the user's tools will, through links, but never out of the workspace.
// Every directory and every link it passes is pinned: renaming or replacing one would make the same name mean another
// file. rel is the resolved path; for missing, the first name that does not exist and what would follow it.
func (b *builder) follow(dir, name string) (rel string, kind Kind, where whereabouts) {
	rel, kind, where = b.followAll(dir, name)
	if where != outside && len(rel) > maxLookup {
		b.note("%+.200q... leads to a path of more than %d bytes: not protected", dir, maxLookup)
		return "", "", outside
	}
	return rel, kind, where
}

func (b *builder) followAll(dir, name string) (rel string, kind Kind, where whereabouts) {
	if name == "" || strings.Contains(name, "\x00") || len(name) > 4095 || b.late(dir) {
		return "", "", outside
	}
	var cur []string
	if path.IsAbs(name) {
		below, ok := b.below(name)
		if !ok {
			return "", "", outside
		}
		name = below
	} else if dir != "" {
		cur = strings.Split(dir, "/")
	}
	rest := strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		c := rest[0]
		rest = rest[1:]
		if c == "" || c == "." {
			continue
		}
		if c == ".." {
			if len(cur) > 0 {
				cur = cur[:len(cur)-1]
				continue
			}
			// Above the workspace, and perhaps in again by its name.
			below, ok := b.below(path.Join(path.Dir(b.opts.Root), path.Join(rest...)))
			if !ok {
				return "", "", outside
			}
			rest = strings.Split(below, "/")
			continue
		}
		at := path.Join(path.Join(cur...), c)
		st, err := b.lstat(at)
		if errors.Is(err, unix.ENOENT) {
			tail := path.Join(at, path.Join(rest...))
			if !strings.HasPrefix(tail, at) {
				return "", "", outside
			}
			return tail, "", missing
		}
		if err != nil {
			b.note("%+q: %v: not protected", at, err)
			return "", "", outside
		}
		switch k := kindOf(st.Mode); {
		case k == Link:
			b.pin(at, Link)
			target, err := b.readlink(at)
			if links++; err != nil || links > 40 { // 40 is the kernel's own MAXSYMLINKS
				b.note("%+q: too many links: not protected", at)
				return "", "", outside
			}
			if path.IsAbs(target) {
				below, ok := b.below(target)
				if !ok {
					return "", "", outside
				}
				cur, target = nil, below
			}
			rest = append(strings.Split(target, "/"), rest...)
		case k == Dir:
			cur = append(cur, c)
			if len(rest) > 0 {
				b.pin(at, Dir)
			}
		case len(rest) > 0:
			// Nothing is below a file; it is pinned, so that no command puts a folder in its place.
			b.pin(at, k)
			tail := path.Join(at, path.Join(rest...))
			if !strings.HasPrefix(tail, at+"/") {
				return "", "", outside
			}
			return tail, "", missing
		default:
			return at, k, exists
		}
	}
	return path.Join(cur...), Dir, exists
}

// below turns an absolute path into one below the workspace. A path that reaches it by another name (a link outside) is
// found by resolving the part of it that exists: as the user, looking at names only.
func (b *builder) below(abs string) (rel string, ok bool) {
	if slices.Contains(strings.Split(abs, "/"), "..") {
		return b.belowUp(abs)
	}
	abs = path.Clean(abs)
	if rel, ok := strings.CutPrefix(abs+"/", strings.TrimSuffix(b.opts.Root, "/")+"/"); ok {
		return strings.TrimSuffix(rel, "/"), true
	}
	for dir, tail := abs, ""; dir != "/"; dir, tail = path.Dir(dir), path.Join(path.Base(dir), tail) {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			continue
		}
		rel, ok := strings.CutPrefix(real+"/", strings.TrimSuffix(b.opts.Root, "/")+"/")
		return path.Join(strings.TrimSuffix(rel, "/"), tail), ok
	}
	return "", false
}

// belowUp is below for a path with "..", which leads up from where a link before it led.
func (b *builder) belowUp(abs string) (rel string, ok bool) {
	for dir, tail := strings.TrimRight(abs, "/"), ""; dir != ""; {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			rel, ok := strings.CutPrefix(real+"/", strings.TrimSuffix(b.opts.Root, "/")+"/")
			return path.Join(strings.TrimSuffix(rel, "/"), tail), ok
		}
		i := strings.LastIndexByte(dir, '/')
		if dir[i+1:] == ".." {
			return "", false // up from what is not there
		}
		dir, tail = strings.TrimRight(dir[:i], "/"), path.Join(dir[i+1:], tail)
	}
	return "", false
}

// protect makes name, seen from dir, read-only, or has it watched where it does not exist. It returns the resolved
// path when there is something to read there.
func (b *builder) protect(dir, name string) (rel string, ok bool) {
	rel, kind, where := b.follow(dir, name)
	switch {
	case where == outside:
		return "", false
	case where == missing:
		b.absent[rel] = true
		b.pinDir(b.deepest(parent(rel)))
		return "", false
	case rel == "" || b.holdsRepo(rel):
		b.note("%+q in %+q is a directory that holds a repository: it is not made read-only", name, dir)
		return "", false
	}
	b.pinDir(parent(rel))
	b.entries[rel] = Entry{rel, ReadOnly, kind}
	return rel, true
}

// deepest is the part of dir that exists.
func (b *builder) deepest(dir string) string {
	for ; dir != ""; dir = parent(dir) {
		if _, err := b.lstat(dir); err == nil {
			return dir
		}
	}
	return ""
}

// holdsRepo guards against a hooksPath such as "." that would make the whole worktree read-only whose configuration it is. For
// another repository that lies in a folder of hooks this does not hold: a session could put one there.
func (b *builder) holdsRepo(rel string) bool {
	own := b.own
	if own == nil {
		for key := range b.tops {
			if dir, root := strings.CutSuffix(key, "\x00"); root {
				own = append(own, dir)
			}
		}
	}
	return slices.ContainsFunc(own, func(dir string) bool { return dir == rel || strings.HasPrefix(dir, rel+"/") })
}
