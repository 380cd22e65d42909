package launcher

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/internal/sidedoor"
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
	proof *Proof // not nil: sharness prove attacks it

	lock    *os.File // of the workspace
	dirLock *os.File // of Dir
	slots   slots
	userns  struct {
		sync.Mutex
		byUID map[int]userNamespaces
	}
}

// Refused is an error that means: nothing was started and nothing changed on the host.
type Refused struct{ Err error }

func (r *Refused) Error() string { return r.Err.Error() }
func (r *Refused) Unwrap() error { return r.Err }

func refusef(format string, args ...any) error { return &Refused{fmt.Errorf(format, args...)} }

// openSession resolves who and where. It makes nothing: a refusal leaves nothing behind.
func openSession(m *manifest.Manifest, workspace string, proof *Proof) (*Session, error) {
	if os.Geteuid() != 0 {
		return nil, refusef("sharness enforce: must be root to make namespaces, mounts and cgroups; try: sudo sharness enforce …")
	}
	s := &Session{Manifest: m, proof: proof}
	ok := false
	defer func() {
		if !ok {
			s.Close()
		}
	}()
	caller, known, err := s.caller()
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
	record, err := s.takeUID()
	if err != nil {
		return err
	}
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

// caller is whom the session works for, where that does not follow from its workspace.
func (s *Session) caller() (User, bool, error) {
	if s.proof != nil {
		return s.proof.User, true, nil
	}
	return callerUser()
}

// takeUID chooses the orchestrator's id; record allocates it.
func (s *Session) takeUID() (record func() error, err error) {
	switch {
	case s.lacks(sidedoor.UID):
		s.UID = s.User.UID
	case s.proof != nil:
		s.UID = ProofUID
	default:
		s.UID, record, err = agentUID(s.Manifest.Name)
		return record, err
	}
	return func() error { return nil }, nil
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
	for _, ns := range s.userns.byUID {
		ns.close()
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
	var changed []*ChangedError // all of them: an update seldom changes one file alone
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
			changed = append(changed, &ChangedError{What: "pinned file", Path: path, Old: sum, New: got})
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
	if len(changed) > 0 {
		changed[0].Also = changed[1:]
		return changed[0]
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
	path, err := s.lockPath()
	if err != nil {
		return err
	}
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return fmt.Errorf("session: lock: %w", err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			if errors.Is(err, unix.EWOULDBLOCK) {
				defer f.Close()
				return s.taken(f)
			}
			f.Close()
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

// lockPath is the name of the workspace's lock, whatever the workspace is called.
func (s *Session) lockPath() (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(s.Workspace.Fd()), &st); err != nil {
		return "", refusef("workspace %s: %w", s.Workspace.Name(), err)
	}
	return filepath.Join(runDir, "locks", fmt.Sprintf("%x-%x", st.Dev, st.Ino)), nil
}

func (s *Session) taken(lock *os.File) error {
	return refusef("workspace %s: another session works here%s; end it first, or work in another clone (git clone . ../copy)", s.Workspace.Name(), holder(lock))
}

// checkFree looks whether a session holds the lock, without taking it: a session that starts now must not find it taken.
func (s *Session) checkFree() error {
	path, err := s.lockPath()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("session: lock: %w", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("session: lock: %w", err)
	}
	locks, err := os.ReadFile("/proc/locks") // proc_locks(5): MAJOR:MINOR:INODE, the first two in hexadecimal
	if err != nil {
		return fmt.Errorf("session: locks: %w", err)
	}
	if strings.Contains(string(locks), fmt.Sprintf(" %02x:%02x:%d ", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)) {
		return s.taken(f)
	}
	return nil
}

// sign leaves in the lock whose it is, for a person who meets it. A session that was killed leaves that too, and its lock is nobody's.
func (s *Session) sign() error {
	if err := s.lock.Truncate(0); err != nil {
		return fmt.Errorf("session: lock: %w", err)
	}
	if _, err := s.lock.WriteAt([]byte(fmt.Sprintf("%s, pid %d", s.ID, os.Getpid())), 0); err != nil {
		return fmt.Errorf("session: lock: %w", err)
	}
	return nil
}

// holder is what sign left, in brackets: nothing, if that is still being written.
func holder(lock *os.File) string {
	text := make([]byte, 128)
	n, _ := lock.ReadAt(text, 0)
	if n == 0 {
		return ""
	}
	return " (" + string(text[:n]) + ")"
}

// expand replaces the placeholders of manifest values.
func (s *Session) expand(text string) (string, error) {
	vars := map[string]string{"workspace": s.Workspace.Name(), "uid": strconv.Itoa(s.shown().uid)}
	if s.Manifest.State != nil {
		vars["state"] = s.Manifest.State.Path
	}
	return manifest.Expand(text, vars)
}
