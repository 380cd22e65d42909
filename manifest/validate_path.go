package manifest

import (
	"path"
	"slices"
	"strings"
)

// maxPath is the kernel's PATH_MAX, which counts the closing NUL.
const maxPath = 4096

// path demands an absolute path in its one shortest spelling, so that equal paths are equal strings.
func (c *checker) path(key, p string) {
	switch {
	case p == "":
		c.fail(key, found("nothing", "an absolute path"))
	case p[0] != '/':
		c.fail(key, found(quote(p)+", a relative path", "an absolute path"))
	case path.Clean(p) != p:
		c.fail(key, found(quote(p), "the path without detours, "+quote(path.Clean(p))))
	case p == "/":
		c.fail(key, found("the root of the file system", "a path below it"))
	default:
		c.pathText(key, p)
	}
}

// pathText refuses what would make a path lie in a log or a terminal, or that no system call takes.
func (c *checker) pathText(key, p string) {
	if len(p) >= maxPath {
		c.fail(key, found("a path of more than 4095 bytes", "a shorter one"))
	}
	for _, r := range p {
		if !visible(r) || r == '\ufffd' {
			c.fail(key, found(quote(p), "a path of visible characters"))
			return
		}
	}
}

func (c *checker) paths(key string, list []string) {
	for i, p := range list {
		c.path(at(key, i), p)
		c.once(key, list, i)
	}
}

func (c *checker) once(key string, list []string, i int) {
	if slices.Index(list, list[i]) < i {
		c.fail(at(key, i), found(quote(list[i])+" a second time", "it once"))
	}
}

// ownTrees are mounted by every view itself; the host's would show through or hide them.
var ownTrees = []string{"/proc", "/dev", "/tmp", "/run/sharness"}

// trees checks folders that are bound read-only.
func (c *checker) trees(key string, list []string) {
	c.paths(key, list)
	for i, p := range list {
		for _, own := range ownTrees {
			if below(p, own) {
				c.fail(at(key, i), found(quote(p), "a path outside "+own+", of which every view has its own"))
			}
		}
	}
}

// below is true for dir and everything in it. Both are clean.
func below(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// subpath demands a path that stays inside the folder it is relative to.
func (c *checker) subpath(key, p string) {
	switch {
	case p == "":
		c.fail(key, found("nothing", "a path relative to the folder"))
	case p[0] == '/':
		c.fail(key, found(quote(p)+", an absolute path", "a path relative to the folder"))
	case p == ".", p == "..", strings.HasPrefix(path.Clean(p), "../"):
		c.fail(key, found(quote(p), "a path inside the folder"))
	case path.Clean(p) != p:
		c.fail(key, found(quote(p), "the path without detours, "+quote(path.Clean(p))))
	default:
		c.pathText(key, p)
	}
	// Each session has a uid of its own, and programs name folders by it. Other placeholders are absolute paths.
	if _, err := Expand(p, map[string]string{"uid": ""}); err != nil {
		c.fail(key, err.Error())
	}
}

func (c *checker) subpaths(key string, list []string) {
	for i, p := range list {
		c.subpath(at(key, i), p)
		c.once(key, list, i)
	}
}

// subpathsBelow demands that each of list lies in one of dirs: elsewhere it would have no effect, and look as if it had.
func (c *checker) subpathsBelow(key string, list, dirs []string) {
	c.subpaths(key, list)
	for i, p := range list {
		if !slices.ContainsFunc(dirs, func(dir string) bool { return below(p, dir) }) {
			c.fail(at(key, i), found(quote(p)+", which sandbox.share does not show", "a path below one of sandbox.share"))
			continue
		}
		// A command may rename what lies between, and its mount with it: only a mount point itself stays where it is.
		if !slices.ContainsFunc(dirs, func(dir string) bool { return p == dir || path.Dir(p) == dir }) {
			c.fail(at(key, i), found(quote(p)+", more than one folder below its share", "a share or a name right in one; share a folder that is nearer to it"))
		}
	}
}

// stateFolder: a profile may leave the path to the host it is used on.
func (c *checker) stateFolder(s *State, fragment bool) {
	if s == nil {
		return
	}
	if !fragment || s.Path != "" {
		c.path("state.path", s.Path)
	}
	var seen []string
	for i, seed := range s.Seed {
		key := at("state.seed", i)
		c.subpath(key+".path", strings.TrimSuffix(seed.Path, "/"))
		if strings.HasSuffix(seed.Path, "/") && seed.Content != "" {
			c.fail(key+".content", found("content for a folder", "none, or a path without '/' at its end"))
		}
		c.text(key+".content", seed.Content)
		seen = append(seen, seed.Path)
		if slices.Index(seen, seed.Path) < i {
			c.fail(key+".path", found(quote(seed.Path)+" a second time", "it once"))
		}
	}
	c.subpaths("state.protect", s.Protect)
	c.subpaths("state.diff", s.Diff)
}
