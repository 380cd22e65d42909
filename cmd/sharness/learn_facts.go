package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/agent/learn"
	"github.com/sharness/sharness/launcher/pin"
)

// facts asks this host about everything that was recorded. The files are read now and not when they ran: no session can
// write them, and one whose inode, change time and size are what the kernel saw then has the same content. What was
// changed from outside meanwhile is not the file that ran, and makes the result incomplete.
func (l *learning) facts(seen *learn.Observation) map[learn.Key]learn.Fact {
	all := map[learn.Key]learn.Fact{}
	for i := range seen.Images {
		image := &seen.Images[i]
		if image.Denied || image.Beneath != "" || image.Strange != "" {
			continue
		}
		if _, known := all[image.Key()]; !known {
			all[image.Key()] = l.fact(image)
		}
	}
	if l.former == nil || l.former.Learned == nil {
		return all
	}
	// What earlier runs executed needs its libraries still.
	for _, i := range l.former.Learned.Images {
		key := learn.Key{Path: i.Path, Exec: true}
		if i.Execs == 0 {
			continue
		}
		if c, err := l.options.Resolve(i.Path); err == nil {
			all[key] = learn.Fact{Path: i.Path, Exec: c.Exec, Libraries: c.Libraries}
		}
	}
	return all
}

func (l *learning) fact(i *learn.Image) learn.Fact {
	fact := learn.Fact{Path: i.Path, Leads: map[string]string{}}
	for _, name := range i.Asked {
		if real, err := realOutside(name); err == nil {
			fact.Leads[name] = real
		}
	}
	if i.Routed {
		return fact // the file that ran is the client
	}
	if i.Script != "" {
		real, err := realOutside(i.Path)
		if err != nil {
			fact.Unknown = cause(err)
			return fact
		}
		fact.Path = real
	}
	before, err := l.look(i, fact.Path)
	if err != nil {
		fact.Unknown = cause(err)
		return fact
	}
	if err := pin.CheckOwner(fact.Path, l.writable()...); err != nil {
		fact.Refused = strings.TrimPrefix(err.Error(), fact.Path+": ")
		return fact
	}
	if !slices.Contains(paths(l.start), fact.Path) {
		fact.Read = l.beside(fact.Path)
	}
	if i.Execs > 0 {
		l.close(&fact)
	} else if fact.SHA256, err = pin.Hash(fact.Path); err != nil {
		fact.Unknown = cause(err)
	}
	if after, err := l.look(i, fact.Path); err != nil || !after.Same(before) {
		fact.Unknown = "changed while it was read"
	}
	return fact
}

// writable are the folders in which nothing may be pinned.
func (l *learning) writable() []string {
	dirs := []string{l.workspace}
	if l.start.State != nil {
		dirs = append(dirs, l.start.State.Path)
	}
	return dirs
}

// look says what a file is now, and refuses one that is not what ran. A script is not known by its inode: it must not
// have changed since the run began.
func (l *learning) look(i *learn.Image, path string) (learn.File, error) {
	f, err := pin.Open(path)
	if err != nil {
		return learn.File{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return learn.File{}, err
	}
	st := info.Sys().(*syscall.Stat_t)
	now := learn.File{Ino: st.Ino, Size: uint64(st.Size), Sec: st.Ctim.Sec, Nsec: st.Ctim.Nsec, Links: uint32(st.Nlink), UID: st.Uid, Mode: st.Mode}
	if i.File != nil && !now.Same(*i.File) {
		return now, errors.New("is not the file that ran: it was changed or replaced since")
	}
	if i.File == nil && st.Ctim.Nano() >= l.began.UnixNano() {
		return now, errors.New("was changed or replaced while it was learned")
	}
	return now, nil
}

// close finds what an executed file needs to start.
func (l *learning) close(fact *learn.Fact) {
	c, err := l.options.Resolve(fact.Path)
	if err != nil {
		special := l.options
		special.Privileged = true
		var serr error
		if c, serr = special.Resolve(fact.Path); serr == nil {
			fact.Special = cause(err)
		} else {
			fact.Refused = cause(err)
			return
		}
	}
	fact.Exec, fact.Libraries, fact.Read = c.Exec, c.Libraries, append(fact.Read, needed(c)...)
	for _, e := range c.Exec {
		if e.Path == fact.Path {
			fact.SHA256 = e.SHA256
		}
		if err := pin.CheckOwner(e.Path, l.writable()...); err != nil {
			fact.Refused = fmt.Sprintf("needs %v", err)
		}
	}
	for _, lib := range c.Libraries {
		if err := pin.CheckOwner(lib.Path, l.writable()...); err != nil {
			fact.Refused = fmt.Sprintf("needs %v", err)
		}
	}
}

// cause is an error without the path, which the reader has been told.
func cause(err error) string {
	if path := new(fs.PathError); errors.As(err, &path) {
		if errors.Is(path.Err, os.ErrNotExist) {
			return "is gone"
		}
		return path.Err.Error()
	}
	return err.Error()
}

// realOutside follows the links of a name that a program passed. One that leads through /proc, /dev or /sys would mean what
// this process has of its own: its folder, its descriptors.
func realOutside(name string) (string, error) {
	if !filepath.IsAbs(name) {
		return "", fmt.Errorf("resolve %s: it begins at a folder that is not known", name)
	}
	real, rest := "/", name
	for links := 0; rest != ""; {
		var part string
		part, rest, _ = strings.Cut(strings.TrimLeft(rest, "/"), "/")
		switch part {
		case "", ".":
			continue
		case "..":
			real = filepath.Dir(real)
			continue
		}
		here := filepath.Join(real, part)
		if slices.Contains([]string{"/proc", "/dev", "/sys"}, here) {
			return "", fmt.Errorf("resolve %s: it leads through %s, where a name means something else for each process", name, here)
		}
		target, err := os.Readlink(here)
		switch {
		case errors.Is(err, unix.EINVAL): // no link
			real = here
			continue
		case err != nil:
			return "", err
		}
		if links++; links > 40 { // as the kernel
			return "", &fs.PathError{Op: "resolve", Path: name, Err: unix.ELOOP}
		}
		if filepath.IsAbs(target) {
			real = "/"
		}
		rest = target + "/" + rest
	}
	if _, err := os.Lstat(real); err != nil {
		return "", err
	}
	return real, nil
}
