package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/launcher/protect"
	"golang.org/x/sys/unix"
)

// maxAround bounds a file that is read of a repository outside; git's own configurations are a few hundred bytes.
const maxAround = 64 << 10

// maxOuter bounds the repositories that lie one in another around a workspace: what is read of all of them fits into the
// watcher's configuration.
const maxOuter = 4

// around reads the configurations of the repositories that the workspace is a linked worktree of, or lies in. They are in no
// view, and the user's git obeys what they name in the workspace. Nothing of them is looked at here but where the next file
// lies: the watcher does that, which has the user's ids and nothing else. What the user may not read git does not read.
func (s *Session) around() (list []protect.Around, err error) {
	err = sink.As(&sink.IDs{UID: s.User.UID, GID: s.User.GID, Groups: s.User.Groups}, func() error {
		outer := 0
		for top := s.Workspace.Name(); ; top = filepath.Dir(top) {
			if gitDir := outerGitDir(s.Workspace.Name(), top); gitDir != "" {
				if outer++; outer > maxOuter {
					return refusef("%s: the workspace lies in more than %d repositories, one in another; start in a clone elsewhere", top, maxOuter)
				}
				found, err := configsOf(top, gitDir)
				if err != nil {
					return err
				}
				list = append(list, found...)
			}
			if top == "/" {
				return nil
			}
		}
	})
	return list, err
}

// configsOf reads the configuration of a repository outside, whose worktree has its top directory at top.
func configsOf(top, gitDir string) (list []protect.Around, err error) {
	common := gitDir
	if text, err := readSmall(filepath.Join(gitDir, "commondir")); err == nil {
		common = beneathOr(gitDir, strings.TrimSpace(string(text)))
	}
	for _, path := range []string{filepath.Join(common, "config"), filepath.Join(gitDir, "config.worktree")} {
		text, err := readSmall(path)
		switch {
		case errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission):
		case err != nil:
			return nil, refusef("%w: it is the configuration of the repository that the workspace belongs to, and what it names there could not be protected; make it one, or start in a clone of its own", err)
		default:
			dir, err := filepath.EvalSymlinks(filepath.Dir(path))
			if err != nil {
				return nil, refusef("%w: it is the folder of the configuration of the repository that the workspace belongs to; look at it with git -C WORKSPACE config --list, or start in a clone of its own", err)
			}
			list = append(list, protect.Around{Dir: dir, Top: top, Text: text})
		}
	}
	return list, nil
}

// outerGitDir finds the git directory that git has for top, where it lies outside of the workspace; "" is none. What lies inside
// the watcher finds, and it hides nothing of the folders above: an empty .git there, or a repository that a session made,
// does not keep the user's git from one further up when it is used there.
func outerGitDir(workspace, top string) string {
	path := filepath.Join(top, ".git")
	gitDir := path
	switch fi, err := os.Stat(path); {
	case err != nil:
		return ""
	case !fi.IsDir():
		text, err := readSmall(path)
		target, ok := strings.CutPrefix(string(text), "gitdir:")
		if err != nil || !ok {
			return ""
		}
		gitDir = beneathOr(top, strings.TrimSpace(target))
	}
	if real, err := filepath.EvalSymlinks(gitDir); err != nil || below(real, workspace) {
		return ""
	}
	return gitDir
}

// beneathOr is a path as it is, or beneath dir.
func beneathOr(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// readSmall reads a regular file of at most maxAround bytes, and waits for none.
func readSmall(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() || fi.Size() > maxAround {
		return nil, fmt.Errorf("%s: is no regular file of at most %d bytes", path, maxAround)
	}
	return io.ReadAll(io.LimitReader(f, maxAround))
}
