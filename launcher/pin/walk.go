package pin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// walk collects what one or several programs need.
type walk struct {
	Options
	exec      map[string]manifest.Role
	libraries map[string]bool
	late      map[string]bool // those of libraries that no program lists
	links     []string
	warnings  []string
	loaders   map[string]*loader // by resolved path of PT_INTERP
}

func newWalk(o Options) *walk {
	return &walk{Options: o, exec: map[string]manifest.Role{}, libraries: map[string]bool{}, late: map[string]bool{}, loaders: map[string]*loader{}}
}

// maxDepth is how often the kernel lets one program lead to another interpreter before it answers ELOOP.
const maxDepth = 5

// image follows one program and returns its resolved path.
func (w *walk) image(path string, role manifest.Role, depth int) (string, error) {
	real, err := w.resolve(path)
	if err != nil {
		return "", err
	}
	if depth > maxDepth {
		return "", fmt.Errorf("%s: more than %d interpreters in a row: %w", real, maxDepth, unix.ELOOP)
	}
	if _, known := w.exec[real]; known {
		return real, nil
	}
	f, err := Open(real)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := w.mayExec(f); err != nil {
		return "", err
	}
	head := make([]byte, headBytes)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return "", err
	}
	head = head[:n]
	switch {
	case bytes.HasPrefix(head, []byte("#!")):
		if role == manifest.RoleProgram {
			role = manifest.RoleScript
		}
		w.exec[real] = role
		return real, w.script(real, head, depth)
	case bytes.HasPrefix(head, []byte("\x7fELF")):
		w.exec[real] = role
		w.warn(path, real)
		return real, w.elf(f, real, depth)
	}
	return "", fmt.Errorf("%s: neither ELF nor #! (a script begins with the path of its interpreter, as #!/bin/sh does): %w", real, unix.ENOEXEC)
}

// resolve returns the path without symlinks, and notes the links on the way.
func (w *walk) resolve(path string) (string, error) {
	hops, err := hops(path)
	if err != nil {
		return "", err
	}
	w.links = append(w.links, hops[:len(hops)-1]...)
	return hops[len(hops)-1], nil
}

// hops lists the places a path leads through: each with its folder resolved, all but the last a symlink.
func hops(path string) ([]string, error) {
	var all []string
	for range 40 { // MAXSYMLINKS of the kernel
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		here := filepath.Join(dir, filepath.Base(path))
		all = append(all, here)
		target, err := os.Readlink(here)
		if errors.Is(err, unix.EINVAL) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if path = target; !filepath.IsAbs(target) {
			path = dir + "/" + target
		}
	}
	return nil, &fs.PathError{Op: "resolve", Path: path, Err: unix.ELOOP}
}

// mayExec refuses files with no execute bit, and those that would bring privileges of their own.
func (w *walk) mayExec(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode()&0o111 == 0 {
		return &fs.PathError{Op: "exec", Path: f.Name(), Err: fs.ErrPermission}
	}
	if w.Privileged {
		return nil
	}
	return unprivileged(f)
}

// unprivileged refuses set-uid, set-gid and file capabilities. They have no effect inside (no_new_privs, nosuid); whoever
// pins such a file expects one, and should be told.
func unprivileged(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		return fmt.Errorf("%s: set-uid or set-gid, which has no effect inside", f.Name())
	}
	switch _, err := unix.Fgetxattr(int(f.Fd()), "security.capability", nil); err {
	case nil:
		return fmt.Errorf("%s: has file capabilities, which have no effect inside", f.Name())
	case unix.ENODATA, unix.EOPNOTSUPP:
		return nil
	default:
		return &fs.PathError{Op: "fgetxattr security.capability", Path: f.Name(), Err: err}
	}
}

// multicall are binaries that are many programs in one: who may start one may start them all (exec-applet).
var multicall = []string{"busybox", "toybox", "coreutils", "sbase-box", "ubase-box", "uutils"}

var shells = []string{"sh", "bash", "dash", "zsh", "fish", "ksh", "mksh", "ash", "tcsh", "csh"}

// interpreters run whatever they are given, as shells do (exec-interp). A digit or a point may follow the name.
var interpreters = []string{"python", "perl", "ruby", "node", "nodejs", "bun", "deno", "lua", "luajit", "php", "guile", "tclsh", "java", "Rscript"}

func (w *walk) warn(asked, real string) {
	for _, base := range []string{filepath.Base(real), filepath.Base(asked)} {
		base = strings.TrimSuffix(base, ".static")
		if slices.Contains(multicall, base) {
			w.warnings = append(w.warnings, fmt.Sprintf("%s is many programs in one: pinning it allows all of them", real))
			return
		}
		if slices.Contains(shells, base) {
			w.warnings = append(w.warnings, fmt.Sprintf("%s is a shell: what runs in it does not go through the bash-server", real))
			return
		}
		if slices.Contains(interpreters, strings.TrimRight(base, "0123456789.-")) {
			w.warnings = append(w.warnings, fmt.Sprintf("%s is an interpreter, and pinning it pins its language: any program in it runs with the agent's own reach", real))
			return
		}
	}
}
