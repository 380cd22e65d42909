package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sharness/sharness/launcher/host"
	"golang.org/x/sys/unix"
)

// A session holds a lock on its runtime folder as long as its supervisor lives; the kernel lets go of it with the
// process, however that ended.

// lockDir takes the lock of a session's folder. It returns nil when another process holds it.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// lockHost makes the sessions of a host take turns while they make and remove what they share: the folders that hold
// their own. It returns what lets go of the lock. It waits no longer once goOn, which may be nil, gives an
// error.
func lockHost(goOn func() error) (unlock func(), err error) {
	for {
		if err := os.MkdirAll(filepath.Join(runDir, "locks"), 0o711); err != nil {
			return func() {}, fmt.Errorf("session: %w", err)
		}
		path := filepath.Join(runDir, "locks", "host")
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if errors.Is(err, os.ErrNotExist) {
			continue // the last session has just removed the folder
		}
		if err != nil {
			return func() {}, fmt.Errorf("session: %w", err)
		}
		if err := awaitLock(f, hostLockTime, goOn); err != nil {
			f.Close()
			return func() {}, fmt.Errorf("session: lock %s: %w", path, err)
		}
		if isAt(f, path) {
			return func() { f.Close() }, nil
		}
		f.Close()
	}
}

// isAt says whether a file that was opened, and maybe waited for, is the one that its path names now.
func isAt(f *os.File, path string) bool {
	mine, err := f.Stat()
	now, nerr := os.Lstat(path)
	return err == nil && nerr == nil && os.SameFile(mine, now)
}

// hostLockTime is how long somebody else may hold the host's lock. A session needs some tens of milliseconds.
const hostLockTime = 30 * time.Second

// awaitLock waits for a lock, but not for ever: one process that hangs must not keep every other from ending.
func awaitLock(f *os.File, limit time.Duration, goOn func() error) error {
	for deadline := time.Now().Add(limit); ; time.Sleep(2 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("another process has held it for %v; see who with lslocks", limit)
		}
		if goOn != nil {
			if err := goOn(); err != nil {
				return err
			}
		}
	}
}

// removeEmpty removes the folders that sessions share once none is left. The host's lock is held.
func removeEmpty() {
	for _, root := range cgroupRoots() {
		_ = unix.Rmdir(root)
	}
	locks := filepath.Join(runDir, "locks")
	entries, err := os.ReadDir(locks)
	if err == nil && len(entries) == 1 && entries[0].Name() == "host" {
		if all, err := os.ReadDir(runDir); err == nil && len(all) == 1 {
			os.Remove(filepath.Join(locks, "host"))
			os.Remove(locks)
			os.Remove(runDir)
		}
	}
	_ = unix.Rmdir(quarantineRoot)
}

// GC removes the runtime folders, the cgroups and the locks of sessions whose supervisor is gone, and says what it
// removed. Every session does the same before it starts.
func GC() ([]string, error) {
	unlock, err := lockHost(nil)
	if err != nil {
		return nil, err
	}
	defer unlock()
	removed, err := collect()
	removeEmpty()
	return removed, err
}

// collect is GC with the host's lock held.
func collect() ([]string, error) {
	var removed []string
	var errs []error
	entries, err := os.ReadDir(runDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		dir := filepath.Join(runDir, e.Name())
		if !e.IsDir() || e.Name() == "locks" {
			continue
		}
		lock, err := lockDir(dir)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if lock == nil {
			continue
		}
		if err := removeSession(e.Name()); err != nil {
			errs = append(errs, err)
		} else {
			removed = append(removed, dir)
		}
		lock.Close()
	}
	removed = append(removed, removeProbeGroups()...)
	groups, err := orphanGroups()
	errs = append(errs, err)
	for _, g := range groups {
		if err := removeGroups(g); err != nil {
			errs = append(errs, err)
		} else {
			removed = append(removed, g)
		}
	}
	locks, err := filepath.Glob(filepath.Join(runDir, "locks", "*"))
	errs = append(errs, err)
	for _, l := range locks {
		if filepath.Base(l) == "host" {
			continue
		}
		f, err := os.OpenFile(l, os.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			os.Remove(l)
		}
		f.Close()
	}
	kept, err := collectKept()
	return append(removed, kept...), errors.Join(append(errs, err)...)
}

// unfinishedAge is more than it takes to write a record.
const unfinishedAge = time.Minute

// collectKept removes from /var/lib/sharness what sessions left that did not live to remove it, whose runtime folders went with
// the last boot: files half written, and folders of the quarantine with nothing in them.
func collectKept() (removed []string, err error) {
	var errs []error
	remove := func(path string) error {
		err := os.Remove(path)
		if err == nil {
			removed = append(removed, path)
		}
		return err
	}
	for _, dir := range []string{filepath.Dir(registryPath), protectedRoot} {
		left, err := filepath.Glob(filepath.Join(dir, "*"+unfinished))
		errs = append(errs, err)
		for _, path := range left {
			// A manifest may be called so, and have a folder here; and a sharness in a container may be writing one just now.
			if fi, err := os.Lstat(path); err == nil && fi.Mode().IsRegular() && time.Since(fi.ModTime()) > unfinishedAge {
				errs = append(errs, remove(path))
			}
		}
	}
	kept, err := os.ReadDir(quarantineRoot)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, e := range kept {
		// Not by the runtime folder: a sharness in a container may see this folder, and another /run.
		dir := filepath.Join(quarantineRoot, e.Name())
		if lock, err := lockDir(dir); err == nil && lock != nil {
			if removeQuarantine(dir) == nil {
				removed = append(removed, dir)
			}
			lock.Close()
		}
	}
	return removed, errors.Join(errs...)
}

// removeSession removes what the session with a given id has left: its supervisor is gone, and with it, by PDEATHSIG
// and the end of its namespaces, every process and mount.
func removeSession(id string) error {
	for _, root := range cgroupRoots() {
		if err := removeGroups(filepath.Join(root, id)); err != nil {
			return err
		}
	}
	_ = removeQuarantine(filepath.Join(quarantineRoot, id))
	return os.RemoveAll(filepath.Join(runDir, id))
}

// removeProbeGroups removes what a process left that died while it looked at the host (launcher/host).
func removeProbeGroups() (removed []string) {
	for _, h := range []string{"", "unified"} {
		left, _ := filepath.Glob(filepath.Join(cgroupMount, h, host.ProbeGroup+"*")) // only a pattern can be wrong
		for _, dir := range left {
			pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), host.ProbeGroup), "-")
			if _, err := os.Stat(filepath.Join("/proc", pid)); pid == "" || !errors.Is(err, os.ErrNotExist) {
				continue
			}
			if unix.Rmdir(dir) == nil {
				removed = append(removed, dir)
			}
		}
	}
	return removed
}

// cgroupRoots are our folders in each hierarchy.
func cgroupRoots() []string {
	var out []string
	for _, h := range []string{"", "pids", "memory", "cpu", "blkio", "unified"} {
		dir := filepath.Join(cgroupMount, h, cgroupRoot)
		if fi, err := os.Stat(dir); err == nil && fi.IsDir() {
			out = append(out, dir)
		}
	}
	return out
}

// occupy locks the folders of a session's group for as long as its supervisor lives. The runtime folder does not tell a
// sharness in a container of its own, which may see the cgroups of the host and another /run, that somebody lives there.
func (c *cgroup) occupy() (locks []*os.File, err error) {
	for _, dir := range c.dirs {
		f, err := lockDir(dir)
		if err == nil && f == nil {
			err = fmt.Errorf("cgroup %s is another session's", dir)
		}
		if err != nil {
			return locks, err
		}
		locks = append(locks, f)
	}
	return locks, nil
}

// orphanGroups are groups of sessions that have no folder any more, and nobody who holds them.
func orphanGroups() ([]string, error) {
	var out []string
	for _, root := range cgroupRoots() {
		entries, err := os.ReadDir(root)
		if err != nil {
			return out, err
		}
		for _, e := range entries {
			if !e.IsDir() {
				continue
			}
			if _, err := os.Stat(filepath.Join(runDir, e.Name())); !errors.Is(err, os.ErrNotExist) {
				continue
			}
			dir := filepath.Join(root, e.Name())
			lock, err := lockDir(dir)
			if errors.Is(err, os.ErrNotExist) || err == nil && lock == nil {
				continue
			}
			if err != nil {
				return out, err
			}
			lock.Close()
			out = append(out, dir)
		}
	}
	return out, nil
}

// removeGroups kills what is left in a group's tree and removes it, the deepest first.
func removeGroups(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		killGroup(dirs[i])
		if err := removeGroup(dirs[i]); err != nil {
			return err
		}
	}
	return nil
}

// killGroup ends the members of one group.
func killGroup(dir string) {
	if os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) == nil {
		return
	}
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return
	}
	for _, line := range strings.Fields(string(data)) {
		var pid int
		if _, err := fmt.Sscan(line, &pid); err == nil && pid > 1 && pid != os.Getpid() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
