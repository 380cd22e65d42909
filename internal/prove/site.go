package prove

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/sidedoor/bait"
	"github.com/sharness/sharness/launcher"
	"github.com/sharness/sharness/launcher/pin"
	"github.com/sharness/sharness/manifest"
)

// site is where everything is planted: a folder of its own, which goes in the end.
type site struct {
	base, workspace, state string
	static, dynamic        string // the probe's builds; dynamic is empty where this host has no such loader
	noDynamic              error  // why
	planted                *bait.Planted
	lock, held             int // of the host; of the folder, so that gc leaves it alone
	limits                 manifest.Limits
}

// What the probe may take, and by a little more is refused.
var limits = manifest.Limits{Pids: 256, Memory: 256 << 20, Tmp: 32 << 20}

// commandTime is what a command may take, less than the probe waits for one that must be ended.
const commandTime = manifest.Timeout(4 * time.Second)

// newSite plants. The folder is not below /tmp or /var/tmp: a domain may write there, and a Landlock rule reaches what is
// mounted below.
func newSite(limits manifest.Limits, unlisted string) (_ *site, err error) {
	s := &site{lock: -1, held: -1, limits: limits}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.static, err = launcher.Helper("sharness-probe"); err != nil {
		return nil, err
	}
	if s.dynamic, err = launcher.Helper("sharness-probe-dynamic"); err == nil {
		_, err = pin.Resolve(s.dynamic, "")
	}
	if err != nil {
		s.dynamic, s.noDynamic = "", err
	}
	if err := s.alone(); err != nil {
		return nil, err
	}
	if s.base, err = os.MkdirTemp(filepath.Split(basePattern)); err != nil {
		return nil, err
	}
	if s.held, err = hold(s.base); err != nil {
		return nil, err
	}
	if err := os.Chmod(s.base, 0o755); err != nil {
		return nil, err
	}
	// Copies: sharness may lie in a home that the user of the controls cannot enter.
	for _, program := range []*string{&s.static, &s.dynamic} {
		if *program == "" {
			continue
		}
		to := filepath.Join(s.base, filepath.Base(*program))
		if err := copyFile(*program, to, 0); err != nil {
			return nil, err
		}
		*program = to
	}
	s.workspace, s.state = filepath.Join(s.base, "ws"), filepath.Join(s.base, "state")
	const user = launcher.BaitUID
	if err := bait.Repository(s.workspace, user, user); err != nil {
		return nil, err
	}
	for dir, owner := range map[string]int{"bait": 0, "out": user, "state": user} {
		path := filepath.Join(s.base, dir)
		if err := errors.Join(os.Mkdir(path, 0o755), os.Lchown(path, owner, owner)); err != nil {
			return nil, err
		}
	}
	if s.planted, err = bait.Plant(bait.Config{Dir: filepath.Join(s.base, "bait"), Workspace: s.workspace, State: s.state, UID: user, GID: user, Probe: s.static, Unlisted: unlisted}); err != nil {
		return nil, err
	}
	b := &s.planted.Bait
	b.LimitPids, b.LimitMemory, b.LimitTmp = limits.Pids, int64(limits.Memory), int64(limits.Tmp)
	if err := copyFile(s.static, s.commandProbe(), user); err != nil {
		return nil, err
	}
	b.Manifest, b.Unwatched = s.manifestFile(), true
	if err := s.planted.Write(s.unwatchedFile()); err != nil {
		return nil, err
	}
	b.Unwatched = false
	return s, s.planted.Write(s.baitFile())
}

// commandProbe is the probe where commands see it.
func (s *site) commandProbe() string { return filepath.Join(s.workspace, "sharness-probe") }

func (s *site) baitFile() string { return filepath.Join(s.workspace, "bait.json") }

// unwatchedFile is bait for a session that has nobody who takes away what is planted.
func (s *site) unwatchedFile() string { return filepath.Join(s.workspace, "unwatched.json") }

// alone makes sure that no other prove runs on this host: they would share ids. The name goes with the process.
func (s *site) alone() error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	s.lock = fd
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: "@sharness-prove"})
	if errors.Is(err, unix.EADDRINUSE) {
		return errors.New("another sharness prove is running on this host; let it end first")
	}
	return err
}

// close takes everything away.
func (s *site) close() error {
	var errs []error
	if s.planted != nil {
		errs = append(errs, s.planted.Close())
	}
	if s.base != "" {
		errs = append(errs, os.RemoveAll(s.base))
	}
	for _, fd := range []int{s.held, s.lock} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	return errors.Join(errs...)
}

// basePattern is where the folders are.
const basePattern = "/var/lib/sharness-prove-*"

// hold locks a folder for as long as this process lives.
func hold(dir string) (int, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", dir, err)
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("lock %s: %w", dir, err)
	}
	return fd, nil
}

// GC removes the folders of runs that were killed, and says which.
func GC() (removed []string, err error) {
	dirs, err := filepath.Glob(basePattern)
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		fd, herr := hold(dir)
		if errors.Is(herr, unix.EWOULDBLOCK) {
			continue // it runs
		}
		if herr != nil {
			err = errors.Join(err, herr)
			continue
		}
		if rerr := os.RemoveAll(dir); rerr != nil {
			err = errors.Join(err, rerr)
		} else {
			removed = append(removed, dir)
		}
		unix.Close(fd)
	}
	return removed, err
}

// manifest is what a person would write who runs the probe: itself, and what starts it.
func (s *site) manifest(program string, access manifest.Access) (*manifest.Manifest, error) {
	c, err := pin.Resolve(program, "")
	if err != nil {
		return nil, err
	}
	m := &manifest.Manifest{
		Version: manifest.Version, Name: "prove", Command: []string{program}, Exec: c.Exec, Libraries: c.Libraries, Read: []string{"/usr"},
		State: &manifest.State{Path: s.state}, Workspace: manifest.Workspace{Path: s.workspace, Orchestrator: access}, Limits: s.limits,
	}
	m = m.WithDefaults()
	m.Sandbox.Pids, m.Sandbox.Memory, m.Sandbox.Tmp = s.limits.Pids, s.limits.Memory, s.limits.Tmp
	m.Sandbox.Output, m.Sandbox.Timeout = 1<<20, commandTime
	m.Secrets.Env = append(m.Secrets.Env, s.planted.Bait.SecretEnv...)
	return m, nil
}

// written stores a manifest where enforce would look for one: in a file that only root can change.
func (s *site) written(m *manifest.Manifest) (string, error) {
	path := s.manifestFile()
	return path, os.WriteFile(path, manifest.Format(m), 0o644)
}

func (s *site) manifestFile() string { return filepath.Join(s.base, "manifest.yaml") }

func copyFile(from, to string, owner int) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(to, data, 0o755), os.Chmod(to, 0o755), os.Lchown(to, owner, owner)) // whatever the umask
}

// snapshot tells the name, mode, owner and content of everything in the workspace.
func (s *site) snapshot() (lines []string, err error) {
	err = filepath.WalkDir(s.workspace, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		st := fi.Sys().(*syscall.Stat_t)
		content := ""
		if fi.Mode().IsRegular() {
			if content, err = sum(path); err != nil {
				return err
			}
		}
		lines = append(lines, fmt.Sprintf("%s %v %d:%d %d %s", strings.TrimPrefix(path, s.workspace), fi.Mode(), st.Uid, st.Gid, st.Nlink, content))
		return nil
	})
	return lines, err
}

func sum(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return fmt.Sprintf("%x", h.Sum(nil)), err
}

// difference lists the lines that only one of two lists has.
func difference(before, after []string) (out []string) {
	for _, l := range after {
		if !slices.Contains(before, l) {
			out = append(out, "+ "+l)
		}
	}
	for _, l := range before {
		if !slices.Contains(after, l) {
			out = append(out, "- "+l)
		}
	}
	return out
}
