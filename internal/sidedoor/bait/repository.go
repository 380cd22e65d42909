package bait

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Repository makes a workspace with a repository in it, owned by uid and gid: a linked worktree, and the git directory of
// a submodule, so that each file that git obeys has an instance. It is made by hand, since a user's host need not have
// git; gitrepository-layout(5).
func Repository(dir string, uid, gid int) error {
	const config = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
	for name, content := range map[string]string{
		"README":                            "workspace of a test\n",
		".git/HEAD":                         "ref: refs/heads/main\n",
		".git/config":                       config,
		".git/hooks/":                       "",
		".git/info/exclude":                 "",
		".git/objects/info/":                "",
		".git/objects/pack/":                "",
		".git/refs/heads/":                  "",
		".git/refs/tags/":                   "",
		".git/worktrees/worktree/HEAD":      "ref: refs/heads/worktree\n",
		".git/worktrees/worktree/commondir": "../..\n",
		".git/worktrees/worktree/gitdir":    filepath.Join(dir, "worktree/.git") + "\n",
		"worktree/.git":                     "gitdir: " + filepath.Join(dir, ".git/worktrees/worktree") + "\n",
		"worktree/README":                   "workspace of a test\n",
		".git/modules/sub/HEAD":             "ref: refs/heads/main\n",
		".git/modules/sub/config":           config,
		".git/modules/sub/hooks/":           "",
		".git/modules/sub/info/":            "",
		".git/modules/sub/objects/info/":    "",
		".git/modules/sub/objects/pack/":    "",
		".git/modules/sub/refs/heads/":      "",
	} {
		path := filepath.Join(dir, name)
		folder := filepath.Dir(path)
		if strings.HasSuffix(name, "/") {
			folder = path
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return fmt.Errorf("workspace: %w", err)
		}
		if folder == path {
			continue
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return fmt.Errorf("workspace: %w", err)
		}
	}
	return filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, gid)
	})
}
