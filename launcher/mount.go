package launcher

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Attributes of the mounts of a view. Everything a view shows is nosuid and nodev; what is not pinned is noexec.
const (
	attrBase   = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	attrData   = attrBase | unix.MOUNT_ATTR_NOEXEC
	attrSystem = attrData | unix.MOUNT_ATTR_RDONLY
	attrPinned = attrBase | unix.MOUNT_ATTR_RDONLY
	attrDevice = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC
)

// clone says how cloneMount makes a detached mount.
type clone struct {
	set, clear uint64
	recursive  bool
	userns     *os.File // idmapped through this user namespace
}

// cloneMount returns a detached copy of the mount at path (open_tree(2) in the supervisor's namespace: a descriptor of
// another namespace could not be bound inside the new one, a detached mount can be attached there once). The last
// component is not followed.
func cloneMount(path string, c clone) (*os.File, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_SYMLINK_NOFOLLOW)
	if c.recursive {
		flags |= unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, flags)
	if err != nil {
		return nil, fmt.Errorf("open_tree %s: %w", path, err)
	}
	return attribute(os.NewFile(uintptr(fd), path), c)
}

// cloneAt is cloneMount of a path beneath a folder the caller holds; no component of it may be a link.
func cloneAt(dir *os.File, rel string, c clone) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	at, err := unix.Openat2(int(dir.Fd()), rel, &how)
	if err != nil {
		return nil, fmt.Errorf("open %s beneath %s: %w", rel, dir.Name(), err)
	}
	defer unix.Close(at)
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH)
	if c.recursive {
		flags |= unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(at, "", flags)
	if err != nil {
		return nil, fmt.Errorf("open_tree %s beneath %s: %w", rel, dir.Name(), err)
	}
	return attribute(os.NewFile(uintptr(fd), dir.Name()+"/"+rel), c)
}

// attribute also takes the copy out of the peer group of what it was copied from. Where the host's mounts are shared, as
// systemd makes them, every mount beneath the copy would appear on the host, and every later one of the host's in the
// view, with none of its attributes (mount_namespaces(7)).
func attribute(f *os.File, c clone) (*os.File, error) {
	attr := unix.MountAttr{Attr_set: c.set, Attr_clr: c.clear, Propagation: unix.MS_PRIVATE}
	if c.userns != nil {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(c.userns.Fd())
	}
	flags := uint(unix.AT_EMPTY_PATH)
	if c.recursive {
		flags |= unix.AT_RECURSIVE
	}
	err := unix.MountSetattr(int(f.Fd()), "", flags, &attr)
	if err == nil {
		return f, nil
	}
	f.Close()
	if c.userns != nil && errors.Is(err, unix.EINVAL) {
		return nil, &NoIdmapError{Path: f.Name(), Err: err}
	}
	return nil, fmt.Errorf("mount attributes of %s: %w", f.Name(), err)
}

// NoIdmapError says that the file system of a path does not know idmapped mounts.
type NoIdmapError struct {
	Path string
	Err  error
}

func (e *NoIdmapError) Error() string {
	var st unix.Statfs_t
	kind := "its file system"
	if unix.Statfs(e.Path, &st) == nil {
		kind = fmt.Sprintf("its file system (magic %#x)", st.Type)
	}
	return fmt.Sprintf("idmapped mount of %s: %s does not allow it: %v; move the folder to ext4, xfs, btrfs or (kernel 6.3 and later) tmpfs", e.Path, kind, e.Err)
}

func (e *NoIdmapError) Unwrap() error { return e.Err }
