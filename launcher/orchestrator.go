package launcher

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sharness/sharness/internal/confine"
	"github.com/sharness/sharness/launcher/host"
	"github.com/sharness/sharness/launcher/pin"
	"github.com/sharness/sharness/launcher/protect"
	"github.com/sharness/sharness/launcher/stage"
	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// orchestratorView builds what the orchestrator sees. The trees come first, the pinned files and the client upon them
// last, so that nothing covers what may be executed.
func (s *Session) orchestratorView(hosts []hostEntry) (*view, error) {
	m, v := s.Manifest, &view{queried: s.learn != nil}
	ok := false
	defer func() {
		if !ok {
			v.close()
		}
	}()
	v.identity(s.shown(), s.home(), m.Shell, hosts)
	trees, attr, access := s.systemTrees()
	if err := v.trees(trees, attr, access); err != nil {
		return nil, err
	}
	if err := v.etc(); err != nil {
		return nil, err
	}
	private := func(dir string) stage.Mount { return tmpfs(dir, m.Limits.Tmp, 0o1777, attrData) }
	if err := v.devices(private("/dev/shm")); err != nil {
		return nil, err
	}
	for _, dir := range []string{"/tmp", "/var/tmp"} {
		v.private(s, private(dir), accessWrite)
	}
	if err := s.addOwnFolders(v); err != nil {
		return nil, err
	}
	for _, e := range m.Exec {
		s.attachPinned(v, e.Path, accessExec)
	}
	for _, l := range m.Libraries {
		s.attachPinned(v, l.Path, accessRead)
	}
	if err := s.addClient(v); err != nil {
		return nil, err
	}
	if err := v.commandLink(m.Command[0]); err != nil {
		return nil, err
	}
	// Names are no secret in a view that shows nothing unneeded, and agents list the parents of their folders.
	v.allow("/", unix.LANDLOCK_ACCESS_FS_READ_DIR)
	ok = true
	return v, nil
}

// home is HOME of the orchestrator.
func (s *Session) home() string {
	if s.State != nil {
		return s.State.Name()
	}
	return "/tmp"
}

// addOwnFolders adds state and workspace as idmapped binds: the domain's uid inside, the user's on disk.
func (s *Session) addOwnFolders(v *view) error {
	m := s.Manifest
	ns, err := s.namespacesOf(s.UID)
	if err != nil {
		return err
	}
	if s.State != nil {
		mnt, err := cloneAt(s.State, ".", clone{set: attrData, userns: ns.disk})
		if err != nil {
			return err
		}
		v.attach(mnt, s.State.Name(), false)
		v.allow(s.State.Name(), accessShared)
		if err := s.addShares(v); err != nil {
			return err
		}
	}
	attr, access := uint64(attrData), uint64(accessShared)
	if m.Workspace.Orchestrator == manifest.AccessRead {
		attr, access = attrSystem, accessRead
	}
	mnt, err := cloneAt(s.Workspace, ".", clone{set: attr, userns: ns.disk})
	if err != nil {
		return err
	}
	v.attach(mnt, s.Workspace.Name(), false)
	v.allow(s.Workspace.Name(), access)
	return nil
}

// addShares gives the folders of the state that commands see too their own attributes: links that a command planted in
// them are not followed. What is hidden from commands is where the orchestrator may make its sockets.
func (s *Session) addShares(v *view) error {
	parents, err := s.protectedParents()
	if err != nil {
		return err
	}
	for _, dir := range parents {
		v.bind(dir, 0, false)
	}
	for _, rel := range s.Manifest.Sandbox.Share {
		path, err := s.statePath(rel)
		if err != nil {
			return err
		}
		v.bind(path, unix.MOUNT_ATTR_NOSYMFOLLOW, false)
	}
	for _, rel := range s.Manifest.Sandbox.Hide {
		path, err := s.statePath(rel)
		if err != nil {
			return err
		}
		// A mount of its own: Landlock lets a folder move to where fewer rights are, with the sockets in it, and a
		// share is seen by commands too.
		v.bind(path, 0, false)
		v.allow(path, accessWrite)
	}
	for _, rel := range s.Manifest.State.Protect {
		fi, err := s.protectedState(rel)
		if err != nil {
			return err
		}
		path, err := s.statePath(rel)
		if err != nil {
			return err
		}
		v.bind(path, unix.MOUNT_ATTR_RDONLY, !fi.IsDir())
	}
	return nil
}

// protectedParents are the folders above what state.protect names. As mount points they cannot be renamed away, with
// others put in their place. The outer ones come first, and all of them are bound before what lies below.
func (s *Session) protectedParents() ([]string, error) {
	var dirs []string
	for _, rel := range s.Manifest.State.Protect {
		path, err := s.statePath(rel)
		if err != nil {
			return nil, err
		}
		for dir := filepath.Dir(path); dir != s.State.Name(); dir = filepath.Dir(dir) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs), nil
}

// protectedState looks at an entry of state.protect.
func (s *Session) protectedState(rel string) (os.FileInfo, error) {
	path, err := s.statePath(rel)
	if err != nil {
		return nil, err
	}
	fi, err := os.Lstat(path)
	switch {
	case err != nil:
		return nil, refusef("state.protect: %w; name a file that is there or that a seed makes", err)
	case fi.Mode()&os.ModeSymlink != 0:
		return nil, refusef("state.protect %s: is a link", path)
	}
	return fi, nil
}

// statePath is a subpath of the state folder, expanded; it must stay below it.
func (s *Session) statePath(rel string) (string, error) {
	rel, err := s.expand(rel)
	if err != nil {
		return "", &Refused{err}
	}
	if !filepath.IsLocal(rel) {
		return "", refusef("%s: does not stay below the state folder", rel)
	}
	return filepath.Join(s.Manifest.State.Path, rel), nil
}

// protected is what of the workspace a view must not change (protect.Mounts). Entries may be missing in the view of a
// later command, never in the orchestrator's.
func (s *Session) protected(set *protect.Set) *stage.Protected {
	p := &stage.Protected{Root: s.Workspace.Name()}
	for _, m := range protect.Mounts(set, "") {
		p.Entries = append(p.Entries, stage.ProtectedEntry{Rel: []byte(m.Rel), ReadOnly: m.ReadOnly, Kind: m.Kind})
	}
	return p
}

// attachPinned attaches one file executable, from the very mount that was hashed through (pin). The view owns it then.
func (s *Session) attachPinned(v *view, path string, access uint64) {
	if s.learn != nil && s.pins[path] == nil {
		return // gone since the manifest was made
	}
	v.attach(s.pins[path], path, true)
	delete(s.pins, path)
	v.allow(path, access)
}

// ChangedError says that a file is not what the manifest says.
type ChangedError struct {
	What           string // pinned file, or integrity
	Path, Old, New string

	Also []*ChangedError // more of the same kind
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s %s: changed: sha256 was %s, is %s", e.What, e.Path, e.Old, e.New)
}

// openMount opens the file that a detached mount of a single file shows.
func openMount(mnt *os.File) (*os.File, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", mnt.Fd()), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	return os.NewFile(uintptr(fd), mnt.Name()), nil
}

func hashMount(mnt *os.File) (string, error) {
	f, err := openMount(mnt)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return pin.HashFD(int(f.Fd()))
}

// addClient puts the client into the view: at its own path, and at every routed one.
func (s *Session) addClient(v *view) error {
	client, err := Helper("sharness-bash")
	if err != nil {
		return err
	}
	targets, err := s.routeTargets()
	if err != nil {
		return err
	}
	for _, t := range append(targets, viewClient) {
		mnt, err := cloneMount(client, clone{set: attrPinned, clear: unix.MOUNT_ATTR_NOEXEC})
		if err != nil {
			return err
		}
		v.attach(mnt, t, true)
		v.allow(t, accessExec)
	}
	sock, err := cloneMount(s.socketPath(), clone{set: attrData})
	if err != nil {
		return err
	}
	v.attach(sock, viewSocket, true)
	v.allow("/run/sharness", accessRead|accessUnix)
	return nil
}

// routeTargets are the files that the client takes the place of: every route of the manifest that this host has.
func (s *Session) routeTargets() ([]string, error) {
	var targets []string
	for _, r := range s.routes() {
		real, err := filepath.EvalSymlinks(r)
		if errors.Is(err, os.ErrNotExist) {
			continue // nothing can be started there
		}
		if err != nil {
			return nil, refusef("route %s: %w", r, err)
		}
		if slices.ContainsFunc(s.Manifest.Exec, func(e manifest.Exec) bool { return e.Path == real }) {
			return nil, refusef("route %s: %s is pinned under exec too; it can be one or the other", r, real)
		}
		if !slices.Contains(targets, real) {
			targets = append(targets, real)
		}
	}
	return targets, nil
}

func (s *Session) socketPath() string { return filepath.Join(s.Dir, "bash.sock") }

// routes are the manifest's, and for each the other name that merged distributions give it (/bin/sh, /usr/bin/sh).
func (s *Session) routes() []string {
	var out []string
	add := func(p string) {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	for _, r := range s.Manifest.Route {
		add(r)
		if rest, ok := strings.CutPrefix(r, "/usr"); ok && (strings.HasPrefix(rest, "/bin/") || strings.HasPrefix(rest, "/sbin/")) {
			add(rest)
		} else if strings.HasPrefix(r, "/bin/") || strings.HasPrefix(r, "/sbin/") {
			add("/usr" + r)
		}
	}
	return out
}

// commandLink repeats the links on the way to the command where the view does not show them.
func (v *view) commandLink(path string) error {
	for range 8 {
		fi, err := os.Lstat(path)
		if err != nil {
			return refusef("command %s: %w", path, err)
		}
		if fi.Mode()&os.ModeSymlink == 0 {
			return nil
		}
		target, err := os.Readlink(path)
		if err != nil {
			return refusef("command %s: %w", path, err)
		}
		shown := slices.ContainsFunc(v.mounts, func(m stage.Mount) bool { return m.FD > 0 && below(path, m.Target) })
		if !shown {
			v.links = append(v.links, stage.Link{Path: path, Target: target})
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return refusef("command %s: too many links", path)
}

// rlimits bound what a domain can take, beside its cgroup. RLIMIT_CORE is 1: at 0 the kernel still starts a piped core
// handler, as root and outside; at 1 it does not (core(5)). On a host with such a handler nothing else will do, and a
// hard limit of 0 that cannot be raised refuses the start.
func rlimits() []stage.Rlimit {
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	piped := err != nil || strings.HasPrefix(string(pattern), "|")
	return []stage.Rlimit{
		{Resource: unix.RLIMIT_CORE, Soft: 1, Hard: 1, Exact: piped},
		{Resource: unix.RLIMIT_MEMLOCK, Soft: 8 << 20, Hard: 8 << 20},
		{Resource: unix.RLIMIT_NOFILE, Soft: 1024, Hard: 65536},
		{Resource: unix.RLIMIT_MSGQUEUE, Soft: 819200, Hard: 819200},
		{Resource: unix.RLIMIT_SIGPENDING, Soft: 4096, Hard: 4096},
		// Whoever starts us may have been given these (limits.conf).
		{Resource: unix.RLIMIT_RTPRIO},
		{Resource: unix.RLIMIT_NICE},
	}
}

// sysctls of a new domain's namespaces, as far as this kernel has them.
func (s *Session) sysctls() []stage.Sysctl {
	var out []stage.Sysctl
	if s.Features.MemfdNoexec.State == host.Yes {
		out = append(out, stage.Sysctl{Path: "vm/memfd_noexec", Value: "2"})
	}
	if _, err := os.Stat("/proc/sys/net/ipv4/tcp_fastopen"); err == nil {
		out = append(out, stage.Sysctl{Path: "net/ipv4/tcp_fastopen", Value: "0"})
	}
	return out
}

// landlockOf gives a layer with the session's ABI.
func (s *Session) landlockOf(l confine.Landlock) confine.Landlock {
	l.ABI = s.Decision.Landlock.ABI
	l.FS = true
	l.Net = l.Net && s.Decision.Landlock.TCP
	if !l.Net {
		l.TCP = nil // below ABI 4 the network namespace alone bounds what is reached
	}
	l.Scoped = l.Scoped && s.Decision.Landlock.Scoped
	return l
}

// outer is the layer of pid 1 and of all below it: scopes alone, since every right it took would be taken from the
// target too. REFER is handled and granted everywhere: a layer that does not handle it denies it, and with it every
// rename and link across folders. Where the kernel has no scopes there is no outer layer.
func (s *Session) outer() confine.Landlock {
	if !s.Decision.Landlock.Scoped {
		return confine.Landlock{}
	}
	return confine.Landlock{ABI: s.Decision.Landlock.ABI, Scoped: true, Refer: true,
		Paths: []confine.PathRule{{Path: "/", Access: unix.LANDLOCK_ACCESS_FS_REFER}}}
}

// environ builds an environment from the caller's, by allowlist.
func (s *Session) environ(caller []string) ([]string, error) {
	env := map[string]string{
		"HOME": s.home(), "USER": "agent", "LOGNAME": "agent", "SHELL": s.Manifest.Shell, "PATH": defaultPath, "TMPDIR": "/tmp",
	}
	for _, kv := range caller {
		name, value, ok := strings.Cut(kv, "=")
		if ok && passes(name, s.Manifest.Env.Pass) {
			env[name] = value
		}
	}
	for name, value := range s.Manifest.Env.Set {
		v, err := s.expand(value)
		if err != nil {
			return nil, refusef("env.set %s: %w", name, err)
		}
		env[name] = v
	}
	out := make([]string, 0, len(env))
	for name, value := range env {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out, nil
}

// passes matches a name against names and NAME* prefixes.
func passes(name string, patterns []string) bool {
	for _, p := range patterns {
		if prefix, ok := strings.CutSuffix(p, "*"); ok && strings.HasPrefix(name, prefix) || p == name {
			return true
		}
	}
	return false
}

// Helper finds one of sharness's programs beside its own, or in ../libexec/sharness; never by environment.
func Helper(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	dir := filepath.Dir(self)
	for _, path := range []string{filepath.Join(dir, name), filepath.Join(dir, "..", "libexec", "sharness", name)} {
		fi, err := os.Lstat(path)
		if err == nil && fi.Mode().IsRegular() {
			return filepath.Clean(path), nil
		}
	}
	return "", fmt.Errorf("find %s: neither beside %s nor in ../libexec/sharness; run make build, or make install", name, self)
}

// readAtMost reads a whole stream with a bound.
func readAtMost(r io.Reader, max int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, max+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > max {
		return nil, fmt.Errorf("longer than %d bytes", max)
	}
	return data, nil
}
