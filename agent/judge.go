package agent

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
)

// What may have refused a call, in events.
const (
	causeLandlock = "landlock"
	causeView     = "view"
	causeSeccomp  = "seccomp"
	causeNet      = "net"     // nothing but loopback exists in the network namespace
	causeMount    = "mount"   // a mount that is read-only, or upon the name
	causeProtect  = "protect" // such a mount for a protected name
	causeDAC      = "dac"
	causeUnknown  = "unknown"
)

// verdict is what a denial means. Door is empty where the catalogue has none.
type verdict struct {
	kind    event.Type
	door    string
	cause   string
	target  string // what was asked for, when that is not the path
	path    string // the path asked for, made absolute
	old     string // the other name of a rename or link, the same way
	blocker string
	probe   bool // a question, not an attempt: signal 0, AT_EXECVE_CHECK
}

// judge explains one denial by policy. It is pure.
func (p *Policy) judge(c call, e *Event) verdict {
	v := verdict{kind: event.SyscallDenied, cause: causeUnknown}
	switch c.topic {
	case aboutExec:
		p.judgeExec(&v, e)
	case aboutMap:
		p.judgeMap(&v, e)
	case aboutMemfd:
		v.kind, v.door = event.MemfdDenied, "exec-memfd"
		v.cause = p.ifHolds(causeSeccomp)
	case aboutSignal, aboutTrace, aboutProcess:
		p.judgeProcess(&v, c, e)
	case aboutSpace:
		v.kind, v.door, v.cause = event.NSDenied, "ns", p.ifHolds(causeSeccomp)
		v.path, v.target = p.pathOf(c, e), spaceFlags(c.name, e)
	case aboutKernel:
		v.door, v.cause = "kernel", p.ifHolds(causeSeccomp)
		v.path = p.pathOf(c, e)
	case aboutIDs:
		v.door, v.cause = "setid", causeDAC
	case aboutLimit:
		p.judgeLimit(&v, c, e)
	case aboutFcntl:
		judgeFcntl(&v, e)
	case aboutIoctl:
		judgeIoctl(&v, e)
	case aboutSocket, aboutNet:
		p.judgeNet(&v, c, e)
	case aboutMode, aboutPath:
		p.judgePath(&v, c, e)
	}
	if e.WideNR {
		v.door = "exec-abi" // to get past what compares the number
	}
	return v
}

func (p *Policy) ifHolds(cause string) string {
	if p.holds(cause) {
		return cause
	}
	return causeUnknown
}

func (p *Policy) pathOf(c call, e *Event) string {
	if c.spec.Path < 0 && e.Base.Text == "" {
		return ""
	}
	return p.resolve(e)
}

// spaceFlags says which namespaces were asked for.
func spaceFlags(name string, e *Event) string {
	switch name {
	case "unshare", "clone":
		return "flags 0x" + hex(e.Args[0]&0xffffffff)
	case "setns":
		return "type 0x" + hex(e.Args[1]&0xffffffff)
	}
	return ""
}

const atExecveCheck = 0x10000

func (p *Policy) judgeExec(v *verdict, e *Event) {
	v.kind, v.door = event.ExecDenied, "exec-direct"
	v.path = p.resolve(e)
	v.blocker = v.path
	v.probe = e.NR == unix.SYS_EXECVEAT && e.Args[4]&atExecveCheck != 0
	switch {
	case memfd(e):
		v.door = "exec-memfd"
	case p.loader(v.path):
		v.door = "exec-ldso"
	case p.writable(v.path):
		v.door = "exec-workspace"
	}
	pinned := slices.Contains(p.Exec, v.path)
	switch {
	case e.Errno == unix.EPERM: // an exec is refused with EACCES by all but a filter, and ours looks for this alone
		v.cause = causeUnknown // a filter of the program's own
		if e.NR == unix.SYS_EXECVEAT && e.Args[4]&unix.AT_EMPTY_PATH != 0 {
			v.cause = p.ifHolds(causeSeccomp)
		}
	case pinned && p.missing(v.path) != "":
		// The event names the script or the program; what is not allowed is what it starts with.
		v.blocker = p.missing(v.path)
		v.cause = p.closesExec()
	case pinned:
		v.cause = causeUnknown
	default:
		v.cause = p.closesExec()
	}
}

// closesExec: a noexec mount is asked before Landlock is (fs/namei.c, may_open before security_file_open).
func (p *Policy) closesExec() string {
	for _, layer := range []string{causeView, causeLandlock} {
		if p.holds(layer) {
			return layer
		}
	}
	return causeDAC
}

func (p *Policy) judgeMap(v *verdict, e *Event) {
	v.kind, v.door = event.ExecDenied, "exec-inject"
	v.path = e.Base.Text
	v.blocker = v.path
	switch {
	case p.loader(e.Exe.Text):
		v.door = "exec-ldso"
	case memfd(e):
		v.door = "exec-memfd"
	}
	switch {
	case e.NoExec:
		v.cause = causeView
	case v.path == "" && p.holds(causeSeccomp):
		v.cause = causeUnknown
	}
}

// memfd: unlinked and without a place in any tree.
func memfd(e *Event) bool {
	if e.Base.Detached && e.Image != nil && e.Image.Links == 0 {
		return true
	}
	return strings.HasPrefix(e.Base.Text, "/memfd:")
}

func (p *Policy) judgeLimit(v *verdict, c call, e *Event) {
	resource, other := uint32(e.Args[0]), false // the kernel reads 32 bits too
	if c.name == "prlimit64" {
		resource, other = uint32(e.Args[1]), int32(e.Args[0]) != 0
	}
	v.target = "limit " + number(uint64(resource))
	switch {
	case other:
		v.door, v.target = aimedAt(int32(e.Args[0])), pidTarget(int32(e.Args[0]))
		v.kind = event.SignalDenied
		v.cause = p.ifHolds(causeSeccomp)
	case resource == unix.RLIMIT_CORE:
		v.door, v.cause = "core-helper", p.ifHolds(causeSeccomp)
	default:
		v.cause = causeDAC
	}
}

func judgeFcntl(v *verdict, e *Event) {
	v.path = e.Base.Text
	v.target = "command " + number(e.Args[1]&0xffffffff)
	if cmd := int32(e.Args[1]); cmd == unix.F_SETLEASE || cmd == unix.F_NOTIFY {
		v.kind, v.door, v.cause = event.FileDenied, "file-lease", causeSeccomp
	}
}

func judgeIoctl(v *verdict, e *Event) {
	v.path = e.Base.Text
	request := e.Args[1] & 0xffffffff
	v.target = "request 0x" + hex(request)
	switch request {
	case unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCCONS, unix.TIOCSETD:
		v.door, v.cause = "tty", causeSeccomp
	case unix.SIOCGIFBR, unix.SIOCSIFBR, unix.SIOCBRADDBR, unix.SIOCBRDELBR, unix.SIOCBRADDIF, unix.SIOCBRDELIF,
		0x8982, 0x8983: // SIOCGIFVLAN, SIOCSIFVLAN
		v.door, v.cause = "kernel", causeSeccomp
	}
}
