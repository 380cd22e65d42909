package launcher

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// cgroupRoot is the group below which every group of ours stands, in each hierarchy.
const cgroupRoot = "/sharness"

// cgroupMount is where the hierarchies are mounted (file-hierarchy(7), hybrid layouts too).
const cgroupMount = "/sys/fs/cgroup"

// cgroupLimits bounds one group. Zero means no limit.
type cgroupLimits struct {
	pids   int
	memory uint64  // bytes, swap included
	share  *share  // of time and io; nil: those of the group above
	joins  *cgroup // of newShare, which members join besides; not part of the group. Version 1 alone
}

// cgroup is one group with the pids and memory controllers, on v2 or on v1. On a hybrid host it is a v1 group and has a
// twin in the unified hierarchy, by which tracing knows its members.
type cgroup struct {
	path  string // below cgroupMount and the hierarchy: /sharness/ID/NAME
	v2    *cgroup2.Manager
	v1    cgroup1.Cgroup
	dirs  []string // the folders, one per hierarchy
	tasks []string // v1: the tasks files a thread writes itself into

	unified string // the folder in the unified hierarchy; empty where there is none

	joined *cgroup // see cgroupLimits.joins

	retired *retired // who removes it some time after its end; nil: delete does
}

// newCgroup makes a group. It must not exist yet.
func newCgroup(path string, lim cgroupLimits) (*cgroup, error) {
	switch cgroups.Mode() {
	case cgroups.Unified:
		return newCgroup2(path, lim)
	case cgroups.Legacy, cgroups.Hybrid:
		return newCgroup1(path, lim)
	}
	return nil, errors.New("cgroup: no hierarchy is mounted on " + cgroupMount)
}

func newCgroup2(path string, lim cgroupLimits) (*cgroup, error) {
	res := &cgroup2.Resources{}
	if lim.pids > 0 {
		res.Pids = &cgroup2.Pids{Max: int64(lim.pids)}
	}
	if lim.memory > 0 {
		max := int64(lim.memory)
		res.Memory = &cgroup2.Memory{Max: &max}
	}
	if err := lim.share.apply2(res); err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", path, err)
	}
	m, err := cgroup2.NewManager(cgroupMount, path, res)
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", path, err)
	}
	dir := filepath.Join(cgroupMount, path)
	if err := requireControllers(dir, lim); err != nil {
		return nil, errors.Join(err, m.Delete())
	}
	// memory.max does not count swap; the file is missing where swap is not accounted (swapaccount=0) or not built in.
	if _, err := os.Stat(filepath.Join(dir, "memory.swap.max")); err == nil && lim.memory > 0 {
		none := int64(0)
		if err := m.Update(&cgroup2.Resources{Memory: &cgroup2.Memory{Swap: &none}}); err != nil {
			return nil, errors.Join(fmt.Errorf("cgroup %s: swap: %w", path, err), m.Delete())
		}
	}
	return &cgroup{path: path, v2: m, dirs: []string{dir}, unified: dir}, nil
}

// requireControllers reads back what was set: a controller that is not there would leave a limit open in silence.
func requireControllers(dir string, lim cgroupLimits) error {
	if lim.pids > 0 {
		if _, err := os.Stat(filepath.Join(dir, "pids.max")); err != nil {
			return fmt.Errorf("cgroup: pids controller: %w", err)
		}
	}
	if lim.memory > 0 {
		if _, err := os.Stat(filepath.Join(dir, "memory.max")); err != nil {
			return fmt.Errorf("cgroup: memory controller: %w", err)
		}
	}
	if lim.share != nil && lim.share.percent > 0 {
		if _, err := os.Stat(filepath.Join(dir, "cpu.max")); err != nil {
			return fmt.Errorf("cgroup: cpu controller: %w", err)
		}
	}
	if lim.share != nil && !lim.share.io.none() {
		if _, err := os.Stat(filepath.Join(dir, "io.max")); err != nil {
			return fmt.Errorf("cgroup: io controller: %w", err)
		}
	}
	return nil
}

func newCgroup1(path string, lim cgroupLimits) (*cgroup, error) {
	res := &specs.LinuxResources{}
	if lim.pids > 0 {
		n := int64(lim.pids)
		res.Pids = &specs.LinuxPids{Limit: &n}
	}
	if lim.memory > 0 {
		n := int64(lim.memory)
		res.Memory = &specs.LinuxMemory{Limit: &n}
		if _, err := os.Stat(filepath.Join(cgroupMount, "memory", "memory.memsw.limit_in_bytes")); err == nil {
			res.Memory.Swap = &n
		}
	}
	hierarchy := func() ([]cgroup1.Subsystem, error) {
		return []cgroup1.Subsystem{cgroup1.NewPids(cgroupMount), cgroup1.NewMemory(cgroupMount)}, nil
	}
	g, err := cgroup1.New(cgroup1.StaticPath(path), res, cgroup1.WithHierarchy(hierarchy))
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", path, err)
	}
	c := &cgroup{path: path, v1: g}
	for _, h := range []string{"pids", "memory"} {
		dir := filepath.Join(cgroupMount, h, path)
		c.dirs = append(c.dirs, dir)
		c.tasks = append(c.tasks, filepath.Join(dir, "tasks"))
	}
	if err := limitTCP1(c.dirs[1], lim.memory); err != nil {
		return nil, errors.Join(fmt.Errorf("cgroup %s: %w", path, err), c.delete())
	}
	unified := filepath.Join(cgroupMount, "unified")
	if _, err := os.Stat(filepath.Join(unified, "cgroup.procs")); err == nil {
		dir := filepath.Join(unified, path)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, errors.Join(fmt.Errorf("cgroup %s: %w", path, err), c.delete())
		}
		c.dirs, c.unified = append(c.dirs, dir), dir
	}
	if lim.share != nil {
		g, err := newShare(path, *lim.share)
		if err != nil {
			return nil, errors.Join(err, c.delete())
		}
		c.dirs, c.tasks = append(c.dirs, g.dirs...), append(c.tasks, g.tasks...)
	}
	if c.joined = lim.joins; c.joined != nil {
		c.tasks = append(c.tasks, c.joined.tasks...)
	}
	return c, nil
}

// limitTCP1 bounds the buffers of TCP sockets, which v1 counts apart from memory.limit_in_bytes, and does not count at all
// before they have a limit. A quarter of the group's memory comes on top of it. The kernel goes over it by what keeps a
// connection moving (TestTCPBuffersAreBounded). Kernels after 6.18 may drop the file.
func limitTCP1(dir string, memory uint64) error {
	file := filepath.Join(dir, "memory.kmem.tcp.limit_in_bytes")
	if _, err := os.Stat(file); memory == 0 || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := os.WriteFile(file, []byte(strconv.FormatUint(memory/4, 10)), 0); err != nil {
		return fmt.Errorf("limit of TCP buffers: %w", err)
	}
	return nil
}

// with runs fn, which starts a process, so that the process is born inside the group. fn gets a descriptor for
// CLONE_INTO_CGROUP, -1 without the unified hierarchy. On v1 the calling thread moves into the group besides, and moves
// back afterwards: writing 0 to tasks moves one thread and skips the lock that writing a pid waits 7-12 ms for (kernel
// commit 9a3284fad42f).
//
// It runs on the spawner's thread.
func (c *cgroup) with(fn func(cgroupFD int) error) error {
	fd := -1
	if c.unified != "" {
		d, err := os.Open(c.unified)
		if err != nil {
			return fmt.Errorf("cgroup %s: %w", c.path, err)
		}
		defer d.Close()
		fd = int(d.Fd())
	}
	if c.v2 != nil {
		return fn(fd)
	}
	home, err := threadGroups(c.tasks)
	if err != nil {
		return err
	}
	for _, t := range c.tasks {
		if err := os.WriteFile(t, []byte("0"), 0); err != nil {
			return errors.Join(fmt.Errorf("cgroup %s: enter: %w", c.path, err), restore(home))
		}
	}
	return errors.Join(fn(fd), restore(home))
}

// threadGroups returns the tasks files of the calling thread's groups in the v1 hierarchies of those that it is about to enter.
func threadGroups(entered []string) ([]string, error) {
	data, err := os.ReadFile("/proc/thread-self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	var out []string
	for line := range strings.SplitSeq(string(data), "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			continue
		}
		// Two controllers may share a hierarchy, which is then mounted under the names of both (cpu,cpuacct).
		for name := range strings.SplitSeq(parts[1], ",") {
			if root := filepath.Join(cgroupMount, name) + "/"; slices.ContainsFunc(entered, func(t string) bool { return strings.HasPrefix(t, root) }) {
				out = append(out, filepath.Join(root, parts[2], "tasks"))
			}
		}
	}
	return out, nil
}

// restore moves the calling thread back. A thread that cannot go back must not run anything else: it would be bounded,
// and killed, with the group.
func restore(tasks []string) error {
	for _, t := range tasks {
		if err := os.WriteFile(t, []byte("0"), 0); err != nil {
			return fmt.Errorf("cgroup: leave: %w", err)
		}
	}
	return nil
}

// contains says whether a process is a member, by what /proc says of it.
func (c *cgroup) contains(pid int) (bool, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false, err
	}
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		parts := bytes.SplitN(line, []byte(":"), 3)
		if len(parts) != 3 {
			continue
		}
		if c.v2 != nil && string(parts[0]) != "0" || c.v2 == nil && string(parts[1]) != "pids" {
			continue
		}
		got := string(parts[2])
		return got == c.path || strings.HasPrefix(got, c.path+"/"), nil
	}
	return false, nil
}

// hits says which limits were met so far.
func (c *cgroup) hits() (pids, memory bool) {
	pids = counter(filepath.Join(c.dirs[0], "pids.events"), "max") > 0
	if c.v2 != nil {
		return pids, counter(filepath.Join(c.dirs[0], "memory.events"), "oom_kill") > 0
	}
	return pids, counter(filepath.Join(c.dirs[1], "memory.oom_control"), "oom_kill") > 0
}

// counter reads one "NAME VALUE" line; a file that is not there counts nothing.
func counter(path, name string) uint64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if k, v, ok := strings.Cut(line, " "); ok && k == name {
			n, _ := strconv.ParseUint(strings.TrimSpace(v), 10, 64)
			return n
		}
	}
	return 0
}

// kill ends every member. On v1, where no cgroup.kill exists, the caller has ended pid 1 of the namespace already, and
// with it everything inside; what is listed is signalled until nothing is.
func (c *cgroup) kill() error {
	if c.v2 != nil {
		if _, err := os.Stat(c.dirs[0]); errors.Is(err, os.ErrNotExist) {
			return nil // removed already
		}
		if err := c.v2.Kill(); err != nil {
			return fmt.Errorf("cgroup %s: kill: %w", c.path, err)
		}
		return nil
	}
	for range 200 {
		procs, err := c.v1.Processes(cgroup1.Pids, true)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) || err == nil && len(procs) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cgroup %s: list processes: %w", c.path, err)
		}
		for _, p := range procs {
			if p.Pid > 0 && p.Pid != os.Getpid() {
				_ = unix.Kill(p.Pid, unix.SIGKILL)
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("cgroup %s: processes are left after SIGKILL", c.path)
}

// delete removes the group, or lets it wait among the retired ones; members must have ended. The kernel answers EBUSY for a moment after the last exit.
func (c *cgroup) delete() error {
	if c.retired != nil {
		c.retired.add(c)
		return nil
	}
	return c.remove()
}

func (c *cgroup) remove() error {
	c.reclaim()
	for _, dir := range c.dirs {
		if err := removeGroup(dir); err != nil {
			return err
		}
	}
	return nil
}

func removeGroup(dir string) error {
	var err error
	for range 100 {
		err = unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("cgroup: remove %s: %w", dir, err)
}
