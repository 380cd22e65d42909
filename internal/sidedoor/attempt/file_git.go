package attempt

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// git attacks what git and editors on the host run later. Whatever opens is put back.
func git() []Attempt {
	const door = "file-git"
	var a []Attempt
	inGit := func(id, what string, how func(t *Target, dir string) Outcome) {
		a = append(a, Attempt{door + "/" + id, door, what, Opens, func(t *Target) Outcome {
			dir := filepath.Join(t.Workspace, ".git")
			if _, err := os.Stat(dir); err != nil {
				return impossible("the workspace is no repository: %v", err)
			}
			return how(t, dir)
		}})
	}
	for _, n := range []string{"hooks/post-checkout", "hooks/pre-commit", "config", "config.worktree", "commondir"} {
		inGit("write-"+nameOf(n), "write .git/"+n, func(t *Target, dir string) Outcome { return plant(t, filepath.Join(dir, n)) })
	}
	// Only those that exist are protected: a new worktree is a new repository, which is reported.
	for _, n := range []string{"modules/*/config", "modules/*/hooks/post-checkout", "modules/*/commondir", "worktrees/*/gitdir", "worktrees/*/commondir", "worktrees/*/config.worktree"} {
		inGit("write-"+strings.ReplaceAll(nameOf(n), "*", "any"), "write .git/"+n, func(t *Target, dir string) Outcome {
			kind, rest, _ := strings.Cut(n, "/*/")
			found, err := filepath.Glob(filepath.Join(dir, kind, "*"))
			if err != nil || len(found) == 0 {
				return impossible("the repository has no %s", kind)
			}
			var all []Outcome
			for _, f := range found {
				all = append(all, plant(t, filepath.Join(f, rest)))
			}
			return worst(all...)
		})
	}
	move := func(from, to string) Outcome {
		err := unix.Rename(from, to)
		if err == nil {
			unix.Rename(to, from)
		}
		return judge("rename "+from, err, unix.EBUSY)
	}
	inGit("rename-over-config", "rename another file over .git/config", func(t *Target, dir string) Outcome {
		mine := t.scratch("config")
		if err := t.put(mine, []byte("[core]\n"), 0o644); err != nil {
			return judge("write", err)
		}
		config := filepath.Join(dir, "config")
		err := unix.Renameat2(unix.AT_FDCWD, mine, unix.AT_FDCWD, config, unix.RENAME_EXCHANGE)
		if err == nil {
			unix.Renameat2(unix.AT_FDCWD, mine, unix.AT_FDCWD, config, unix.RENAME_EXCHANGE)
		}
		return judge("renameat2 EXCHANGE", err, unix.EBUSY)
	})
	inGit("lock-then-rename", "make .git/config.lock and rename it, as git does", func(t *Target, dir string) Outcome {
		lock, config := filepath.Join(dir, "config.lock"), filepath.Join(dir, "config")
		before, err := os.ReadFile(config)
		if err != nil {
			return judge("read .git/config", err)
		}
		if err := t.put(lock, before, 0o644); err != nil {
			return judge("create config.lock", err)
		}
		return judge("rename", unix.Rename(lock, config), unix.EBUSY)
	})
	inGit("move-git", "rename .git", func(t *Target, dir string) Outcome { return move(dir, t.scratch("git")) })
	inGit("move-hooks", "rename .git/hooks", func(_ *Target, dir string) Outcome {
		return move(filepath.Join(dir, "hooks"), filepath.Join(dir, "hooks.moved"))
	})
	inGit("move-config", "rename .git/config", func(_ *Target, dir string) Outcome {
		return move(filepath.Join(dir, "config"), filepath.Join(dir, "config.moved"))
	})
	inGit("symlink", "write a hook through a symbolic link", func(t *Target, dir string) Outcome {
		link := t.scratch("hooks")
		if err := os.Symlink(filepath.Join(dir, "hooks"), link); err != nil {
			return judge("symlink", err)
		}
		return openWrite(filepath.Join(link, "post-merge"), unix.O_CREAT|unix.O_EXCL)
	})
	inGit("hardlink", "write .git/config through a hard link", func(t *Target, dir string) Outcome {
		link := t.scratch("hard")
		if err := unix.Link(filepath.Join(dir, "config"), link); err != nil {
			return judge("link", err)
		}
		return openWrite(link, 0)
	})
	inGit("proc-self-root", "write a hook through /proc/self/root", func(_ *Target, dir string) Outcome {
		return openWrite("/proc/self/root"+filepath.Join(dir, "hooks/post-rewrite"), unix.O_CREAT|unix.O_EXCL)
	})
	inGit("truncate", "truncate .git/config by path, to the length it has", func(_ *Target, dir string) Outcome {
		var st unix.Stat_t
		config := filepath.Join(dir, "config")
		if err := unix.Stat(config, &st); err != nil {
			return judge("stat", err)
		}
		return judge("truncate", unix.Truncate(config, st.Size))
	})
	inGit("plant-gitmodules", "plant .gitmodules", func(t *Target, _ string) Outcome { return plant(t, filepath.Join(t.Workspace, ".gitmodules")) })
	return a
}
