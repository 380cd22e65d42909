package protect

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxConfigs bounds how many configuration files are read, each once for a worktree that it holds for.
const maxConfigs = 2 * MaxEntries

// maxGitDir is the longest path of a git directory: what is protected in it is longer, and is no longer than paths are.
const maxGitDir = maxLookup - len("/config.worktree")

// maxPerDir bounds how many folders, or links, of one directory are looked at.
const maxPerDir = 20000

// repository protects the repository whose top directory is top and which has a ".git" there, as a directory, a link to
// one, or a file that points to one (linked worktree, submodule).
func (b *builder) repository(top string) {
	dotGit := path.Join(top, ".git")
	b.pinDir(top)
	rel, kind, where := b.follow(top, ".git")
	if where == exists && kind == File {
		b.protect(top, ".git")
		text, err := b.readFile(rel, 64<<10)
		target, ok := strings.CutPrefix(string(text), "gitdir:")
		if err != nil || !ok {
			b.note("%+q is not a directory and does not name one: not a repository", dotGit)
			return
		}
		rel, kind, where = b.follow(parent(rel), strings.TrimSpace(target))
	}
	if where != exists || kind != Dir {
		b.note("%+q: its git directory is outside the workspace: it is in no view, and git does not work there", dotGit)
		b.found(Repo{Rel: top, Outside: true})
		return
	}
	b.found(Repo{Rel: top, GitDir: rel})
	b.protect(top, ".gitmodules")
	b.gitDir(rel, top, false)
}

// parent is the directory of rel, "" for a name at the root.
func parent(rel string) string {
	if dir := path.Dir(rel); dir != "." {
		return dir
	}
	return ""
}

// gitDir protects one git directory. top is the directory that hooks run in, which a relative core.hooksPath starts from: it
// is another one for each worktree of the repository.
//
// shared: it is another's commondir. Git reads no commondir of such a one.
func (b *builder) gitDir(dir, top string, shared bool) {
	if b.tops[dir+"\x00"+top] || b.late(dir) {
		return
	}
	if len(dir) > maxGitDir {
		b.note("%+.200q... is a git directory with a path of more than %d bytes: not protected", dir, maxGitDir)
		return
	}
	if len(b.entries) > MaxEntries { // Set.check says it better
		return
	}
	b.tops[dir+"\x00"+top] = true
	own := b.own
	b.own = []string{dir, top}
	defer func() { b.own = own }()
	again := b.gitDirs[dir]
	b.gitDirs[dir] = true
	b.pinDir(dir)
	names := gitDirNames
	if path.Base(path.Dir(dir)) == "worktrees" {
		names = append(slices.Clone(names), worktreeName)
	}
	for _, n := range names {
		rel, ok := b.protect(dir, n.path)
		switch {
		case !ok:
		case n.path == "commondir" && shared:
		case n.path == "commondir":
			if text, err := b.readFile(rel, 64<<10); err == nil {
				b.common(dir, strings.TrimSpace(string(text)), top)
			}
		case n.path == "config" || n.path == "config.worktree":
			b.config(rel, top, parent(path.Join(dir, n.path)))
		}
	}
	if again {
		return
	}
	for _, d := range b.folders(path.Join(dir, "worktrees")) {
		b.gitDir(d, b.worktreeOf(d), false)
		b.worktreeAt(d)
	}
	b.modules(path.Join(dir, "modules"), 4)
}

func (b *builder) common(dir, target, top string) {
	rel, kind, where := b.follow(dir, target)
	if where != exists || kind != Dir {
		b.note("%+q: its common directory is outside the workspace: it is in no view, and git does not work there", dir)
		return
	}
	b.gitDir(rel, top, true)
}

// worktreeAt protects the linked worktree that a directory in worktrees says it is of, however deep that lies.
func (b *builder) worktreeAt(dir string) {
	text, err := b.readFile(path.Join(dir, "gitdir"), 64<<10)
	if err != nil {
		return
	}
	if rel, _, where := b.follow(dir, strings.TrimSpace(string(text))); where == exists && path.Base(rel) == ".git" {
		b.repository(parent(rel))
	}
}

// modules protects the git directories of submodules, whose names may hold slashes. One file that git makes there is
// enough: HEAD, objects and refs can be renamed by a command, config and hooks cannot in a session that protects them. Where
// it is not all that git makes it may be a submodule's name, and another lies beside it.
func (b *builder) modules(dir string, depth int) {
	for _, child := range b.folders(dir) {
		isGitDir := false
		for _, name := range []string{"hooks", "objects", "refs"} {
			isGitDir = isGitDir || b.holds(child, name)
		}
		for _, name := range []string{"config", "HEAD", "commondir"} { // git reads none that is a folder
			st, err := b.lstat(path.Join(child, name))
			isGitDir = isGitDir || err == nil && kindOf(st.Mode) != Dir
		}
		if isGitDir {
			b.gitDir(child, b.worktreeOf(child), false)
		}
		if depth > 1 && !b.isBare(child) { // Watcher.mayBecome stops there too
			b.modules(child, depth-1)
		}
	}
}

// folders lists the directories in dir.
func (b *builder) folders(dir string) (list []string) {
	fd, err := b.open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	names, more, _ := readDirOf(fd, maxPerDir, unix.DT_DIR)
	if more {
		b.refuse("%+q holds more than %d folders: the rest could not be protected; remove some", dir, maxPerDir)
	}
	for _, d := range names {
		list = append(list, path.Join(dir, d.name))
	}
	return list
}

// worktreeOf guesses the worktree of .git/modules/NAME: git puts a submodule's directory under its path by default. It
// only decides where a relative core.hooksPath starts; the submodule's own .git file says it exactly, and both are done.
func (b *builder) worktreeOf(gitDir string) string {
	before, after, ok := strings.Cut(gitDir, ".git/modules/")
	if !ok {
		return gitDir
	}
	return path.Join(before, after)
}

// config protects what a configuration file names: hook directories and included files, which are configuration too. from is
// the folder of the name by which git opened it: for a link another than that of the file, and includes are relative to it.
func (b *builder) config(rel, top, from string) {
	key := rel + "\x00" + top + "\x00" + from
	if b.included[key] || b.late(rel) {
		return
	}
	if len(b.included) == maxConfigs {
		b.refuse("the repositories here have more than %d configuration files, or include as many: what the rest name could not be protected; start in a smaller workspace", maxConfigs)
		return
	}
	b.included[key] = true
	c, err := b.configs.read(b.tree, rel)
	if err != nil {
		b.note("%+q: %v: what it names is not protected", rel, err)
		return
	}
	if len(b.own) > 0 { // hooks run there, however deep it lies
		dir := b.own[0]
		for _, worktree := range c.worktree {
			if rel, kind, where := b.follow(dir, worktree); where == exists && kind == Dir {
				b.gitDir(dir, rel, true)
			}
		}
	}
	for _, hooks := range c.hooks {
		hooks = b.expand(rel, hooks)
		b.hookFolder(hooks)
		b.protect(top, hooks)
		if path.Base(path.Clean(hooks)) == "_" { // husky 9: _/ holds stubs that run the scripts beside it
			b.protect(top, path.Dir(path.Clean(hooks)))
		}
	}
	for _, include := range c.includes {
		include = b.expand(rel, include)
		if rel, ok := b.protect(from, include); ok {
			folder := from
			if i := strings.LastIndexByte(include, '/'); i >= 0 {
				folder, _, _ = b.follow(from, include[:i+1])
			}
			b.config(rel, top, folder)
		}
	}
}

// hookFolder remembers a core.hooksPath that means another folder in each worktree.
func (b *builder) hookFolder(hooks string) {
	hooks = path.Clean(hooks)
	if !path.IsAbs(hooks) && hooks != "." && !strings.Contains(hooks, "\x00") && len(hooks) <= 4095 && !slices.Contains(b.hooks, hooks) {
		if len(b.hooks) == MaxHooks {
			b.refuse("the repositories here have more than %d relative core.hooksPath: those of new worktrees could not be looked at; start in a smaller workspace", MaxHooks)
			return
		}
		b.hooks = append(b.hooks, hooks)
	}
}

// expand does what git does to a path of a configuration (interpolate_path in its path.c), where it can lead into a workspace.
func (b *builder) expand(config, p string) string {
	p = strings.TrimPrefix(p, ":(optional)")
	rest, home := strings.CutPrefix(p, "~/")
	switch {
	case home && b.opts.Home != "":
		return b.opts.Home + "/" + rest // not cleaned: below resolves it
	case !home && strings.HasPrefix(p, "~"):
		b.refuse("%+q names %+q, the home of a user: what lies there could not be protected; write the path itself", config, p)
	}
	return p
}
