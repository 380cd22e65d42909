package pin

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/launcher/mountinfo"
)

// places says where files really lie: a bind mount shows a folder under another name, and above that name none of the
// folder's own parents. The table of mounts is read when something lies on another mount than the trees do.
type places struct {
	trees  map[string]place
	mounts []mountinfo.Mount
}

// place is a file by its mount, and within the file system.
type place struct {
	mount  uint64
	device string
	path   string
}

func newPlaces(trees []string) (*places, error) {
	p := &places{trees: map[string]place{}}
	for _, tree := range trees {
		real, err := filepath.EvalSymlinks(tree)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		st, err := statx(real)
		if err != nil {
			return nil, err
		}
		p.trees[tree] = place{mount: st.Mnt_id, path: real} // where it lies in the file system is asked when it matters
	}
	return p, nil
}

func statx(path string) (unix.Statx_t, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID, &st); err != nil {
		return st, &os.PathError{Op: "statx", Path: path, Err: err}
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return st, fmt.Errorf("statx %s: the kernel does not name its mount", path)
	}
	return st, nil
}

// inTree is the tree in which a real path lies by another of its names, if any. Folders above it on the same mount lie above
// that name too; of those on another mount the caller asks in turn, and asked has the mounts that were asked about.
func (p *places) inTree(path string, asked map[uint64]bool) (tree string, err error) {
	st, err := statx(path)
	if err != nil || asked[st.Mnt_id] {
		return "", err
	}
	asked[st.Mnt_id] = true
	for _, t := range p.trees {
		if t.mount != st.Mnt_id {
			return p.compare(path)
		}
	}
	return "", nil // of one mount are names and folders alike: the caller looks at these
}

func (p *places) compare(path string) (string, error) {
	here, m, err := p.find(path)
	if err != nil {
		return "", err
	}
	for tree, t := range p.trees {
		there, _, err := p.find(t.path)
		switch {
		case err != nil:
			return "", err
		case here.mount == there.mount || here.device != there.device:
		case here.path == "" || there.path == "":
			return "", fmt.Errorf("%s: cannot tell whether it lies in %s, where the session can write: /proc/self/mountinfo does not show both mounts (chroot)", path, tree)
		case Below(here.path, there.path):
			return tree, nil
		}
	}
	// What an overlay shows is written by writing one of its layers.
	for _, layer := range layers(m) {
		for tree, t := range p.trees {
			if real, err := filepath.EvalSymlinks(layer); err == nil && Below(real, t.path) {
				return tree, nil
			}
		}
	}
	return "", nil
}

// find is where a path lies. The path within the file system is empty for a mount that the process is not shown: the one
// that holds its root, in a chroot.
func (p *places) find(path string) (place, mountinfo.Mount, error) {
	if p.mounts == nil {
		var err error
		if p.mounts, err = mountinfo.Read(); err != nil {
			return place{}, mountinfo.Mount{}, err
		}
	}
	st, err := statx(path)
	if err != nil {
		return place{}, mountinfo.Mount{}, err
	}
	i := slices.IndexFunc(p.mounts, func(m mountinfo.Mount) bool { return m.ID == st.Mnt_id })
	if i < 0 {
		return place{mount: st.Mnt_id, device: fmt.Sprintf("%d:%d", st.Dev_major, st.Dev_minor)}, mountinfo.Mount{}, nil
	}
	m := p.mounts[i]
	return place{st.Mnt_id, m.Device, filepath.Join(m.Root, strings.TrimPrefix(path, strings.TrimSuffix(m.Point, "/")))}, m, nil
}

// layers are the folders of an overlay, as far as their names can be read here: one with a colon or comma is not found.
func layers(m mountinfo.Mount) []string {
	if m.FSType != "overlay" {
		return nil
	}
	var out []string
	for _, o := range m.SuperOption {
		for _, name := range []string{"lowerdir=", "lowerdir+=", "upperdir=", "datadir+="} {
			if list, ok := strings.CutPrefix(o, name); ok {
				out = append(out, strings.Split(list, ":")...)
			}
		}
	}
	return out
}
