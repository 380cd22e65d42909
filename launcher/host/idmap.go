package host

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/launcher/mountinfo"
)

// Idmap is whether the filesystem that Path lies on can be mounted with other ids.
type Idmap struct {
	Path   string `json:"path"`
	Fstype string `json:"fstype"`
	Trial
}

// probeID is an id of the agents' range that no host has, used only inside a mount nobody attaches.
const probeID = 1900000000

// probeMounts clones each path's mount, gives the clone an idmap and drops it: nothing is attached anywhere.
func (f *Features) probeMounts(paths []string, mounts []mountinfo.Mount, privileged bool) {
	f.OpenTree = outcome(withClone("/", func(int) error { return nil }), privileged)
	f.MountNoSymfollow = outcome(withClone("/", func(fd int) error {
		return unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSYMFOLLOW})
	}), privileged)
	for _, p := range paths {
		// The nearest symlink-free name tells the filesystem's type; the trial itself goes by the path as given.
		real, err := filepath.EvalSymlinks(p)
		if err != nil {
			real = filepath.Clean(p)
		}
		m, _ := mountinfo.Of(mounts, real)
		f.Idmap = append(f.Idmap, Idmap{Path: p, Fstype: m.FSType, Trial: outcome(tryIdmap(p), privileged)})
	}
}

func tryIdmap(path string) error {
	return withClone(path, func(fd int) error {
		userns, err := userNamespace(0, probeID)
		if err != nil {
			return err
		}
		defer unix.Close(userns)
		err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{
			Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns),
		})
		if err != nil {
			return fmt.Errorf("mount_setattr idmap: %w", err)
		}
		return nil
	})
}

// withClone calls do with a detached clone of the mount at path and drops the clone.
func withClone(path string, do func(fd int) error) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open_tree %s: %w", path, err)
	}
	defer unix.Close(fd)
	return do(fd)
}
