package launcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// checkState refuses a state folder that a session could not use. It may not exist yet.
func (s *Session) checkState() error {
	st := s.Manifest.State
	if st == nil {
		return nil
	}
	for _, own := range []string{quarantineRoot, protectedRoot, "/var/lib/sharness/lib", runDir, logDir} {
		if below(st.Path, own) || below(own, st.Path) {
			return refusef("state %s: overlaps %s, which is sharness's own; give another with state.path", st.Path, own)
		}
	}
	fi, err := os.Lstat(st.Path)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return refusef("state: %w", err)
	case !fi.IsDir():
		return refusef("state %s: is not a folder; give another with state.path", st.Path)
	default:
		if err := stateOwner(fi, st.Path, s.User); err != nil {
			return err
		}
	}
	for _, rel := range st.Protect {
		seeded := slices.ContainsFunc(st.Seed, func(sd manifest.Seed) bool { return strings.TrimSuffix(sd.Path, "/") == rel })
		if _, err := s.protectedState(rel); err != nil && !(seeded && errors.Is(err, os.ErrNotExist)) {
			return err
		}
	}
	return CheckShares(s.Manifest)
}

// CheckShares refuses a manifest that shows commands, or hides from them, what is not in the state folder and no seed makes. A
// name with a variable in it is passed over: the session's uid is chosen later.
func CheckShares(m *manifest.Manifest) error {
	if m.State == nil {
		return nil
	}
	for _, part := range []struct {
		key  string
		list []string
	}{{"sandbox.share", m.Sandbox.Share}, {"sandbox.hide", m.Sandbox.Hide}} {
		for _, rel := range part.list {
			seeded := slices.ContainsFunc(m.State.Seed, func(sd manifest.Seed) bool { return below(filepath.Clean(sd.Path), filepath.Clean(rel)) })
			path := filepath.Join(m.State.Path, rel)
			if _, err := os.Lstat(path); seeded || strings.Contains(rel, "{{") || !errors.Is(err, os.ErrNotExist) {
				continue
			}
			return refusef("%s %s: %s is not there; let a seed make it, state: {seed: [{path: %s/}]}, or take it out of the manifest", part.key, rel, path, rel)
		}
	}
	return nil
}

// openState makes the state folder with its seeds, as the user's, and opens it. Everything below the folder belongs to
// the orchestrator, which may have put links there: os.Root does not leave the folder, whatever lies in it.
//
// What it made goes again when it fails.
func openState(st *manifest.State, u User, expand func(string) (string, error)) (dir *os.File, err error) {
	if err := os.MkdirAll(filepath.Dir(st.Path), 0o711); err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	merr := os.Mkdir(st.Path, 0o700)
	if merr != nil && !errors.Is(merr, os.ErrExist) {
		return nil, fmt.Errorf("state: %w", merr)
	}
	if merr == nil {
		defer func() {
			if err != nil {
				os.Remove(st.Path)
			}
		}()
		if err := os.Lchown(st.Path, u.UID, u.GID); err != nil {
			return nil, fmt.Errorf("state: %w", err)
		}
	}
	fd, err := unix.Open(st.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, refusef("state %s: %w", st.Path, err)
	}
	f := os.NewFile(uintptr(fd), st.Path)
	fi, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("state: %w", err)
	}
	if err := stateOwner(fi, st.Path, u); err != nil {
		f.Close()
		return nil, err
	}
	if err := seed(f, st, u, expand); err != nil {
		f.Close()
		return nil, fmt.Errorf("state %s: %w", st.Path, err)
	}
	return f, nil
}

// checkParents refuses a state folder below one that anybody but root can change: root makes folders on this path, and
// must not be led elsewhere.
func checkParents(path string) error {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		fi, err := os.Lstat(dir)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return refusef("state: %w", err)
		case !fi.IsDir():
			return refusef("state %s: %s is not a folder; give the path without links", path, dir)
		case fi.Sys().(*syscall.Stat_t).Uid != 0 || fi.Mode().Perm()&0o022 != 0 && fi.Mode()&os.ModeSticky == 0:
			return refusef("state %s: %s can be changed by others than root; give another with state.path, such as /var/lib/sharness/NAME", path, dir)
		}
		if dir == "/" {
			return nil
		}
	}
}

func stateOwner(fi os.FileInfo, path string, u User) error {
	if owner := int(fi.Sys().(*syscall.Stat_t).Uid); owner != u.UID {
		return refusef("state %s: belongs to uid %d, and this session is %s's (uid %d): a manifest is for one user; for a second one make another: sudo sharness manifest new --name NAME -- CMD; to hand this one over: sudo chown -R %[4]d %[1]s",
			path, owner, u.Name, u.UID)
	}
	return nil
}

// openRoot opens the folder that a descriptor holds, whatever its path names by now.
func openRoot(dir *os.File) (*os.Root, error) {
	return os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
}

func seed(dir *os.File, st *manifest.State, u User, expand func(string) (string, error)) (err error) {
	root, err := openRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var made []string
	defer func() {
		if err != nil {
			for _, path := range slices.Backward(made) {
				root.Remove(path)
			}
		}
	}()
	for _, sd := range st.Seed {
		path, err := expand(sd.Path)
		if err != nil {
			return err
		}
		content, err := expand(sd.Content)
		if err != nil {
			return err
		}
		dir := filepath.Dir(strings.TrimSuffix(path, "/"))
		if strings.HasSuffix(path, "/") {
			dir = filepath.Clean(path)
		}
		if err := makeDirs(root, dir, u, &made); err != nil {
			return about("seed", path, err)
		}
		if strings.HasSuffix(path, "/") {
			continue
		}
		f, err := root.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return about("seed", path, err)
		}
		made = append(made, path)
		_, werr := f.WriteString(content)
		if err := errors.Join(werr, f.Chown(u.UID, u.GID), f.Close()); err != nil {
			return about("seed", path, err)
		}
	}
	return nil
}

// makeDirs makes a folder and its parents beneath the root, as the user's, and adds those that it made to made.
func makeDirs(root *os.Root, dir string, u User, made *[]string) error {
	if dir == "." || dir == "" {
		return nil
	}
	if err := makeDirs(root, filepath.Dir(dir), u, made); err != nil {
		return err
	}
	if err := root.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return err
	}
	*made = append(*made, dir)
	return root.Lchown(dir, u.UID, u.GID)
}
