package launcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// share is what a group gets of processors and of a block device. Zero means: as much as is free.
type share struct {
	weight  int              // against its siblings; 0: 100
	percent manifest.Percent // of one processor
	io      ioShare
	many    bool // of the groups of many: see shares1
}

// shares1 is the weight as version 1 has it. There a group beside single processes, as those of the host may be, weighs as much as
// one of them, however many are in it: one of many commands gets the weight of as many processes as can run at once.
func (s share) shares1() int {
	n := 1024
	if s.weight > 0 {
		n = s.weight * 1024 / 100
	}
	if s.many {
		n *= runtime.NumCPU()
	}
	return min(max(n, 2), 1<<18)
}

// ioShare bounds the traffic with one block device, in bytes a second.
type ioShare struct {
	device      string // major:minor of a whole device; without rates, a group that others with rates lie in
	read, write uint64
}

func (i ioShare) none() bool { return i.read == 0 && i.write == 0 }

// period is that of the kernel's own default, in microseconds (sched-bwc).
const period = 100000

func (s share) quota() int64 { return int64(s.percent) * period / 100 }

// shareFor is what the manifest's numbers mean on this host, or why they mean nothing: io is bounded by device, and a file
// system that has none of its own cannot be bounded.
func shareFor(weight int, percent manifest.Percent, read, write manifest.Size, workspace *os.File) (share, error) {
	s := share{weight: weight, percent: percent, io: ioShare{read: uint64(read), write: uint64(write)}}
	if s.io.none() {
		return s, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(workspace.Fd()), &st); err != nil {
		return s, fmt.Errorf("workspace %s: %w", workspace.Name(), err)
	}
	var err error
	if s.io.device, err = wholeDevice("/sys/dev/block", unix.Major(st.Dev), unix.Minor(st.Dev)); err != nil {
		return s, fmt.Errorf("the file system of %s has no block device of its own (%w): sandbox.io_read and io_write cannot hold there", workspace.Name(), err)
	}
	return s, nil
}

// wholeDevice names the disk of a partition: the kernel takes limits for whole devices alone.
func wholeDevice(sys string, major, minor uint32) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(sys, fmt.Sprintf("%d:%d", major, minor)))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
		dir = filepath.Dir(dir)
	}
	dev, err := os.ReadFile(filepath.Join(dir, "dev"))
	return strings.TrimSpace(string(dev)), err
}

// cpu2 says whether the unified hierarchy gives the cpu controller to our groups: it is enabled in passing, as making a group with it
// does. A kernel with real-time groups refuses while there are real-time processes; then shares are as fair as without groups.
var cpu2 = sync.OnceValue(func() bool {
	return os.WriteFile(filepath.Join(cgroupMount, "cgroup.subtree_control"), []byte("+cpu"), 0) == nil
})

// apply2 adds a share to the resources of a group of version 2.
func (s *share) apply2(res *cgroup2.Resources) error {
	if s == nil {
		return nil
	}
	if cpu2() {
		res.CPU = &cgroup2.CPU{} // enabled, with the kernel's weight of 100
	} else if s.percent > 0 {
		return errors.New("cpu controller: the unified hierarchy does not offer it: sandbox.cpu and session.cpu cannot hold")
	}
	if res.CPU != nil && s.weight > 0 && s.weight != 100 {
		w := uint64(s.weight)
		res.CPU.Weight = &w
	}
	if s.percent > 0 {
		q := s.quota()
		res.CPU.Max = cgroup2.NewCPUMax(&q, nil)
	}
	if !s.io.none() {
		var major, minor int64
		if _, err := fmt.Sscanf(s.io.device, "%d:%d", &major, &minor); err != nil {
			return fmt.Errorf("block device %q: %w", s.io.device, err)
		}
		res.IO = &cgroup2.IO{}
		for typ, rate := range map[cgroup2.IOType]uint64{cgroup2.ReadBPS: s.io.read, cgroup2.WriteBPS: s.io.write} {
			if rate > 0 {
				res.IO.Max = append(res.IO.Max, cgroup2.Entry{Type: typ, Major: major, Minor: minor, Rate: rate})
			}
		}
	}
	return nil
}

// newShare makes the groups of a share in the hierarchies of version 1. They hold threads alone and bound no other resource,
// so that commands can use them in turn: making one for each command would cost every command.
func newShare(path string, s share) (*cgroup, error) {
	c := &cgroup{path: path}
	add := func(hierarchy string, files map[string]string) error {
		dir := filepath.Join(cgroupMount, hierarchy, path)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		c.dirs, c.tasks = append(c.dirs, dir), append(c.tasks, filepath.Join(dir, "tasks"))
		for name, value := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0); err != nil {
				return err
			}
		}
		return nil
	}
	var err error
	if mounted1("cpu") {
		files := map[string]string{"cpu.shares": strconv.Itoa(s.shares1())}
		if s.percent > 0 {
			files["cpu.cfs_quota_us"] = strconv.FormatInt(s.quota(), 10)
		}
		err = add("cpu", files)
	} else if s.percent > 0 {
		err = errors.New("cpu controller: its hierarchy is not mounted: sandbox.cpu and session.cpu cannot hold")
	}
	if err == nil && s.io.device != "" {
		files := map[string]string{}
		for name, rate := range map[string]uint64{"blkio.throttle.read_bps_device": s.io.read, "blkio.throttle.write_bps_device": s.io.write} {
			if rate > 0 {
				files[name] = s.io.device + " " + strconv.FormatUint(rate, 10)
			}
		}
		err = add("blkio", files)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cgroup %s: %w", path, err), c.remove())
	}
	return c, nil
}

// raise1 does for the group above all sessions what shares1 does for theirs.
func raise1() error {
	file := filepath.Join(cgroupMount, "cpu", cgroupRoot, "cpu.shares")
	if _, err := os.Stat(file); cgroups.Mode() == cgroups.Unified || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return os.WriteFile(file, []byte(strconv.Itoa(share{many: true}.shares1())), 0)
}

// mounted1 says whether a controller of version 1 has its hierarchy where it usually is.
func mounted1(controller string) bool {
	_, err := os.Stat(filepath.Join(cgroupMount, controller, "tasks"))
	return err == nil
}

// shares are the groups of newShare by uid slot, made on first use. The zero value is ready to use.
type shares struct {
	mu     sync.Mutex
	bySlot map[int]*cgroup
}

// of returns the group that a command in a slot joins: nil on version 2, where its own group has the share.
func (sh *shares) of(slot int, path string, s share) (*cgroup, error) {
	if cgroups.Mode() == cgroups.Unified {
		return nil, nil
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if c := sh.bySlot[slot]; c != nil {
		return c, nil
	}
	c, err := newShare(path+"/slot-"+strconv.Itoa(slot), s)
	if err != nil {
		return nil, err
	}
	if sh.bySlot == nil {
		sh.bySlot = map[int]*cgroup{}
	}
	sh.bySlot[slot] = c
	return c, nil
}

func (sh *shares) remove() error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var errs []error
	for _, c := range sh.bySlot {
		errs = append(errs, c.remove())
	}
	sh.bySlot = nil
	return errors.Join(errs...)
}

// throttled is for how long, in microseconds, members had to wait because their share was used up, since the group was made.
func (c *cgroup) throttled() uint64 {
	if c.v2 != nil {
		return counter(filepath.Join(c.dirs[0], "cpu.stat"), "throttled_usec")
	}
	for _, dir := range c.dirs {
		if ns := counter(filepath.Join(dir, "cpu.stat"), "throttled_time"); ns > 0 {
			return ns / 1000
		}
	}
	return 0
}
