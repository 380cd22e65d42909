package launcher

import (
	"path/filepath"
	"slices"

	"github.com/sharness/sharness/launcher/stage"
	"golang.org/x/sys/unix"
)

// seen is a folder or file as it was at some moment: which one it is, and for a folder when names in it changed last.
type seen struct {
	path  string
	dev   uint64
	ino   uint64
	mtime unix.Timespec
}

func seeFD(fd int, path string) seen {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return seen{path: path}
	}
	return seen{path, st.Dev, st.Ino, unix.Timespec{}}
}

func see(path string) seen {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return seen{path: path}
	}
	return seen{path, st.Dev, st.Ino, st.Mtim}
}

// sources are the folders in which the names lie that a shared view was made from. A name that appears, goes or comes to
// mean another file there changes the time of its folder.
func sources(v *view) []seen {
	var dirs []string
	add := func(path string) {
		if dir := filepath.Dir(path); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, m := range v.mounts {
		if m.FD > 0 {
			add(m.Target)
		}
	}
	for _, l := range v.links {
		if !below(l.Path, "/run") && !below(l.Path, "/dev") {
			add(l.Path)
		}
	}
	out := make([]seen, 0, len(dirs))
	for _, dir := range dirs {
		if dir != "/dev" { // device files are the kernel's
			out = append(out, see(dir))
		}
	}
	return out
}

// unchanged says whether everything is as it was seen.
func unchanged(list []seen) bool {
	return !slices.ContainsFunc(list, func(s seen) bool { return see(s.path) != s })
}

// attached are the folders of an own view.
func attached(v *view) []seen {
	var out []seen
	for _, m := range v.mounts {
		if m.FD > 0 {
			out = append(out, seeFD(int(v.file(m).Fd()), m.Target))
		}
	}
	return out
}

// lateSteps are the steps and descriptors that attach an own view.
func lateSteps(v *view, protected *stage.Protected) ([]byte, []int, error) {
	var s stage.Steps
	var mounts []int
	for _, m := range v.mounts {
		if m.FD > 0 {
			s.Attach(len(mounts), m.Target)
			mounts = append(mounts, int(v.file(m).Fd()))
			continue
		}
		if err := s.Mount(m); err != nil {
			return nil, nil, err
		}
	}
	if err := s.Protect(protected); err != nil {
		return nil, nil, err
	}
	return s.Bytes(), mounts, nil
}
