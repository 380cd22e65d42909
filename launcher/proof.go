package launcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/confine"
	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/launcher/pin"
	"github.com/sharness/sharness/launcher/protect"
	"github.com/sharness/sharness/launcher/stage"
	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// Proof makes a session one that sharness prove attacks. It is built as every session is; beside that its log has every
// denial on a line of its own, and its ids are reserved and not recorded, so that nothing stays. One may run at a time.
type Proof struct {
	User User // whose workspace it is, whoever the caller is

	// Without are layers to leave out behind the plan's back, to see which doors the others hold. Only the probe's own
	// session may lack any, and its self-probe is left out with them.
	Without []sidedoor.Layer
}

// Removable are the layers that a Proof can be without. The others are how a session is built and cannot be left out of
// it: the pid namespace (its sysctl would be the host's), descriptors and terminal, the server and what writes logs.
func Removable() []sidedoor.Layer {
	return []sidedoor.Layer{sidedoor.Landlock, sidedoor.View, sidedoor.Seccomp, sidedoor.Memfd, sidedoor.Net, sidedoor.Mount,
		sidedoor.UID, sidedoor.Cgroup, sidedoor.Rlimit, sidedoor.Env, sidedoor.Protect}
}

// ProofUID is the orchestrator's id of such a session, and BaitUID that of the user whom it attacks. The registry gives
// neither to anybody.
const (
	ProofUID = firstAgentUID + agentUIDs - 1
	BaitUID  = 1900300000
)

// selfProbe stands among the layers where the stage's own attempts are left out.
const selfProbe sidedoor.Layer = "self-probe"

// proofFold writes every denial: what was refused is counted one by one.
var proofFold = event.FoldOptions{All: true, Burst: 1 << 20}

func (p *Proof) lacks(l sidedoor.Layer) bool { return p != nil && slices.Contains(p.Without, l) }

// check refuses a session that would lack a layer with anything but our own probe in it: a file that has the hash of the one
// beside sharness. The manifest pins it, so that no other can be executed in its place.
func (p *Proof) check(m *manifest.Manifest) error {
	for _, l := range p.Without {
		if !slices.Contains(Removable(), l) {
			return refusef("prove: a session cannot be without %s", l)
		}
	}
	if len(p.Without) == 0 {
		return nil
	}
	i := slices.IndexFunc(m.Exec, func(e manifest.Exec) bool { return e.Path == m.Command[0] })
	for _, name := range []string{"sharness-probe", "sharness-probe-dynamic"} {
		path, err := Helper(name)
		if err != nil || i < 0 {
			continue
		}
		if sum, err := pin.Hash(path); err == nil && sum == m.Exec[i].SHA256 {
			return nil
		}
	}
	return refusef("prove: %s is not sharness's own probe, and no other may run with a layer left out", m.Command[0])
}

// decide makes what the session says of itself true.
func (p *Proof) decide(s *Session) {
	for i := range s.Decision.Layers {
		if l := &s.Decision.Layers[i]; p.lacks(l.Name) {
			l.Holds, l.Why = false, "left out by sharness prove"
		}
	}
}

// lacks says whether the session is to be without a layer: for sharness prove, or in a build that is broken on purpose.
func (s *Session) lacks(l sidedoor.Layer) bool { return s.proof.lacks(l) || broken(string(l)) }

// unchecked says whether the self-probe is left out: it would refuse the start, as it should.
func (s *Session) unchecked() bool {
	return s.proof != nil && len(s.proof.Without) > 0 || s.lacks(selfProbe)
}

// strip takes what a session lacks out of its finished plan, and returns the view that goes with it.
func (s *Session) strip(plan *stage.Plan, v *view) (*view, error) {
	if !slices.ContainsFunc(append(Removable(), selfProbe), s.lacks) {
		return v, nil
	}
	if s.unchecked() {
		plan.Probe = nil
	}
	if s.lacks(sidedoor.Mount) {
		v.close()
		var err error
		if v, err = s.hostView(plan, filepath.Dir(s.Workspace.Name())); err != nil {
			return nil, err
		}
	}
	var set, clear uint64
	switch {
	case s.lacks(sidedoor.View):
		clear = unix.MOUNT_ATTR_NOEXEC
	case s.lacks(sidedoor.Mount):
		set = unix.MOUNT_ATTR_NOEXEC
	}
	if err := s.setAttributes(plan, v, set, clear); err != nil {
		v.close()
		return nil, err
	}
	if s.lacks(sidedoor.Landlock) {
		plan.Landlock, plan.Outer = confine.Landlock{}, confine.Landlock{}
	}
	if s.lacks(sidedoor.Seccomp) {
		plan.Seccomp = nil
	}
	if s.lacks(sidedoor.Rlimit) {
		plan.Rlimits = nil
	}
	if s.lacks(sidedoor.Protect) {
		plan.Protected = nil
	}
	// Those of the network belong to its namespace, and would be the host's.
	plan.Sysctls = slices.DeleteFunc(plan.Sysctls, func(c stage.Sysctl) bool {
		return strings.HasPrefix(c.Path, "vm/") && s.lacks(sidedoor.Memfd) || strings.HasPrefix(c.Path, "net/") && s.lacks(sidedoor.Net)
	})
	return v, nil
}

// forget removes what a session leaves for the next one, or for its user: what was found in the workspace, and what was
// taken out of it. The folders go too when nothing else is in them. The host's lock is held.
func (p *Proof) forget(r *run) error {
	var errs []error
	if r.watcher != nil {
		errs = append(errs, r.watcher.record.write(&protect.Set{}), os.RemoveAll(r.watcher.dir))
	}
	for _, dir := range []string{protectedRoot, quarantineRoot, filepath.Dir(registryPath)} {
		_ = unix.Rmdir(dir) // stays where there is more
	}
	return errors.Join(errs...)
}

// hostView replaces the view of a plan by the host's own trees, as they are: everything exists, and what an ordinary user
// may write can be written. base is shown too, with the session's own folders as they always are. Folders that others use have
// a private tmpfs in their place.
func (s *Session) hostView(plan *stage.Plan, base string) (_ *view, err error) {
	v := &view{}
	defer func() {
		if err != nil {
			v.close()
		}
	}()
	for _, dir := range []string{"/usr", "/etc", base} {
		m, err := cloneMount(dir, clone{recursive: true})
		if err != nil {
			return nil, err
		}
		v.attach(m, dir, false)
	}
	for _, link := range rootLinks {
		if _, err := os.Readlink(link); err == nil {
			if err := v.link(link); err != nil {
				return nil, err
			}
		}
	}
	if err := v.devices(stage.Mount{Target: "/dev/shm", Fstype: "tmpfs", Data: "mode=1777", Set: attrData}); err != nil {
		return nil, err
	}
	for _, dir := range []string{"/tmp", "/var/tmp", "/run"} {
		v.mounts = append(v.mounts, stage.Mount{Target: dir, Fstype: "tmpfs", Data: "mode=1777"})
	}
	if err := s.ownAsUser(v); err != nil {
		return nil, err
	}
	// Pinned files stay what they are: executable, on mounts of their own.
	if err := s.pin(); err != nil {
		return nil, err
	}
	for _, e := range s.Manifest.Exec {
		s.attachPinned(v, e.Path, 0)
	}
	for _, l := range s.Manifest.Libraries {
		s.attachPinned(v, l.Path, 0)
	}
	plan.Mounts, plan.Files, plan.Links, plan.MaskProc, plan.ReadProc = v.mounts, nil, v.links, nil, nil
	plan.Landlock.Paths = slices.DeleteFunc(plan.Landlock.Paths, func(r confine.PathRule) bool { return below(r.Path, "/run") })
	return v, nil
}

// ownAsUser attaches the session's own folders with the right that the user has, whatever the manifest says.
func (s *Session) ownAsUser(v *view) error {
	ns, err := s.namespacesOf(s.UID)
	if err != nil {
		return err
	}
	for _, dir := range []*os.File{s.State, s.Workspace} {
		if dir == nil {
			continue
		}
		m, err := cloneAt(dir, ".", clone{userns: ns.disk})
		if err != nil {
			return err
		}
		v.attach(m, dir.Name(), false)
	}
	return nil
}

// setAttributes changes the attributes of every mount of a view, or of those at targets, but never those of the files
// that are pinned.
func (s *Session) setAttributes(plan *stage.Plan, v *view, set, clear uint64, targets ...string) error {
	if set == 0 && clear == 0 {
		return nil
	}
	for i := range plan.Mounts {
		m := &plan.Mounts[i]
		if len(targets) > 0 && !slices.Contains(targets, m.Target) || s.isPinned(m.Target) {
			continue
		}
		m.Set = m.Set&^clear | set
		if m.FD == 0 {
			continue
		}
		attr := unix.MountAttr{Attr_set: set, Attr_clr: clear}
		if err := unix.MountSetattr(int(v.fds[m.FD-stage.FirstFD].Fd()), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
			return fmt.Errorf("mount attributes of %s: %w", m.Target, err)
		}
	}
	return nil
}

// isPinned says whether a mount of the view is a file that may be executed: a pinned one, or the client.
func (s *Session) isPinned(path string) bool {
	for _, e := range s.Manifest.Exec {
		if e.Path == path {
			return true
		}
	}
	for _, l := range s.Manifest.Libraries {
		if l.Path == path {
			return true
		}
	}
	return strings.HasPrefix(path, "/run/sharness/")
}
