package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sharness/sharness/launcher/filter"
	"github.com/sharness/sharness/launcher/host"
	"github.com/sharness/sharness/launcher/stage"
	"golang.org/x/sys/unix"
)

// commandEtc is what a command sees of /etc beyond etcNames: system-wide settings of developers'
// tools, but not those that may hold a token (npmrc, pip.conf, wgetrc, maven/settings.xml, R/Renviron.site). Debian's Maven and
// R do not start without some files that lie beside such a one.
var commandEtc = []string{
	"adduser.conf", "bash_completion.d", "gitattributes", "gitconfig", "gnuplotrc", "groff", "hostid", "lsb-release", "lynx",
	"maven/logging", "maven/m2.conf", "mke2fs.conf", "php", "profile.d", "R/ldpaths", "R/Makeconf", "R/Renviron", "R/repositories", "ruby", "rpc", "skel", "texmf",
}

// sharedView builds what all commands see: system trees with their programs, and the folders that each has for itself.
// Which id a command has, and what lies in the user's own folders, is not of it.
func (s *Session) sharedView() (*view, error) {
	m, v := s.Manifest, &view{}
	ok := false
	defer func() {
		if !ok {
			v.close()
		}
	}()
	v.identity(s.shown(), viewHome, viewBash, nil)
	// The client is a shell in the orchestrator's view; a command that starts it by that path gets the shell itself.
	v.links = append(v.links, stage.Link{Path: viewClient, Target: viewBash})
	if err := v.trees(m.Sandbox.Read, attrBase|unix.MOUNT_ATTR_RDONLY, accessTree); err != nil {
		return nil, err
	}
	if err := v.etc(); err != nil {
		return nil, err
	}
	for _, name := range commandEtc {
		path := "/etc/" + name
		if _, err := os.Lstat(path); err != nil {
			continue
		}
		if err := v.tree(path, attrSystem, 0); err != nil {
			return nil, err
		}
	}
	// One tmpfs for all private folders: each further one would cost 5 KiB of the kernel's and more to mount than a bind does.
	v.mounts = append(v.mounts, tmpfs(viewOwn, m.Sandbox.Tmp, 0o755, attrBase))
	private := func(dir string, mode uint32, attr uint64) stage.Mount {
		return stage.Mount{Target: dir, Bind: viewOwn + "/" + strings.ReplaceAll(dir[1:], "/", "-"), Mode: mode, Set: attr}
	}
	if err := v.devices(private("/dev/shm", 0o1777, attrData)); err != nil {
		return nil, err
	}
	const access = accessWrite | unix.LANDLOCK_ACCESS_FS_EXECUTE
	for _, dir := range []string{"/tmp", "/var/tmp"} {
		v.private(s, private(dir, 0o1777, attrBase), access)
	}
	v.private(s, private(viewHome, 0o700, attrBase), access)
	v.allow("/", unix.LANDLOCK_ACCESS_FS_READ_DIR)
	v.allow("/run/sharness", accessRead)
	ok = true
	return v, nil
}

// ownView builds what a command sees of the user's folders, mapped to its id: the workspace, and of the state only what
// is shared. The slot's uid is a stranger to every other command, to the orchestrator and to the server.
func (s *Session) ownView(uid int) (*view, error) {
	v := &view{}
	ns, err := s.namespacesOf(uid)
	if err != nil {
		return nil, err
	}
	mnt, err := cloneAt(s.Workspace, ".", clone{set: attrBase, userns: ns.disk})
	if err != nil {
		return nil, err
	}
	v.attach(mnt, s.Workspace.Name(), false)
	v.allow(s.Workspace.Name(), accessShared|unix.LANDLOCK_ACCESS_FS_EXECUTE)
	if err := s.shareState(v, ns.disk); err != nil {
		v.close()
		return nil, err
	}
	return v, nil
}

// shareState attaches the shared subpaths of the state, writable and without following links, hides what they must not
// show, and freezes what earlier commands left where the manifest says so.
func (s *Session) shareState(v *view, ns *os.File) error {
	for _, rel := range s.Manifest.Sandbox.Share {
		path, err := s.statePath(rel)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(s.State.Name(), path)
		if err != nil {
			return err
		}
		mnt, err := cloneAt(s.State, rel, clone{set: attrData | unix.MOUNT_ATTR_NOSYMFOLLOW, userns: ns})
		if err != nil {
			return fmt.Errorf("sandbox.share %s: %w", rel, err)
		}
		v.attach(mnt, path, false)
		v.allow(path, accessShared)
	}
	for _, rel := range s.Manifest.Sandbox.Hide {
		path, err := s.statePath(rel)
		if err != nil {
			return err
		}
		v.mounts = append(v.mounts, stage.Mount{Target: path, Fstype: "tmpfs", Data: "mode=0555,size=4k,nr_inodes=2", Set: attrSystem})
	}
	if s.State != nil {
		if err := s.protectShared(v); err != nil {
			return err
		}
	}
	for _, rel := range s.Manifest.Sandbox.Freeze {
		if err := s.freeze(v, rel); err != nil {
			return err
		}
	}
	return nil
}

// protectShared makes what state.protect names read-only where a share shows it, and its parents mount points, as in the
// orchestrator's view.
func (s *Session) protectShared(v *view) error {
	shown := func(path string) bool {
		return slices.ContainsFunc(v.mounts, func(m stage.Mount) bool { return m.FD > 0 && path != m.Target && below(path, m.Target) })
	}
	parents, err := s.protectedParents()
	if err != nil {
		return err
	}
	for _, dir := range parents {
		if shown(dir) {
			v.bind(dir, 0, false)
		}
	}
	for _, rel := range s.Manifest.State.Protect {
		path, err := s.statePath(rel)
		if err != nil {
			return err
		}
		fi, err := s.protectedState(rel)
		if err != nil {
			return err
		}
		// A share may be the very file or folder.
		if shown(path) || slices.ContainsFunc(v.mounts, func(m stage.Mount) bool { return m.Target == path }) {
			v.bind(path, unix.MOUNT_ATTR_RDONLY, !fi.IsDir())
		}
	}
	return nil
}

// maxFrozen bounds the mounts of one frozen folder: beyond it the whole folder is read-only.
const maxFrozen = 64

// freeze makes the files that lie in a shared folder read-only for this command. It reads names of a folder that
// commands write; the mounts are made inside the view, by name, without following links.
func (s *Session) freeze(v *view, rel string) error {
	path, err := s.statePath(rel)
	if err != nil {
		return err
	}
	rel, err = filepath.Rel(s.State.Name(), path)
	if err != nil {
		return err
	}
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(int(s.State.Fd()), rel, &how)
	if err != nil {
		return fmt.Errorf("sandbox.freeze %s: %w", rel, err)
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	entries, err := dir.ReadDir(maxFrozen + 1)
	if len(entries) > maxFrozen {
		v.bind(path, unix.MOUNT_ATTR_RDONLY, false)
		return nil
	}
	if err != nil && len(entries) > 0 {
		return fmt.Errorf("sandbox.freeze %s: %w", rel, err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			// Another command may remove it before it is bound; then there is nothing to freeze.
			file := filepath.Join(path, e.Name())
			v.mounts = append(v.mounts, stage.Mount{Target: file, Bind: file, Set: unix.MOUNT_ATTR_RDONLY, IsFile: true, Absent: true})
		}
	}
	return nil
}

// slots are the uids of running commands, each with its user namespaces, made on first use and kept for the session.
type slots struct {
	used [slotBlock]bool
	next int
}

// warmSlots are used before all others, in turn: a new slot costs two user namespaces, and what a dying command left behind
// in the kernel has a while to go before its uid is used again.
const warmSlots = 16

// take returns a free slot.
func (sl *slots) take() (int, bool) {
	for range warmSlots {
		n := sl.next
		sl.next = (sl.next + 1) % warmSlots
		if !sl.used[n] {
			sl.used[n] = true
			return n, true
		}
	}
	for n := warmSlots; n < slotBlock; n++ {
		if !sl.used[n] {
			sl.used[n] = true
			return n, true
		}
	}
	return 0, false
}

func (sl *slots) free(n int) { sl.used[n] = false }

// commandPlan is the plan of all commands of a session. The views' descriptors are passed by the first.
func (s *Session) commandPlan(v, own *view) *stage.Plan {
	id := s.shown()
	v.rules = append(v.rules, own.rules...)
	p := &stage.Plan{
		Hostname: viewHostname,
		Mounts:   v.mounts, Files: v.files, Links: v.links, Owned: []string{viewHome},
		Inside: &stage.Inside{UID: uint32(id.uid), GID: uint32(id.gid)},
		// All of it: its Landlock layer lets a command write nothing there anyway, and one mount is made faster than several.
		Sysctls: s.sysctls(), MaskProc: append(slices.Clone(maskedProc), viewOwn+"/"), ReadProc: []string{"/proc"},
		Rlimits: s.commandRlimits(), OOMScore: firstVictim,
		Outer: s.outer(),
		// Ports are not bounded in a namespace that holds nothing but loopback.
		Landlock: s.landlockOf(confineLayer(v)),
		Seccomp:  s.commandFilter,
		Carried:  min(filter.Inherited, len(s.commandFilter)),
		CwdBelow: []string{s.Workspace.Name()},
		Stdio:    [3]int{stage.StdioNull, stage.StdioNull, stage.StdioNull},
	}
	for _, m := range own.mounts {
		if m.FD > 0 {
			p.Late = append(p.Late, stage.Mount{Target: m.Target, FD: v.pass(dup(own.file(m)))})
		}
	}
	return p
}

// commandChecks is the self-probe that comes before the first command of a session: the others differ in ids alone.
func (s *Session) commandChecks() []stage.Check {
	var checks []stage.Check
	if s.Decision.Landlock.Scoped {
		checks = append(checks, stage.Check{Door: "pid1", Try: stage.TrySignalOne})
	}
	checks = append(checks, []stage.Check{
		{Door: "ns", Try: stage.TryNewUser},
		{Door: "ns", Try: stage.TryMount},
		{Door: "kernel", Try: stage.TryIOUring},
		{Door: "kernel", Try: stage.TryBPF},
		{Door: "net-family", Try: stage.TryVsock},
		{Door: "net-mptcp", Try: stage.TryMPTCP},
		{Door: "ptrace", Try: stage.TryPtrace},
		{Door: "setid", Try: stage.TryCaps},
		{Door: "sig", Try: stage.TryUID, Path: strconv.Itoa(s.User.UID)},
		{Door: "core-helper", Try: stage.TryCore},
		{Door: "file-config", Try: stage.TryWrite, Path: "/etc/hosts"},
		{Door: "file-proc", Try: stage.TryWrite, Path: "/proc/sys/kernel/core_pattern"},
		{Door: "file-proc", Try: stage.TryReadOnly, Path: "/proc/sys"},
		{Door: "file-suid", Try: stage.TrySetID},
		{Door: "file-fifo", Try: stage.TryFifo, Path: s.Workspace.Name()},
		{Door: "net-udp", Try: stage.TryNetNS, Path: s.hostNet},
	}...)
	if s.Features.MemfdNoexec.State == host.Yes {
		checks = append(checks, stage.Check{Door: "exec-memfd", Try: stage.TryMFDExec},
			stage.Check{Door: "file-proc", Try: stage.TryWrite, Path: "/proc/sys/vm/memfd_noexec"})
	}
	if fi, err := os.Stat("/usr"); err == nil && fi.IsDir() {
		checks = append(checks, stage.Check{Door: "file-meta", Try: stage.TryReadOnly, Path: "/usr"})
	}
	return slices.Clip(checks)
}
