package pin

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/sharness/sharness/manifest"
)

// Sessions own files by these uids (and only through a mistake outside their own folders).
const firstSessionUID, lastSessionUID = 1900000000, 1900600000

// CheckOwner refuses a file that something other than its owner could change: one in a tree of writableBy (the
// workspace, the state folder), one that its group or everyone may write, one with such a folder above it, sticky or
// not, one that belongs to a session, and one that is not root's and has further names (oneName). A pinned hash notices a
// change; this keeps the change from being possible.
func CheckOwner(path string, writableBy ...string) error {
	return eachPlace(path, writableBy, func(here string, info fs.FileInfo, uid uint32) error {
		if info.Mode().Perm()&0o022 != 0 {
			return othersWrite(path, here, info)
		}
		return oneName(here, info)
	})
}

// othersWrite says what to do about a place that others may write: nobody takes /tmp from the users of a host, or /srv from
// those who were given it, for the sake of one program.
func othersWrite(path, here string, info fs.FileInfo) error {
	mode := uint32(info.Mode().Perm())
	if info.Mode()&fs.ModeSticky != 0 {
		mode |= 0o1000
	}
	above := filepath.Dir(here)
	if info.IsDir() && (mode&0o1000 != 0 || above == "/" || filepath.Dir(above) == "/" && slices.Contains([]string{"/usr", "/var", "/run", "/dev"}, above)) {
		return fmt.Errorf("%s: mode %04o lets others write; move %s to where only root can, such as a folder of its own in /opt or /usr/local", here, mode, Quote(path))
	}
	return fmt.Errorf("%s: mode %04o lets others write (chmod go-w %s)", here, mode, Quote(here))
}

// oneName refuses a file that is not root's and has more than one name: pnpm and uv link what they install, and whoever
// may write one of the names, in a workspace say, writes the pinned file, while it runs too. Root's files nobody else can
// write by any name.
func oneName(path string, info fs.FileInfo) error {
	st := info.Sys().(*syscall.Stat_t)
	if !info.Mode().IsRegular() || st.Uid == 0 || st.Nlink == 1 {
		return nil
	}
	copied := Quote(path + ".copy")
	return fmt.Errorf("%s: has %d names (hard links), and a session may be able to write it by another one; make it a file of its own: cp -p %s %s && mv %s %s",
		path, st.Nlink, Quote(path), copied, copied, Quote(path))
}

// CheckManifest is CheckOwner for a manifest, or for the folder one is to be written to. It is stricter about owners, since
// a manifest has no hash to be held against, and more lenient about sticky folders such as /tmp: there nobody but root can
// rename what root owns.
func CheckManifest(path string, writableBy ...string) error {
	return eachPlace(path, writableBy, func(here string, info fs.FileInfo, uid uint32) error {
		if uid != 0 {
			return fmt.Errorf("%s: belongs to uid %d, not to root", here, uid)
		}
		if info.Mode().Perm()&0o022 != 0 && !(info.IsDir() && info.Mode()&fs.ModeSticky != 0) {
			return othersWrite(path, here, info)
		}
		return nil
	})
}

// eachPlace calls check for the file, for every symlink that leads to it, and for every folder above any of them.
func eachPlace(path string, trees []string, check func(here string, info fs.FileInfo, uid uint32) error) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%s: not an absolute path", path)
	}
	hops, err := hops(path)
	if err != nil {
		return err
	}
	roots, err := statAll(trees)
	if err != nil {
		return err
	}
	places, err := newPlaces(trees)
	if err != nil {
		return err
	}
	for _, hop := range hops {
		asked := map[uint64]bool{}
		for here := hop; ; here = filepath.Dir(here) {
			if tree, err := places.inTree(here, asked); err != nil {
				return err
			} else if tree != "" {
				return fmt.Errorf("%s: lies in %s by another name (a mount shows it here), where the session can write; move it out of there", path, tree)
			}
			info, err := os.Lstat(here)
			if err != nil {
				return err
			}
			// By inode, so that another name of the tree is the tree.
			for tree, root := range roots {
				if os.SameFile(info, root) {
					return fmt.Errorf("%s: lies in %s, where the session can write; move it out of there", path, tree)
				}
			}
			uid := info.Sys().(*syscall.Stat_t).Uid
			if uid >= firstSessionUID && uid < lastSessionUID {
				return fmt.Errorf("%s: belongs to uid %d, which is a session's", here, uid)
			}
			// A symlink's own mode is always 0777 and means nothing.
			if info.Mode()&fs.ModeSymlink == 0 {
				if err := check(here, info, uid); err != nil {
					return err
				}
			}
			if here == "/" {
				break
			}
		}
	}
	return nil
}

// statAll passes over trees that do not exist (a state folder before its first session).
func statAll(trees []string) (map[string]fs.FileInfo, error) {
	all := map[string]fs.FileInfo{}
	for _, tree := range trees {
		info, err := os.Stat(tree)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all[tree] = info
	}
	return all, nil
}

// ReadManifest reads a manifest that only root can have written: root's, and so every folder and symlink on the way
// to it (a sticky folder may be writable), and in none of writableBy. At most manifest.MaxBytes+1 bytes are read, which
// Parse then refuses.
func ReadManifest(path string, writableBy ...string) ([]byte, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	f, err := Open(real)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := CheckManifest(path, writableBy...); err != nil {
		return nil, err
	}
	// What was checked by name must be what is open: by now only root could have changed the names.
	opened, err := f.Stat()
	if err != nil {
		return nil, err
	}
	named, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !os.SameFile(opened, named) {
		return nil, fmt.Errorf("%s: replaced while it was opened", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, manifest.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}

// Below is true for dir and everything in it. Both are clean, absolute paths.
func Below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
