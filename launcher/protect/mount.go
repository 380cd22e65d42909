package protect

import (
	"fmt"
	"path"

	"golang.org/x/sys/unix"
)

// Mount is one self-bind of a view, relative to the root it was asked for.
type Mount struct {
	Rel      string
	ReadOnly bool
	Kind     Kind
}

// Mounts lists the self-binds of a set, and the covers of its sockets, in the order in which they must be made. rootRel is put before every path; ""
// leaves them relative to the workspace.
func Mounts(s *Set, rootRel string) []Mount {
	list := make([]Mount, 0, len(s.Existing))
	for _, e := range s.Existing {
		list = append(list, Mount{path.Join(rootRel, e.Rel), e.Mode == ReadOnly, e.Kind})
	}
	for _, rel := range s.Sockets { // upon the binds of the folders that they lie in
		list = append(list, Mount{path.Join(rootRel, rel), false, Socket})
	}
	return list
}

// Attach binds every mount on itself beneath root, a descriptor of the workspace inside the view. The caller is in the
// mount namespace of the view, with CAP_SYS_ADMIN, and nothing of the domain runs there yet. Flags of the mount that
// holds the path (nosuid, noexec, an idmap) are inherited; only MS_RDONLY is added.
//
// A path that is gone is returned in missing; whether that stops a start is the caller's to decide (at the start of a
// session it should). A path of another kind is an error: somebody is playing.
//
// A mount covers one name, not one inode: renaming another file over it in the *host's* namespace, as git config run
// from outside does, detaches it in every view (detach_mounts in fs/namespace.c). The watcher reports that.
func Attach(root int, mounts []Mount) (missing []string, err error) {
	for _, m := range mounts {
		err := attach(root, m)
		if err == unix.ENOENT && m.Kind == Socket {
			continue // who listened there has ended
		}
		if err == unix.ENOENT {
			missing = append(missing, m.Rel)
			continue
		}
		if err != nil {
			return missing, fmt.Errorf("protect %q: %w", m.Rel, err)
		}
	}
	return missing, nil
}

func attach(root int, m Mount) error {
	// Crossing mounts is wanted here: the parents of m were bound on themselves just before.
	at, err := openat(root, m.Rel, unix.O_PATH, beneath)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return err
	}
	if m.Kind == Socket {
		return cover(at, st.Mode)
	}
	if got := kindOf(st.Mode); got != m.Kind {
		return fmt.Errorf("it was a %s and is a %s", m.Kind, got)
	}
	clone, err := unix.OpenTree(at, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("open_tree: %w", err)
	}
	defer unix.Close(clone)
	if m.ReadOnly {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(clone, "", unix.AT_EMPTY_PATH, &attr); err != nil {
			return fmt.Errorf("mount_setattr: %w", err)
		}
	}
	if err := unix.MoveMount(clone, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	return nil
}

// cover puts the view's /dev/null over a socket. What is none any more needs no cover.
func cover(at int, mode uint32) error {
	if mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil
	}
	null, err := unix.OpenTree(unix.AT_FDCWD, "/dev/null", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open_tree /dev/null: %w", err)
	}
	defer unix.Close(null)
	if err := unix.MoveMount(null, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	return nil
}

// Verify opens every entry beneath root and compares its kind, so that a list that somebody else made is known to fit
// this tree before anything is built on it. It follows nothing and reads nothing.
func Verify(root int, s *Set) error {
	for _, e := range s.Existing {
		st, err := tree{root: root}.lstat(e.Rel)
		if err == unix.EXDEV && e.Mode == ReadOnly {
			continue // a mount point: what lies below it is seen in the view alone, where Attach compares it
		}
		if err != nil {
			return fmt.Errorf("protected path %q: %w", e.Rel, err)
		}
		if got := kindOf(st.Mode); got != e.Kind {
			return fmt.Errorf("protected path %q: it was a %s and is a %s", e.Rel, e.Kind, got)
		}
	}
	return nil
}
