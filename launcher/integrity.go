package launcher

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/launcher/pin"
	"golang.org/x/sys/unix"
)

// checkIntegrity hashes the files that must be as they were.
func (s *Session) checkIntegrity() []error {
	var errs []error
	for _, f := range s.Manifest.Integrity {
		got, err := s.hashIntegrity(f.Path)
		switch {
		case err != nil:
			errs = append(errs, about("integrity", f.Path, err))
		case got != f.SHA256:
			errs = append(errs, &ChangedError{What: "integrity", Path: f.Path, Old: f.SHA256, New: got})
		}
	}
	return errs
}

// hashIntegrity hashes one file as the session left it: no link is followed, nothing but a regular file is read, and no
// more than pin.MaxIntegrity of it. In a folder that the session writes it reads what the user may read and nothing else:
// the hash is shown to whoever put the file there.
func (s *Session) hashIntegrity(path string) (string, error) {
	if below(path, s.Workspace.Name()) {
		return s.hashBeneath(s.Workspace, path)
	}
	if s.Manifest.State == nil || !below(path, s.Manifest.State.Path) {
		return pin.HashIntegrity(path)
	}
	// By name: only root can replace the folder (checkOwners), and the first session makes it after this.
	fd, err := unix.Openat2(unix.AT_FDCWD, s.Manifest.State.Path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return "", &os.PathError{Op: "open", Path: s.Manifest.State.Path, Err: err}
	}
	dir := os.NewFile(uintptr(fd), s.Manifest.State.Path)
	defer dir.Close()
	return s.hashBeneath(dir, path)
}

func (s *Session) hashBeneath(dir *os.File, path string) (string, error) {
	rel, err := filepath.Rel(dir.Name(), path)
	if err != nil {
		return "", err
	}
	var fd int
	err = sink.As(&sink.IDs{UID: s.User.UID, GID: s.User.GID, Groups: s.User.Groups}, func() (err error) {
		fd, err = unix.Openat2(int(dir.Fd()), rel, &unix.OpenHow{
			Flags:   unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOCTTY,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		})
		return err
	})
	if err != nil {
		return "", fmt.Errorf("open as %s: %w", s.User.Name, err)
	}
	defer unix.Close(fd)
	return pin.HashIntegrityFD(fd)
}
