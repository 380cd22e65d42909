package launcher

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/launcher/host"
	"github.com/sharness/sharness/launcher/pin"
	"github.com/sharness/sharness/launcher/resolve"
	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// runDir holds one folder per session, and the locks.
const runDir = "/run/sharness"

// Session is one run of an orchestrator, or of the server alone, in one workspace.
type Session struct {
	ID        string // NAME-XXXX
	Manifest  *manifest.Manifest
	User      User
	Workspace *os.File // O_PATH of the workspace root; its name is the absolute path
	State     *os.File // O_PATH of the state folder; nil without one
	UID       int      // the orchestrator's uid and gid
	Dir       string   // /run/sharness/ID

	Features *host.Features
	Decision *resolve.Decision

	pins    map[string]*os.File // detached mounts of what is pinned, hashed, until a view takes them
	hostNet string              // the host's network namespace, as /proc names it

	orchestratorFilter [][]byte
	commandFilter      [][]byte

	learn *Learn // not nil: what runs is recorded, and not held to its pins

	lock    *os.File // of the workspace
	dirLock *os.File // of Dir
	slots   slots
	idmaps  struct {
		sync.Mutex
		byUID map[int]*os.File
	}
}

// Refused is an error that means: nothing was started and nothing changed on the host.
type Refused struct{ Err error }

func (r *Refused) Error() string { return r.Err.Error() }
func (r *Refused) Unwrap() error { return r.Err }

func refusef(format string, args ...any) error { return &Refused{fmt.Errorf(format, args...)} }

// openSession resolves who and where. It makes nothing: a refusal leaves nothing behind.
func openSession(m *manifest.Manifest, workspace string) (*Session, error) {
	if os.Geteuid() != 0 {
		return nil, refusef("sharness enforce: must be root to make namespaces, mounts and cgroups; try: sudo sharness enforce …")
	}
	s := &Session{Manifest: m}
	ok := false
	defer func() {
		if !ok {
			s.Close()
		}
	}()
	caller, known, err := callerUser()
	if err != nil {
		return nil, err
	}
	if known {
		// With the caller's reach: root would go through folders that are closed to them.
		ids := &sink.IDs{UID: caller.UID, GID: caller.GID, Groups: caller.Groups}
		err = sink.As(ids, func() error { s.Workspace, err = openWorkspace(workspace); return err })
	} else {
		s.Workspace, err = openWorkspace(workspace)
	}
	if err != nil {
		return nil, err
	}
	if s.User = caller; !known {
		if s.User, err = ownerUser(s.Workspace); err != nil {
			return nil, err
		}
	}
	if err := s.checkWorkspace(); err != nil {
		return nil, err
	}
	ok = true
	return s, nil
}

// reserve allocates the ids and makes the folders of a session that holds its workspace's lock. What it made before an
// error goes with Close, or has gone already.
func (s *Session) reserve() error {
	uid, record, err := agentUID(s.Manifest.Name)
	if err != nil {
		return err
	}
	s.UID = uid
	dir, err := s.makeDir()
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	s.Dir = dir
	if s.dirLock, err = lockDir(dir); err != nil || s.dirLock == nil {
		return fmt.Errorf("session: lock of %s: %w", dir, err)
	}
	if s.Manifest.State != nil {
		if s.State, err = openState(s.Manifest.State, s.User, s.expand); err != nil {
			return err
		}
	}
	return record()
}

// makeDir gives the session an id that no other has, nor has had while what it put into quarantine is still there.
func (s *Session) makeDir() (string, error) {
	for {
		var rnd [2]byte
		if _, err := rand.Read(rnd[:]); err != nil {
			return "", err
		}
		s.ID = s.Manifest.Name + "-" + hex.EncodeToString(rnd[:])
		if _, err := os.Lstat(filepath.Join(quarantineRoot, s.ID)); err == nil {
			continue
		}
		dir := filepath.Join(runDir, s.ID)
		if err := os.Mkdir(dir, 0o711); !errors.Is(err, os.ErrExist) {
			return dir, err
		}
	}
}

// Close removes the session's folder and lets go of its lock.
func (s *Session) Close() {
	for _, f := range []*os.File{s.Workspace, s.State} {
		if f != nil {
			f.Close()
		}
	}
	for _, ns := range s.idmaps.byUID {
		ns.Close()
	}
	for _, mnt := range s.pins {
		mnt.Close()
	}
	if s.Dir != "" {
		// Sockets, and nothing else, were made in it, all by us.
		if entries, err := os.ReadDir(s.Dir); err == nil {
			for _, e := range entries {
				os.Remove(filepath.Join(s.Dir, e.Name()))
			}
		}
		os.Remove(s.Dir)
	}
	if s.dirLock != nil {
		s.dirLock.Close()
	}
	if s.lock != nil {
		os.Remove(s.lock.Name())
		s.lock.Close()
	}
}

// openWorkspace resolves the path once; everything later is relative to the descriptor.
func openWorkspace(path string) (*os.File, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, refusef("workspace %s: %w", path, err)
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return nil, refusef("workspace: %w", err)
	}
	fd, err := unix.Open(real, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, refusef("workspace %s: %w", real, err)
	}
	return os.NewFile(uintptr(fd), real), nil
}

// callerUser is the caller behind sudo, if there is one.
func callerUser() (User, bool, error) {
	v := os.Getenv("SUDO_UID")
	if v == "" {
		return User{}, false, nil
	}
	uid, err := strconv.Atoi(v)
	if err != nil || uid < 0 {
		return User{}, false, refusef("SUDO_UID is %q, not a number", v)
	}
	u, err := userOf(uid, uid)
	return u, err == nil, err
}

// ownerUser is the owner of the workspace.
func ownerUser(workspace *os.File) (User, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(workspace.Fd()), &st); err != nil {
		return User{}, refusef("workspace %s: %w", workspace.Name(), err)
	}
	return userOf(int(st.Uid), int(st.Gid))
}

// userOf looks a user up. One without an entry (a container's id, say) has the group given, no others, and no home that
// could be protected.
func userOf(uid, gid int) (User, error) {
	u := User{UID: uid, GID: gid, Name: strconv.Itoa(uid)}
	entry, err := user.LookupId(strconv.Itoa(uid))
	if errors.As(err, new(user.UnknownUserIdError)) {
		return u, nil
	}
	if err != nil {
		return User{}, refusef("user %d: %w", uid, err)
	}
	u.Name, u.Home = entry.Username, entry.HomeDir
	if u.GID, err = strconv.Atoi(entry.Gid); err != nil {
		return User{}, refusef("group of %s: %w", entry.Username, err)
	}
	groups, err := entry.GroupIds()
	if err != nil {
		return User{}, refusef("groups of %s: %w", entry.Username, err)
	}
	for _, g := range groups {
		if n, err := strconv.Atoi(g); err == nil && n != u.GID {
			u.Groups = append(u.Groups, n)
		}
	}
	return u, nil
}

// notWorkspaces can never be one: an agent that writes there writes the system, or its own policy.
var notWorkspaces = []string{"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var", "/var/lib", "/var/tmp"}

func (s *Session) checkWorkspace() error {
	ws := s.Workspace.Name()
	for _, p := range notWorkspaces {
		if ws == p {
			return refusef("workspace %s: is a system folder; give a project folder with --workspace DIR", ws)
		}
	}
	for _, p := range []string{"/usr", "/etc", "/proc", "/sys", "/dev", "/boot", "/run/sharness", "/var/lib/sharness"} {
		if below(ws, p) {
			return refusef("workspace %s: lies in %s; give a project folder with --workspace DIR", ws, p)
		}
	}
	if s.User.Home != "" && (ws == filepath.Clean(s.User.Home) || below(s.User.Home, ws)) {
		return refusef("workspace %s: holds the home folder of %s, keys and settings with it; give a project folder with --workspace DIR", ws, s.User.Name)
	}
	if s.Manifest.State != nil {
		state, err := realPath(s.Manifest.State.Path)
		if err != nil {
			return refusef("state %s: %w", s.Manifest.State.Path, err)
		}
		if below(state, ws) || below(ws, state) {
			return refusef("workspace %s: overlaps the state folder %s", ws, s.Manifest.State.Path)
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(s.Workspace.Fd()), &st); err != nil {
		return refusef("workspace %s: %w", ws, err)
	}
	if _, err := unix.Getxattr(fmt.Sprintf("/proc/self/fd/%d", s.Workspace.Fd()), "system.posix_acl_access", nil); err == nil {
		return nil // the mode does not say who may
	}
	// A domain has the user's uid and first group on disk, and no capability: the bits count for root too.
	shift := 0
	switch {
	case int(st.Uid) == s.User.UID:
		shift = 6
	case int(st.Gid) == s.User.GID:
		shift = 3
	}
	if st.Mode>>shift&0o5 != 0o5 {
		return refusef("workspace %s: mode %04o does not let %s read it; chmod it, or give another with --workspace DIR", ws, st.Mode&0o7777, s.User.Name)
	}
	return nil
}

// CheckWorkspace says whether a session of m could have its workspace at path, by the rules that do not need the session.
func CheckWorkspace(m *manifest.Manifest, path string) error {
	s, err := openSession(m, path)
	if err != nil {
		return err
	}
	s.Close()
	return nil
}

// MissingTrees are those under read that the host does not have. They show nothing.
func MissingTrees(m *manifest.Manifest) (missing []string) {
	for _, tree := range m.Read {
		if _, err := os.Lstat(tree); errors.Is(err, os.ErrNotExist) {
			missing = append(missing, tree)
		}
	}
	return missing
}

// realPath resolves the links of a path whose last components may not exist yet.
func realPath(path string) (string, error) {
	there := existingParent(path)
	real, err := filepath.EvalSymlinks(there)
	if err != nil {
		return "", err
	}
	return filepath.Join(real, strings.TrimPrefix(path, there)), nil
}

// about is an error of a file without its name and the call's, which it puts words before.
func about(what, path string, err error) error {
	if cause := new(fs.PathError); errors.As(err, &cause) {
		err = cause.Err
	}
	return fmt.Errorf("%s %s: %w", what, path, err)
}

// checkState refuses a state folder that a session could not use. It may not exist yet.
func (s *Session) checkState() error {
	st := s.Manifest.State
	if st == nil {
		return nil
	}
	for _, own := range []string{quarantineRoot, "/var/lib/sharness/protected", "/var/lib/sharness/lib", runDir, logDir} {
		if below(st.Path, own) || below(own, st.Path) {
			return refusef("state %s: overlaps %s, which is sharness's own; give another with state.path", st.Path, own)
		}
	}
	fi, err := os.Lstat(st.Path)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return refusef("state: %w", err)
	case !fi.IsDir():
		return refusef("state %s: is not a folder; give another with state.path", st.Path)
	default:
		if err := stateOwner(fi, st.Path, s.User); err != nil {
			return err
		}
	}
	for _, rel := range st.Protect {
		seeded := slices.ContainsFunc(st.Seed, func(sd manifest.Seed) bool { return strings.TrimSuffix(sd.Path, "/") == rel })
		if _, err := s.protectedState(rel); err != nil && !(seeded && errors.Is(err, os.ErrNotExist)) {
			return err
		}
	}
	return nil
}

// checkCommand refuses a command that is another file now than the one exec lists: it could not be started.
func (s *Session) checkCommand(manifestPath string) error {
	cmd := s.Manifest.Command[0]
	real, err := filepath.EvalSymlinks(cmd)
	if err != nil {
		return refusef("command: %w", err)
	}
	if !slices.ContainsFunc(s.Manifest.Exec, func(e manifest.Exec) bool { return e.Path == real }) {
		return refusef("command %s: is %s now, which exec does not list; to allow it: sudo sharness manifest allow -m %s --exec %s",
			cmd, real, pin.Quote(manifestPath), pin.Quote(cmd))
	}
	return nil
}

// pin clones the mount of every file that may be executed or mapped so, and hashes through it: what replaces a file on
// the host between the hash and the exec is not what the view holds.
func (s *Session) pin() error {
	s.pins = map[string]*os.File{}
	one := func(path, sum string) error {
		mnt, err := cloneMount(path, clone{set: attrPinned, clear: unix.MOUNT_ATTR_NOEXEC})
		if errors.Is(err, os.ErrNotExist) && s.learn != nil {
			return nil
		}
		if err != nil {
			return refusef("pinned file %s: %w", path, err)
		}
		s.pins[path] = mnt
		got, err := hashMount(mnt)
		if err != nil {
			return refusef("pinned file %s: %w", path, err)
		}
		if got != sum && s.learn == nil {
			return &ChangedError{What: "pinned file", Path: path, Old: sum, New: got}
		}
		return nil
	}
	for _, e := range s.Manifest.Exec {
		if err := one(e.Path, e.SHA256); err != nil {
			return err
		}
	}
	for _, l := range s.Manifest.Libraries {
		if err := one(l.Path, l.SHA256); err != nil {
			return err
		}
	}
	return nil
}

// checkOwners refuses a manifest, a pinned file or a library that the orchestrator, a command or anybody but its owner
// could write, or replace through a parent.
func (s *Session) checkOwners(path string) error {
	trees := []string{s.Workspace.Name()}
	if s.Manifest.State != nil {
		trees = append(trees, s.Manifest.State.Path)
	}
	if s.Manifest.State != nil {
		if err := checkParents(s.Manifest.State.Path); err != nil {
			return err
		}
	}
	if err := pin.CheckManifest(path, trees...); err != nil && s.learn == nil {
		return refusef("manifest %w", err)
	}
	for _, e := range s.Manifest.Exec {
		if err := pin.CheckOwner(e.Path, trees...); err != nil {
			return &Refused{aboutOwner("exec", e.Path, err)}
		}
	}
	for _, l := range s.Manifest.Libraries {
		if err := pin.CheckOwner(l.Path, trees...); err != nil {
			return &Refused{aboutOwner("libraries", l.Path, err)}
		}
	}
	return nil
}

// aboutOwner is about for an error that begins with the path in question, which may be a folder above.
func aboutOwner(what, path string, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return about(what, path, err)
	}
	return fmt.Errorf("%s %w", what, err)
}

// takeLock makes sure that a workspace has one session. The lock is the kernel's, so a dead session holds none.
func (s *Session) takeLock() error {
	if err := os.MkdirAll(filepath.Join(runDir, "locks"), 0o711); err != nil {
		return fmt.Errorf("session: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(s.Workspace.Fd()), &st); err != nil {
		return refusef("workspace %s: %w", s.Workspace.Name(), err)
	}
	path := filepath.Join(runDir, "locks", fmt.Sprintf("%x-%x", st.Dev, st.Ino))
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return fmt.Errorf("session: lock: %w", err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return refusef("workspace %s: another session works here; end it first, or work in another clone (git clone . ../copy)", s.Workspace.Name())
			}
			return fmt.Errorf("session: lock: %w", err)
		}
		// The session that held it before may have removed the name meanwhile; then this lock guards nothing.
		mine, err := f.Stat()
		now, nerr := os.Lstat(path)
		if err == nil && nerr == nil && os.SameFile(mine, now) {
			s.lock = f
			return nil
		}
		f.Close()
	}
}

// expand replaces the placeholders of manifest values.
func (s *Session) expand(text string) (string, error) {
	vars := map[string]string{"workspace": s.Workspace.Name(), "uid": strconv.Itoa(s.UID)}
	if s.Manifest.State != nil {
		vars["state"] = s.Manifest.State.Path
	}
	return manifest.Expand(text, vars)
}

// openState makes the state folder with its seeds, as the user's, and opens it. Everything below the folder belongs to
// the orchestrator, which may have put links there: os.Root does not leave the folder, whatever lies in it.
//
// What it made goes again when it fails.
func openState(st *manifest.State, u User, expand func(string) (string, error)) (dir *os.File, err error) {
	if err := os.MkdirAll(filepath.Dir(st.Path), 0o711); err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	merr := os.Mkdir(st.Path, 0o700)
	if merr != nil && !errors.Is(merr, os.ErrExist) {
		return nil, fmt.Errorf("state: %w", merr)
	}
	if merr == nil {
		defer func() {
			if err != nil {
				os.Remove(st.Path)
			}
		}()
		if err := os.Lchown(st.Path, u.UID, u.GID); err != nil {
			return nil, fmt.Errorf("state: %w", err)
		}
	}
	fd, err := unix.Open(st.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, refusef("state %s: %w", st.Path, err)
	}
	f := os.NewFile(uintptr(fd), st.Path)
	fi, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("state: %w", err)
	}
	if err := stateOwner(fi, st.Path, u); err != nil {
		f.Close()
		return nil, err
	}
	if err := seed(f, st, u, expand); err != nil {
		f.Close()
		return nil, fmt.Errorf("state %s: %w", st.Path, err)
	}
	return f, nil
}

// checkParents refuses a state folder below one that anybody but root can change: root makes folders on this path, and
// must not be led elsewhere.
func checkParents(path string) error {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		fi, err := os.Lstat(dir)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return refusef("state: %w", err)
		case !fi.IsDir():
			return refusef("state %s: %s is not a folder; give the path without links", path, dir)
		case fi.Sys().(*syscall.Stat_t).Uid != 0 || fi.Mode().Perm()&0o022 != 0 && fi.Mode()&os.ModeSticky == 0:
			return refusef("state %s: %s can be changed by others than root; give another with state.path, such as /var/lib/sharness/NAME", path, dir)
		}
		if dir == "/" {
			return nil
		}
	}
}

func stateOwner(fi os.FileInfo, path string, u User) error {
	if owner := int(fi.Sys().(*syscall.Stat_t).Uid); owner != u.UID {
		return refusef("state %s: belongs to uid %d, not to %s; give another with state.path, or chown it", path, owner, u.Name)
	}
	return nil
}

// openRoot opens the folder that a descriptor holds, whatever its path names by now.
func openRoot(dir *os.File) (*os.Root, error) {
	return os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
}

func seed(dir *os.File, st *manifest.State, u User, expand func(string) (string, error)) (err error) {
	root, err := openRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var made []string
	defer func() {
		if err != nil {
			for _, path := range slices.Backward(made) {
				root.Remove(path)
			}
		}
	}()
	for _, sd := range st.Seed {
		path, err := expand(sd.Path)
		if err != nil {
			return err
		}
		content, err := expand(sd.Content)
		if err != nil {
			return err
		}
		dir := filepath.Dir(strings.TrimSuffix(path, "/"))
		if strings.HasSuffix(path, "/") {
			dir = filepath.Clean(path)
		}
		if err := makeDirs(root, dir, u, &made); err != nil {
			return about("seed", path, err)
		}
		if strings.HasSuffix(path, "/") {
			continue
		}
		f, err := root.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return about("seed", path, err)
		}
		made = append(made, path)
		_, werr := f.WriteString(content)
		if err := errors.Join(werr, f.Chown(u.UID, u.GID), f.Close()); err != nil {
			return about("seed", path, err)
		}
	}
	return nil
}

// makeDirs makes a folder and its parents beneath the root, as the user's, and adds those that it made to made.
func makeDirs(root *os.Root, dir string, u User, made *[]string) error {
	if dir == "." || dir == "" {
		return nil
	}
	if err := makeDirs(root, filepath.Dir(dir), u, made); err != nil {
		return err
	}
	if err := root.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return err
	}
	*made = append(*made, dir)
	return root.Lchown(dir, u.UID, u.GID)
}
