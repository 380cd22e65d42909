package agent

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
)

const setIDs = unix.S_ISUID | unix.S_ISGID

// judgePath is about files. Which right was missing an errno does not say: the door follows from the place and from what
// the call wanted.
func (p *Policy) judgePath(v *verdict, c call, e *Event) {
	v.kind, v.path, v.old = event.FileDenied, p.resolve(e), p.oldName(c, e)
	mode, hasMode := modeArg(c.name, e)
	writes := writes(c.name, e)
	// Of a rename either name may be what must not be touched; a link leaves the old one alone.
	touches := func(is func(string) bool) bool {
		return writes && (is(v.path) || strings.HasPrefix(c.name, "rename") && is(v.old))
	}
	switch {
	case hasMode && mode&setIDs != 0:
		v.door, v.cause = "file-suid", p.ifHolds(causeSeccomp)
		return
	case strings.HasPrefix(c.name, "mknod"):
		v.door, v.cause = "file-fifo", p.ifHolds(causeLandlock)
		if e.Errno == unix.EPERM {
			v.cause = p.ifHolds(causeSeccomp) // a device, which needs a capability besides
		}
		return
	case touches(p.pinned):
		v.door = "exec-swap"
	case touches(p.protected) && !changesMeta(c.name):
		v.door = cmp.Or(p.protects(v.path), p.protects(v.old))
	case in(v.path, "/sys/fs/cgroup"):
		v.door = "cg-escape"
	case processDoor(v.path, e) != "":
		v.door = processDoor(v.path, e)
	case writes && (in(v.path, "/proc") || in(v.path, "/sys")):
		v.door = "file-proc"
	case changesMeta(c.name):
		v.door = "file-meta"
	case writes:
		v.door = "file-config"
	default:
		v.door = "file-secret"
	}
	v.cause = p.ifHolds(causeLandlock)
	if e.Errno == unix.EROFS || e.Errno == unix.EBUSY {
		v.cause = p.ifHolds(causeMount)
		if p.protected(v.path) || touches(p.protected) {
			v.cause = p.ifHolds(causeProtect)
		}
	}
}

// oldName is the name that a rename takes away and a link adds to. Where it begins at a folder of its own it stays as it was
// passed: the record has the new name's folder.
func (p *Policy) oldName(c call, e *Event) string {
	if e.More.Text == "" || c.spec.More == none {
		return ""
	}
	sameDir := c.spec.Dirfd == none || int32(e.Args[0]) == int32(e.Args[c.spec.Dirfd])
	if !strings.HasPrefix(e.More.Text, "/") && !(sameDir && e.Base.Text != "") {
		return e.More.Text
	}
	return p.resolve(&Event{Asked: e.More, Base: e.Base})
}

func (p *Policy) pinned(name string) bool {
	return slices.Contains(p.Exec, name) || slices.Contains(p.Libraries, name) || name != "" && name == p.Client
}

// processDoor is the door of a file in the folder of a process but the caller's own: what lies there is its memory, its
// descriptors, its root. Numbers are those of the caller's namespace, as far as it looks at its own /proc.
func processDoor(name string, e *Event) string {
	rest, ok := below(name, "/proc")
	if !ok || rest == "" {
		return ""
	}
	pid, file, _ := strings.Cut(rest[1:], "/")
	n, err := strconv.ParseInt(pid, 10, 32)
	if err != nil || file == "" || int(n) == e.Proc.NSPID {
		return ""
	}
	return doorOf(aboutTrace, int32(n))
}

func in(name, dir string) bool { _, ok := below(name, dir); return ok }

// writes says whether a call on a path would have changed something.
func writes(name string, e *Event) bool {
	return name != "open" && name != "openat" && name != "openat2" || openWrites(name, e)
}

func openWrites(name string, e *Event) bool {
	flags := e.Args[1]
	if name == "openat" {
		flags = e.Args[2]
	}
	if name == "openat2" {
		return false // behind a pointer
	}
	return flags&(unix.O_WRONLY|unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC) != 0
}

// modeArg is the mode that a call was given, where it reads one.
func modeArg(name string, e *Event) (uint64, bool) {
	created := func(flags, mode uint64) (uint64, bool) {
		return mode, flags&(unix.O_CREAT|unix.O_TMPFILE&^unix.O_DIRECTORY) != 0
	}
	switch name {
	case "chmod", "fchmod", "mkdir", "mknod", "creat":
		return e.Args[1], true
	case "fchmodat", "fchmodat2", "mkdirat", "mknodat":
		return e.Args[2], true
	case "open":
		return created(e.Args[1], e.Args[2])
	case "openat":
		return created(e.Args[2], e.Args[3])
	}
	return 0, false
}

func changesMeta(name string) bool {
	return strings.Contains(name, "chmod") || strings.Contains(name, "chown") || strings.Contains(name, "xattr") ||
		strings.HasPrefix(name, "utime") || name == "truncate"
}
