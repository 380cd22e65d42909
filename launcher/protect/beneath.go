package protect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// beneath is how every path of the workspace is resolved: nothing above the descriptor, no link followed (openat2(2)).
// There is no second way for kernels without openat2: the caller gets the error.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// maxLookup is the longest path that the kernel takes at once (PATH_MAX without the NUL).
const maxLookup = unix.PathMax - 1

// openat opens rel ("" is the root itself) beneath root. With O_PATH and O_NOFOLLOW a link as the last component is
// opened as the link. The caller closes the descriptor.
func openat(root int, rel string, flags int, resolve uint64) (int, error) {
	if rel == "" {
		rel = "."
	}
	if len(rel) > maxLookup { // ENAMETOOLONG; git gets there by links, or from folder to folder
		cut := strings.LastIndexByte(rel[:maxLookup], '/')
		if cut <= 0 {
			return -1, unix.ENAMETOOLONG
		}
		dir, err := openat(root, rel[:cut], unix.O_PATH|unix.O_DIRECTORY, resolve)
		if err != nil {
			return -1, err
		}
		defer unix.Close(dir)
		return openat(dir, rel[cut+1:], flags, resolve)
	}
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW), Resolve: resolve}
	for try := 0; ; try++ {
		fd, err := unix.Openat2(root, rel, &how)
		// EAGAIN: a rename elsewhere raced with a scoped lookup; openat2(2) asks for another try.
		if (err == unix.EINTR || err == unix.EAGAIN) && try < 32 {
			continue
		}
		return fd, err
	}
}

// tree is the workspace as the user's own process sees it: the mount at root and none below it, because a view has
// none of those either.
type tree struct {
	root int
	// unlocked, if it is set, makes open give the owner of a directory that cannot be entered or listed the right to it,
	// and is told of each: a mode that a command chose must not hide what lies there.
	unlocked func(rel string)
}

func (t tree) open(rel string, flags int) (int, error) {
	fd, err := openat(t.root, rel, flags, beneath|unix.RESOLVE_NO_XDEV)
	if err == unix.EACCES && t.unlocked != nil && t.unlock(rel, 0o500, t.unlocked) {
		return openat(t.root, rel, flags, beneath|unix.RESOLVE_NO_XDEV)
	}
	return fd, err
}

// unlock adds the owner's rights that a directory lacks of bits, to the root, to each directory on the way to rel, and to
// rel if it is one. It reports whether it changed any. One of somebody else's stays as it is: a view has no more rights
// to it than the user.
func (t tree) unlock(rel string, bits uint32, changed func(rel string)) (any bool) {
	// The root by its descriptor: to look up "." in a directory takes the right to search it.
	if done, err := ownerRights(t.root, bits); err != nil {
		return false
	} else if done {
		any = true
		changed("")
	}
	parts := strings.Split(rel, "/")
	for i := 1; i <= len(parts) && rel != ""; i++ {
		dir := strings.Join(parts[:i], "/")
		fd, err := openat(t.root, dir, unix.O_PATH|unix.O_DIRECTORY, beneath|unix.RESOLVE_NO_XDEV)
		if err != nil {
			return any
		}
		done, err := ownerRights(fd, bits)
		unix.Close(fd)
		if err != nil {
			return any
		}
		if done {
			any = true
			changed(dir)
		}
	}
	return any
}

// lstat looks at rel without following a link in any component.
func (t tree) lstat(rel string) (unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := t.open(rel, unix.O_PATH)
	if err != nil {
		return st, err
	}
	defer unix.Close(fd)
	return st, unix.Fstat(fd, &st)
}

func (t tree) readlink(rel string) (string, error) {
	fd, err := t.open(rel, unix.O_PATH)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// readFile reads a regular file of at most limit bytes. O_NONBLOCK: a FIFO in its place must not hang us.
func (t tree) readFile(rel string, limit int64) ([]byte, error) {
	fd, err := t.open(rel, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "workspace file")
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("longer than %d bytes", limit)
	}
	return b, err
}

// kindOf sorts a mode into the three kinds.
func kindOf(mode uint32) Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return Dir
	case unix.S_IFLNK:
		return Link
	}
	return File
}

// dirent is a name and its DT_ type.
type dirent struct {
	name string
	typ  byte
}

// readDir lists an open directory, at most limit names; more is reported by the bool. os.ReadDir would look up unknown
// types by path name, which is the one thing we never do here.
func readDir(fd, limit int) (list []dirent, more bool, err error) {
	return readDirOf(fd, limit, 0)
}

// readDirOf lists the names of one type (DT_DIR and so on; 0: of all). Others do not count for the limit, so that files
// cannot crowd folders out.
func readDirOf(fd, limit int, only byte) (list []dirent, more bool, err error) {
	buf := make([]byte, 32<<10)
	for {
		n, err := unix.Getdents(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return list, false, err
		}
		// struct linux_dirent64: u64 ino, s64 off, u16 reclen, u8 type, name (getdents64(2)).
		for b := buf[:n]; len(b) > 19; {
			reclen := int(binary.NativeEndian.Uint16(b[16:]))
			if reclen < 19 || reclen > len(b) {
				return list, false, errors.New("getdents: bad record")
			}
			name, _, _ := strings.Cut(string(b[19:reclen]), "\x00")
			if name != "." && name != ".." && name != "" {
				if typ := typeOf(fd, name, b[18]); only == 0 || typ == only {
					list = append(list, dirent{name, typ})
				}
			}
			b = b[reclen:]
		}
		if len(list) > limit {
			return list[:limit], true, nil
		}
	}
}

// typeOf asks the inode where the filesystem did not give the type with the name.
func typeOf(dir int, name string, typ byte) byte {
	var st unix.Stat_t
	if typ == unix.DT_UNKNOWN && unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		return byte(st.Mode & unix.S_IFMT >> 12) // IFTODT of dirent.h
	}
	return typ
}

// complete says whether git takes dir for a git directory, or for a part of one: objects and refs are enough, since HEAD may
// lie in another that names this one its commondir.
func (t tree) complete(dir string) bool {
	return t.holds(dir, "objects", "refs") || t.holds(dir, "HEAD", "commondir")
}

// hasHead says whether dir has a HEAD that git would read.
func (t tree) hasHead(dir string) bool {
	st, err := t.lstat(path.Join(dir, "HEAD"))
	return err == nil && kindOf(st.Mode) != Dir
}

// holds says whether dir has all of these names.
func (t tree) holds(dir string, names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { _, err := t.lstat(path.Join(dir, name)); return err != nil })
}
