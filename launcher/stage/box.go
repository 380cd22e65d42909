package stage

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/sharness/sharness/internal/confine"
	"golang.org/x/sys/unix"
)

// voidDir is an empty folder of a command's view, which sharness-box masks others with.
const voidDir = "/run/sharness/void"

// Box makes the part of the view that all commands of a session share and becomes sharness-box in it. The process was
// started in a mount namespace of its own; StatusFD is the socket that sharness-box takes orders from. It returns only
// on failure.
func Box() int {
	runtime.LockOSThread()
	unix.CloseOnExec(StatusFD)
	plan, err := readPlan(PlanFD)
	if err == nil {
		err = becomeBox(plan)
	}
	return fail(err)
}

func becomeBox(p *Plan) error {
	if err := confine.CloseAbove(p.descriptors()...); err != nil {
		return err
	}
	// Nothing else may take the number at which sharness-box finds its plan.
	if err := unix.Dup3(StatusFD, PlanFD, unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	// By its descriptor sharness-box comes back from the sandboxes whose namespaces it enters.
	home, err := unix.Open("/proc/self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	if err := newRoot(); err != nil {
		return err
	}
	unix.Umask(0o022)
	if err := sharedView(p); err != nil {
		return err
	}
	if err := resetSignals(); err != nil {
		return err
	}
	data, keep, err := p.boxPlan(home)
	if err != nil {
		return err
	}
	memfd, err := SealedMemfd("box", data)
	if err != nil {
		return err
	}
	if err := unix.Dup3(memfd, PlanFD, 0); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	keep = append(keep, PlanFD, StatusFD)
	if err := confine.CloexecAbove(keep...); err != nil {
		return err
	}
	for _, fd := range keep {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("keep descriptor %d: %w", fd, err)
		}
	}
	return execFD(p.Box, "sharness-box")
}

// execFD executes a program that is in no view.
func execFD(fd int, name string) error {
	argv0, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	argv, env, empty := []*byte{argv0, nil}, []*byte{nil}, []byte{0}
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(fd), uintptr(unsafe.Pointer(&empty[0])), uintptr(unsafe.Pointer(&argv[0])),
		uintptr(unsafe.Pointer(&env[0])), unix.AT_EMPTY_PATH, 0)
	runtime.KeepAlive(argv)
	return fmt.Errorf("exec %s: %w", name, errno)
}

// sharedView fills the new root and closes it. What each sandbox makes for itself lies on mounts of its own.
func sharedView(p *Plan) error {
	files := append(slices.Clone(p.Files), File{Path: voidDir + "/", Mode: 0o555})
	if err := writeFiles(files, p.Links); err != nil {
		return err
	}
	for _, m := range p.Mounts {
		if m.FD == 0 { // each sandbox makes its own
			if err := makePoint(m.Target, false); err != nil {
				return err
			}
			continue
		}
		if err := attach(m); err != nil {
			return err
		}
	}
	// What masks a folder keeps this attribute.
	if err := attach(Mount{Target: voidDir, Bind: voidDir, Set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return err
	}
	for _, m := range p.Late {
		if p.own(m.Target) == "" {
			if err := makePoint(m.Target, m.IsFile); err != nil {
				return err
			}
		}
	}
	return sealRoot()
}

// own is the mount of a sandbox's own that a path lies on, or nothing.
func (p *Plan) own(path string) string {
	best := ""
	for _, m := range p.Mounts {
		if m.FD == 0 && len(m.Target) > len(best) && (path == m.Target || strings.HasPrefix(path, m.Target+"/")) {
			best = m.Target
		}
	}
	return best
}

// boxPlan is the plan of sharness-box (its plan.h), and the descriptors that it names.
func (p *Plan) boxPlan(home int) (data []byte, keep []int, err error) {
	if p.Inside == nil {
		return nil, nil, errors.New("plan: no ids for the inside of a sandbox")
	}
	outer, err := p.Outer.Ruleset()
	if err != nil {
		return nil, nil, fmt.Errorf("outer domain: %w", err)
	}
	// Every file is denied to pid 1; no scope, since it must signal the target (dropInit).
	deny, err := confine.Landlock{ABI: p.Landlock.ABI, FS: true, Net: p.Landlock.Net}.Ruleset()
	if err != nil {
		return nil, nil, err
	}
	fs, net, scoped, err := p.Landlock.Handled()
	if err != nil {
		return nil, nil, err
	}
	var s Steps
	rules, err := p.boxSteps(&s)
	if err != nil {
		return nil, nil, err
	}
	if len(p.CwdBelow) != 1 || len(p.CwdBelow[0]) >= maxPath || len(p.Hostname) >= maxHostname {
		return nil, nil, errors.New("plan: folder or name of a command is too long, or missing")
	}
	data = append(data, p.Hostname...)
	data = append(data, make([]byte, maxHostname-len(p.Hostname))...)
	below := strings.TrimSuffix(p.CwdBelow[0], "/")
	data = append(data, below...)
	data = append(data, make([]byte, maxPath-len(below))...)
	for _, v := range []uint64{fs, net, scoped} {
		data = binary.NativeEndian.AppendUint64(data, v)
	}
	attr := 24
	if p.Landlock.ABI == 0 {
		attr = 0
	}
	for _, v := range []uint32{uint32(attr), uint32(int32(outer)), uint32(int32(deny)), uint32(int32(home)), p.Inside.UID, p.Inside.GID} {
		data = binary.NativeEndian.AppendUint32(data, v)
	}
	data = append(data, s.Bytes()...)
	keep = slices.DeleteFunc(append(rules, outer, deny, home), func(fd int) bool { return fd < 0 })
	return data, keep, nil
}

const (
	maxHostname = 64
	maxPath     = unix.PathMax
)

// boxSteps are the steps of each sandbox, in the order of start.
func (p *Plan) boxSteps(s *Steps) (rules []int, err error) {
	for _, m := range p.Mounts {
		if m.FD != 0 {
			continue
		}
		if err := s.Mount(m); err != nil {
			return nil, err
		}
	}
	for _, path := range p.Owned {
		s.add(opOwner, 0, 0, path)
	}
	for _, m := range p.Late {
		s.points(p.own(m.Target), m.Target)
	}
	if p.OOMScore != "" {
		s.add(opSysctl, 0, 0, "/proc/self/oom_score_adj", p.OOMScore)
	}
	// Sysctls before the masks: behind them they cannot be written.
	for _, c := range p.Sysctls {
		s.add(opSysctl, 0, 0, "/proc/sys/"+c.Path, c.Value)
	}
	for _, path := range p.MaskProc {
		name, folder := strings.CutSuffix(path, "/")
		kind := uint64(0)
		if folder {
			kind = 1
		}
		s.add(opMask, kind, 0, name)
	}
	for _, path := range p.ReadProc {
		s.add(opSeal, 0, 0, path)
	}
	for _, r := range p.Landlock.Paths {
		fd, err := p.rule(s, r)
		if err != nil {
			return nil, err
		}
		rules = append(rules, fd)
	}
	for _, r := range p.Rlimits {
		lim, err := r.within()
		if err != nil {
			return nil, err
		}
		own := uint64(0)
		if r.Resource == unix.RLIMIT_CORE { // the filters that sharness-box carries let nobody set it
			own = 1
		}
		s.raw(opRlimit, uint64(r.Resource), own, string(binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, lim.Cur), lim.Max)))
	}
	for i, f := range p.Seccomp {
		own := uint64(0)
		if i < p.Carried {
			own = 1
		}
		s.raw(opFilter, uint64(len(f)), own, string(f))
	}
	return rules, nil
}

// points makes the folders on the way to a mount point that lies on a mount of the sandbox's own.
func (s *Steps) points(own, target string) {
	if own == "" {
		return
	}
	for i := len(own) + 1; i < len(target); i++ {
		if target[i] == '/' {
			s.add(opMkdir, 0o755, 0, target[:i])
		}
	}
	if target != own {
		s.add(opMkdir, 0o755, 0, target)
	}
}

// rule adds a Landlock rule. It is bound to the folder itself: one of the shared view, one that is attached late, or one
// that each sandbox makes and opens by its path.
func (p *Plan) rule(s *Steps, r confine.PathRule) (int, error) {
	for _, m := range p.Mounts {
		if m.FD != 0 || m.Target != r.Path {
			continue
		}
		access, err := p.Landlock.Rights(r, true)
		if err != nil {
			return -1, err
		}
		s.add(opRule, access, ^uint64(0), r.Path)
		return -1, nil
	}
	fd := -1
	for _, m := range p.Late {
		if m.Target == r.Path {
			fd = m.FD
		}
	}
	if fd < 0 {
		var err error
		if fd, err = unix.Open(r.Path, unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
			return -1, fmt.Errorf("landlock: open %s: %w", r.Path, err)
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, fmt.Errorf("landlock: look at %s: %w", r.Path, err)
	}
	access, err := p.Landlock.Rights(r, st.Mode&unix.S_IFMT == unix.S_IFDIR)
	if err != nil {
		return -1, err
	}
	s.add(opRule, access, uint64(fd), r.Path)
	return fd, nil
}

// Probe is the self-probe of a sandbox: its target, executed once in a session with the checks as its argument. What it
// finds open it says on its standard output, and nothing else.
func Probe(checks string) int {
	var list []Check
	err := json.Unmarshal([]byte(checks), &list)
	for i := 0; err == nil && i < len(list); i++ {
		err = list[i].run()
	}
	if err != nil {
		_, _ = os.Stdout.WriteString(err.Error()) // whoever reads it sees the status too
		return 1
	}
	return 0
}
