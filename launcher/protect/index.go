package protect

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"
)

// Bounds of an index that is read. A path is one that the kernel takes at once.
const (
	maxIndex     = 256 << 20
	maxIndexPath = 4094
	maxIndexName = 1023 // of one component; no file system takes more
)

var errSlow = fmt.Errorf("the indexes that were changed take more than %s to read", maxIndexTime)

var errNoIndex = errors.New("it is no index of a form that is known")

// checkIndex reads an index of git's (gitformat-index(5)), or a shared one, and returns what is wrong with it: a name that git
// would check out into a git directory or out of the worktree, which it does not ask for itself, or a form that git could
// read otherwise than we do. hash is the size of an object's name. The checksum at the end is read by nobody. split: it takes
// entries from a shared one. It is given up at until.
func checkIndex(file io.ReaderAt, size int64, hash int, until time.Time) (split bool, err error) {
	x := &indexReader{left: size - int64(hash), r: bufio.NewReaderSize(io.NewSectionReader(file, 0, size), 64<<10), hash: hash}
	head, err := x.next(12)
	if err != nil || string(head[:4]) != "DIRC" {
		return false, errNoIndex
	}
	x.version = binary.BigEndian.Uint32(head[4:])
	n := int64(binary.BigEndian.Uint32(head[8:]))
	if x.version < 2 || x.version > 4 || n > size/int64(40+hash) {
		return false, errNoIndex
	}
	for i := range n {
		if i%4096 == 0 && time.Now().After(until) {
			return false, errSlow
		}
		if err := x.entry(); err != nil {
			return false, err
		}
	}
	end := x.off
	if err := x.extensions(end); err != nil {
		return false, err
	}
	switch {
	case x.unnamed && !x.has["link"]:
		return false, errors.New("a path is empty")
	case x.folder && !x.has["sdir"]:
		return false, errors.New("a path ends with a slash")
	}
	return x.has["link"], checkEnd(file, size, hash, end)
}

// checkEnd looks for the record of where the entries end where git does: at the end of the file, whatever it is part of.
func checkEnd(file io.ReaderAt, size int64, hash int, end int64) error {
	record := make([]byte, 4+4+4+hash)
	at := size - int64(hash) - int64(len(record))
	if at < 12 {
		return nil
	}
	if _, err := file.ReadAt(record, at); err != nil {
		return errNoIndex
	}
	if string(record[:4]) == "EOIE" && int64(binary.BigEndian.Uint32(record[8:])) != end {
		return errNoIndex
	}
	return nil
}

type indexReader struct {
	r         *bufio.Reader
	off, left int64
	hash      int
	version   uint32
	path      []byte  // of the last entry
	starts    []int64 // where each entry begins, times two, and one if it has nothing of the path before

	unnamed, folder bool            // there was an entry with an empty path, or of a folder
	has             map[string]bool // extensions
}

// next is the next n bytes, until the next call.
func (x *indexReader) next(n int) ([]byte, error) {
	if int64(n) > x.left {
		return nil, errNoIndex
	}
	b, err := x.r.Peek(n)
	if err != nil {
		return nil, errNoIndex
	}
	_, err = x.r.Discard(n)
	x.off, x.left = x.off+int64(n), x.left-int64(n)
	return b, err
}

func (x *indexReader) entry() error {
	start := x.off
	fixed, err := x.next(40 + x.hash + 2)
	if err != nil {
		return err
	}
	mode := binary.BigEndian.Uint32(fixed[24:])
	flags := binary.BigEndian.Uint16(fixed[40+x.hash:])
	if flags&0x4000 != 0 {
		if _, err := x.next(2); err != nil {
			return err
		}
	}
	length := int(flags & 0xfff)
	if length > maxIndexPath {
		return errNoIndex
	}
	kept := 0
	if x.version == 4 {
		if kept, err = x.keep(); err != nil || kept > length {
			return errNoIndex
		}
	}
	rest := length - kept + 1
	if x.version < 4 { // padded to eight bytes, with one zero at least
		rest += int(-(x.off - start + int64(rest))) & 7
	}
	b, err := x.next(rest)
	if err != nil || b[length-kept] != 0 {
		return errNoIndex
	}
	x.path = append(x.path[:kept], b[:length-kept]...)
	x.starts = append(x.starts, start<<1)
	if kept == 0 {
		x.starts[len(x.starts)-1]++
	}
	return x.checkPath(kept, mode)
}

// keep reads how much of the path before goes on: git's own kind of number says how much of its end does not.
func (x *indexReader) keep() (int, error) {
	strip := 0
	for i := 0; ; i++ {
		b, err := x.next(1)
		if err != nil {
			return 0, err
		}
		if i > 0 {
			strip++
		}
		strip = strip<<7 | int(b[0]&0x7f)
		if strip > len(x.path) {
			return 0, errNoIndex
		}
		if b[0]&0x80 == 0 {
			return len(x.path) - strip, nil
		}
	}
}

// checkPath looks at the components of the path from the one that holds byte kept: the others were looked at.
func (x *indexReader) checkPath(kept int, mode uint32) error {
	p := x.path
	if len(p) == 0 {
		x.unnamed = true // of a split index: git demands that the shared one has it
		return nil
	}
	if bytes.IndexByte(p[kept:], 0) >= 0 {
		return errNoIndex
	}
	rest := p[bytes.LastIndexByte(p[:kept], '/')+1:]
	if mode == 0o040000 && p[len(p)-1] == '/' { // a sparse index has folders
		x.folder = true
		if rest = bytes.TrimSuffix(rest, []byte("/")); len(rest) == 0 && len(p) > 1 && p[len(p)-2] != '/' {
			return nil
		}
	}
	for {
		part, after, more := bytes.Cut(rest, []byte("/"))
		if len(part) > maxIndexName { // the last one is looked at again for each entry that shares it
			return errNoIndex
		}
		if len(part) == 0 || string(part) == "." || string(part) == ".." || isDotGit(part) {
			return fmt.Errorf("a path is %+.200q", p)
		}
		if rest = after; !more {
			return nil
		}
	}
}

// isDotGit says whether some file system takes a component for ".git" (verify_path in git's read-cache.c): letters of any
// case, dots and blanks at the end, a stream, the short name, and characters that HFS passes over. A backslash divides there.
func isDotGit(part []byte) bool {
	for {
		first, rest, more := bytes.Cut(part, []byte(`\`))
		if isDotGitName(first) {
			return true
		}
		if part = rest; !more {
			return false
		}
	}
}

func isDotGitName(part []byte) bool {
	if len(part) == 0 || part[0] != '.' && part[0]|0x20 != 'g' && part[0] < utf8.RuneSelf {
		return false
	}
	if bytes.ContainsFunc(part, passedOverByHFS) {
		part = bytes.Map(func(r rune) rune {
			if passedOverByHFS(r) {
				return -1
			}
			return r
		}, part)
	}
	for _, name := range []string{".git", "git~1"} {
		if len(part) >= len(name) && bytes.EqualFold(part[:len(name)], []byte(name)) {
			rest := bytes.TrimLeft(part[len(name):], ". ")
			return len(rest) == 0 || rest[0] == ':'
		}
	}
	return false
}

func passedOverByHFS(r rune) bool {
	return r >= 0x200c && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x206a && r <= 0x206f || r == 0xfeff
}

// extensions reads what follows the entries.
func (x *indexReader) extensions(end int64) error {
	x.has = map[string]bool{}
	for x.left > 0 {
		head, err := x.next(8)
		if err != nil {
			return err
		}
		name, size := string(head[:4]), int64(binary.BigEndian.Uint32(head[4:]))
		if size > x.left {
			return errNoIndex
		}
		x.has[name] = true
		switch {
		case name == "IEOT":
			err = x.blocks(size)
		case name == "EOIE":
			var b []byte
			if b, err = x.next(4 + x.hash); err == nil && (size != int64(4+x.hash) || int64(binary.BigEndian.Uint32(b)) != end) {
				err = errNoIndex
			}
		case name == "link" || name == "sdir" || name[0] >= 'A' && name[0] <= 'Z': // git passes over one with a capital that it does not know
			_, err = x.r.Discard(int(size))
			x.off, x.left = x.off+size, x.left-size
		default:
			err = errNoIndex
		}
		if err != nil {
			return errNoIndex
		}
	}
	return nil
}

// blocks reads the table by which git's threads begin in the middle: each must begin where an entry does, with a path of its own.
func (x *indexReader) blocks(size int64) error {
	head, err := x.next(4)
	if err != nil || binary.BigEndian.Uint32(head) != 1 || size%8 != 4 {
		return errNoIndex
	}
	at := int64(0)
	for range size / 8 {
		b, err := x.next(8)
		if err != nil {
			return err
		}
		offset, n := int64(binary.BigEndian.Uint32(b)), int64(binary.BigEndian.Uint32(b[4:]))
		if n > int64(len(x.starts))-at || n > 0 && x.starts[at] != offset<<1|1 {
			return errNoIndex
		}
		at += n
	}
	if at != int64(len(x.starts)) {
		return errNoIndex
	}
	return nil
}
