package stage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sharness/sharness/launcher/protect"
	"golang.org/x/sys/unix"
)

// newRoot makes an empty tmpfs the root of the mount namespace and lets go of the old one. Everything that the view
// shows comes from descriptors of detached mounts, so nothing of the old root is needed once it is gone.
//
// Private propagation comes first: without it each step would be mirrored into the host's namespace (mount_namespaces(7)).
func newRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount: make / private: %w", err)
	}
	fd, err := newFilesystem("tmpfs", "mode=0755,size=4m,nr_inodes=65536", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// Any folder will do as the place to stand while the roots are swapped; /proc exists on every host.
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, "/proc", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount: attach new root: %w", err)
	}
	if err := unix.Chdir("/proc"); err != nil {
		return fmt.Errorf("mount: enter new root: %w", err)
	}
	// pivot_root(".", ".") stacks the old root upon the new one, where it can be taken off (pivot_root(2), notes).
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("mount: pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("mount: detach old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("mount: enter /: %w", err)
	}
	return nil
}

// newFilesystem returns a detached mount of a new file system with the given options and attributes.
func newFilesystem(fstype, data string, attr uint64) (int, error) {
	fs, err := unix.Fsopen(fstype, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("mount: fsopen %s: %w", fstype, err)
	}
	defer unix.Close(fs)
	for opt := range strings.SplitSeq(data, ",") {
		if opt == "" {
			continue
		}
		key, value, has := strings.Cut(opt, "=")
		if has {
			err = unix.FsconfigSetString(fs, key, value)
		} else {
			err = unix.FsconfigSetFlag(fs, key)
		}
		if err != nil {
			return -1, fmt.Errorf("mount: %s option %s: %w", fstype, opt, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("mount: create %s: %w", fstype, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, int(attr))
	if err != nil {
		return -1, fmt.Errorf("mount: fsmount %s: %w", fstype, err)
	}
	return fd, nil
}

// attach attaches one mount of the plan. Descriptors of detached mounts are closed.
func attach(m Mount) error {
	fd := m.FD
	switch {
	case m.Fstype != "":
		var err error
		if fd, err = newFilesystem(m.Fstype, m.Data, m.Set); err != nil {
			return err
		}
	case m.Bind != "":
		var err error
		fd, err = unix.OpenTree(unix.AT_FDCWD, m.Bind, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
		if err != nil {
			return fmt.Errorf("mount: open_tree %s: %w", m.Bind, err)
		}
		attr := unix.MountAttr{Attr_set: m.Set, Attr_clr: m.Clear}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
			unix.Close(fd)
			return fmt.Errorf("mount: attributes of %s: %w", m.Target, err)
		}
	}
	defer unix.Close(fd)
	if m.Bind != m.Target { // what is bound onto itself is there, in a tree where nothing may be made
		if err := makePoint(m.Target, m.IsFile); err != nil {
			return err
		}
	}
	// The last component is not followed: a link in a tree of the user's must not move the mount elsewhere.
	err := unix.MoveMount(fd, "", unix.AT_FDCWD, m.Target, unix.MOVE_MOUNT_F_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("mount: attach %s: %w", m.Target, err)
	}
	return nil
}

// makePoint makes the mount point on the root tmpfs when the trees attached so far do not show it.
func makePoint(target string, isFile bool) error {
	_, err := os.Lstat(target)
	if err == nil {
		return nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("mount: look at %s: %w", target, err)
	}
	if !isFile {
		if err := os.MkdirAll(target, 0o755); err != nil {
			return fmt.Errorf("mount: make %s: %w", target, err)
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("mount: make folder of %s: %w", target, err)
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return fmt.Errorf("mount: make %s: %w", target, err)
	}
	return f.Close()
}

// writeFiles puts the generated files and links into the root tmpfs.
func writeFiles(files []File, links []Link) error {
	for _, f := range files {
		if strings.HasSuffix(f.Path, "/") {
			if err := os.MkdirAll(f.Path, 0o755); err != nil {
				return fmt.Errorf("view: make %s: %w", f.Path, err)
			}
			if err := os.Chmod(f.Path, os.FileMode(f.Mode)); err != nil {
				return fmt.Errorf("view: mode of %s: %w", f.Path, err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
			return fmt.Errorf("view: make folder of %s: %w", f.Path, err)
		}
		if err := os.WriteFile(f.Path, f.Content, os.FileMode(f.Mode)); err != nil {
			return fmt.Errorf("view: write %s: %w", f.Path, err)
		}
	}
	for _, l := range links {
		if err := os.MkdirAll(filepath.Dir(l.Path), 0o755); err != nil {
			return fmt.Errorf("view: make folder of %s: %w", l.Path, err)
		}
		if err := os.Symlink(l.Target, l.Path); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("view: link %s: %w", l.Path, err)
		}
	}
	return nil
}

// protectWorkspace binds the protected entries of the workspace onto themselves. protect.Attach follows no link on the
// way and makes nothing in the user's tree.
func protectWorkspace(p *Protected) error {
	if p == nil || len(p.Entries) == 0 {
		return nil
	}
	root, err := unix.Open(p.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("protect: open %s: %w", p.Root, err)
	}
	defer unix.Close(root)
	mounts := make([]protect.Mount, len(p.Entries))
	for i, e := range p.Entries {
		mounts[i] = protect.Mount{Rel: string(e.Rel), ReadOnly: e.ReadOnly, Kind: e.Kind}
	}
	missing, err := protect.Attach(root, mounts)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("protect: %q was there when the session started and is gone", missing[0])
	}
	return nil
}

// sealRoot makes the root tmpfs itself read-only, the mounts upon it stay as they are.
func sealRoot() error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &attr); err != nil {
		return fmt.Errorf("mount: make / read-only: %w", err)
	}
	return nil
}
