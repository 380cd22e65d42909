package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sharness/sharness/launcher/mountinfo"
	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// openWorkspace resolves the path once; everything later is relative to the descriptor.
func openWorkspace(path string) (*os.File, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, refusef("workspace %s: the current folder cannot be told: %w; give a folder with --workspace DIR", path, err)
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return nil, refusef("%w; give a folder that is there with --workspace DIR", about("workspace", abs, err))
	}
	fd, err := unix.Open(real, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, refusef("workspace %s: %w; give a folder with --workspace DIR", real, err)
	}
	return os.NewFile(uintptr(fd), real), nil
}

// notWorkspaces can never be one: an agent that writes there writes the system, or its own policy.
var notWorkspaces = []string{"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var", "/var/lib", "/var/tmp"}

// systemFolder refuses what can be nobody's workspace.
func systemFolder(ws string) error {
	for _, p := range notWorkspaces {
		if ws == p {
			return refusef("workspace %s: is a system folder; give a project folder with --workspace DIR", ws)
		}
	}
	for _, p := range []string{"/usr", "/etc", "/proc", "/sys", "/dev", "/boot", "/run/sharness", "/var/lib/sharness"} {
		if below(ws, p) {
			return refusef("workspace %s: lies in %s; give a project folder with --workspace DIR", ws, p)
		}
	}
	return nil
}

// CheckFolder says whether a folder is there that could be somebody's workspace, to whoever asks.
func CheckFolder(path string) error {
	f, err := openWorkspace(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return systemFolder(f.Name())
}

func (s *Session) checkWorkspace() error {
	ws := s.Workspace.Name()
	if err := systemFolder(ws); err != nil {
		return err
	}
	if s.User.Home != "" && (ws == filepath.Clean(s.User.Home) || below(s.User.Home, ws)) {
		return refusef("workspace %s: holds the home folder of %s, keys and settings with it; give a project folder with --workspace DIR", ws, s.User.Name)
	}
	if s.Manifest.State != nil {
		state, err := realPath(s.Manifest.State.Path)
		if err != nil {
			return refusef("state %s: %w", s.Manifest.State.Path, err)
		}
		if below(state, ws) || below(ws, state) {
			return refusef("workspace %s: overlaps the state folder %s", ws, s.Manifest.State.Path)
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(s.Workspace.Fd()), &st); err != nil {
		return refusef("workspace %s: %w", ws, err)
	}
	if _, err := unix.Getxattr(fmt.Sprintf("/proc/self/fd/%d", s.Workspace.Fd()), "system.posix_acl_access", nil); err == nil {
		return nil // the mode does not say who may
	}
	// A domain has the user's uid and first group on disk, and no capability: the bits count for root too.
	shift := 0
	switch {
	case int(st.Uid) == s.User.UID:
		shift = 6
	case int(st.Gid) == s.User.GID:
		shift = 3
	}
	if st.Mode>>shift&0o5 != 0o5 {
		return refusef("workspace %s: mode %04o does not let %s read it; chmod it, or give another with --workspace DIR", ws, st.Mode&0o7777, s.User.Name)
	}
	return nil
}

// CheckWorkspace says whether a session of m, which lies in file, could have its workspace at path, by the rules that do not need
// the session. Without a file, m is none in particular.
func CheckWorkspace(m *manifest.Manifest, file, path string) error {
	s, err := openSession(m, path, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	if file != "" {
		if err := s.checkOwners(file); err != nil {
			return err
		}
		if err := s.checkState(); err != nil {
			return err
		}
	}
	return s.checkFree()
}

// MissingTrees are those under read that the host does not have. They show nothing.
func MissingTrees(m *manifest.Manifest) (missing []string) {
	for _, tree := range m.Read {
		if _, err := os.Lstat(tree); errors.Is(err, os.ErrNotExist) {
			missing = append(missing, tree)
		}
	}
	return missing
}

// realPath resolves the links of a path whose last components may not exist yet.
func realPath(path string) (string, error) {
	there := existingParent(path)
	real, err := filepath.EvalSymlinks(there)
	if err != nil {
		return "", err
	}
	return filepath.Join(real, strings.TrimPrefix(path, there)), nil
}

// about is an error of a file without its name and the call's, which it puts words before.
func about(what, path string, err error) error {
	if cause := new(fs.PathError); errors.As(err, &cause) {
		err = cause.Err
	}
	return fmt.Errorf("%s %s: %w", what, path, err)
}

// mountsBelow are the mount points below a workspace, relative to it. What is mounted below another of them is not shown
// where that one is not.
func mountsBelow(root string) (list [][]byte, err error) {
	mounts, err := mountinfo.Read()
	if err != nil {
		return nil, err
	}
	var points []string
	for _, m := range mounts {
		if rel, ok := strings.CutPrefix(m.Point, strings.TrimSuffix(root, "/")+"/"); ok {
			points = append(points, rel)
		}
	}
	slices.Sort(points)
	for i, rel := range points {
		if !slices.ContainsFunc(points[:i], func(other string) bool { return below(rel, other) }) {
			list = append(list, []byte(rel))
		}
	}
	return list, nil
}
