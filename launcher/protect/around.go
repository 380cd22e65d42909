package protect

import "path"

// Around is a configuration of the repository that the workspace is a linked worktree of, or lies in.
type Around struct {
	Dir  string `json:"dir"`  // the folder that it lies in, absolute and without links: includes are relative to it
	Top  string `json:"top"`  // the top directory of the worktree, the same: a core.hooksPath is relative to it
	Text []byte `json:"text"` // which need not be UTF-8
}

// around protects what such configurations name in the workspace. A file outside that they include is not read.
func (b *builder) around() {
	absolute := func(dir, p string) string {
		if path.IsAbs(p) {
			return p
		}
		return path.Join(dir, p)
	}
	for _, a := range b.opts.Around {
		c := readConfig(string(a.Text))
		for _, hooks := range c.hooks {
			hooks = b.expand(a.Dir+"/config", hooks)
			b.hookFolder(hooks)
			b.protect("", absolute(a.Top, hooks))
			if path.Base(path.Clean(hooks)) == "_" {
				b.protect("", absolute(a.Top, path.Dir(path.Clean(hooks))))
			}
		}
		for _, include := range c.includes {
			include = b.expand(a.Dir+"/config", include)
			if rel, ok := b.protect("", absolute(a.Dir, include)); ok {
				b.config(rel, "", parent(rel))
			}
		}
	}
}
