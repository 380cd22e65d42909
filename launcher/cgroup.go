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
	"github.com/containerd/cgroups/v3/cgroup2"
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
	dirs  []string // the folders, one per hierarchy
	tasks []string // v1: the tasks files a thread writes itself into

	unified string // the folder in the unified hierarchy; empty where there is none

	joined *cgroup // see cgroupLimits.joins
	memory bool    // it has the memory controller, on v1 in dirs[1]

	retired *retired // who removes it some time after its end; nil: delete does
	slot    int      // of the commands that use it in turn; negative: it is used once

	bound uint64              // the limit of its memory
	files map[string]*os.File // what is read or written for every command stays open; nil: nothing does
	entry []*os.File          // what open returned, likewise
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
	return &cgroup{path: path, slot: -1, bound: wholePages(lim.memory), memory: true, v2: m, dirs: []string{dir}, unified: dir}, nil
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

// newCgroup1 makes the folders and writes the limits itself: this is on the path of every command, and a library that may
// take any controller looks for all of them first.
func newCgroup1(path string, lim cgroupLimits) (*cgroup, error) {
	c := &cgroup{path: path, slot: -1, bound: wholePages(lim.memory)}
	fail := func(err error) (*cgroup, error) {
		return nil, errors.Join(fmt.Errorf("cgroup %s: %w", path, err), c.delete())
	}
	for _, h := range []string{"pids", "memory"} {
		dir := filepath.Join(cgroupMount, h, path)
		if err := makeGroup(dir); err != nil {
			return fail(err)
		}
		c.dirs = append(c.dirs, dir)
		c.tasks = append(c.tasks, filepath.Join(dir, "tasks"))
	}
	c.memory = true
	if lim.pids > 0 {
		if err := writeNumber(filepath.Join(c.dirs[0], "pids.max"), uint64(lim.pids)); err != nil {
			return fail(err)
		}
	}
	if lim.memory > 0 {
		if err := writeNumber(filepath.Join(c.dirs[1], "memory.limit_in_bytes"), lim.memory); err != nil {
			return fail(err)
		}
		// With swap, which the file counts too. It is missing where swap is not accounted.
		err := writeNumber(filepath.Join(c.dirs[1], "memory.memsw.limit_in_bytes"), lim.memory)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fail(err)
		}
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

// wholePages is what the kernel makes of a limit of memory.
func wholePages(n uint64) uint64 { return n &^ uint64(os.Getpagesize()-1) }

// makeGroup makes the folder of a group, and those above it where they are missing.
func makeGroup(dir string) error {
	err := unix.Mkdir(dir, 0o755)
	if errors.Is(err, unix.ENOENT) {
		if err = os.MkdirAll(filepath.Dir(dir), 0o755); err == nil {
			err = unix.Mkdir(dir, 0o755)
		}
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	return nil
}

// writeNumber writes to a file of a group, which takes what it is given or refuses it.
func writeNumber(path string, n uint64) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, strconv.AppendUint(nil, n, 10)); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// readGroup reads a small file of a group.
func readGroup(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
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

// open opens what a process needs to be born in the group, or to enter it: the tasks files on v1, and the folder in the
// unified hierarchy where there is one.
func (c *cgroup) open() (files []*os.File, err error) {
	if c.entry != nil {
		return c.entry, nil
	}
	defer func() {
		if err != nil {
			closeFiles(files)
			files = nil
		}
		c.entry = files
	}()
	for _, t := range c.tasks {
		f, err := os.OpenFile(t, os.O_WRONLY, 0)
		if err != nil {
			return files, fmt.Errorf("cgroup %s: %w", c.path, err)
		}
		files = append(files, f)
	}
	if c.unified == "" {
		return files, nil
	}
	d, err := os.Open(c.unified)
	if err != nil {
		return files, fmt.Errorf("cgroup %s: %w", c.path, err)
	}
	return append(files, d), nil
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
	pids = c.counter(0, "pids.events", "max") > 0
	if c.v2 != nil {
		return pids, c.counter(0, "memory.events", "oom_kill") > 0
	}
	return pids, c.counter(1, "memory.oom_control", "oom_kill") > 0
}

// read reads a small file of the group itself, in one of its folders.
func (c *cgroup) read(dir int, file string) ([]byte, error) {
	if c.files == nil {
		return readGroup(filepath.Join(c.dirs[dir], file))
	}
	f := c.files[file]
	if f == nil {
		var err error
		if f, err = os.Open(filepath.Join(c.dirs[dir], file)); err != nil {
			return nil, err
		}
		c.files[file] = f
	}
	buf := make([]byte, 512)
	n, err := unix.Pread(int(f.Fd()), buf, 0)
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}

// number reads a file that holds one.
func (c *cgroup) number(dir int, file string) (n uint64, err error) {
	data, err := c.read(dir, file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(bytes.TrimSpace(data)), 10, 64)
}

// counter reads one "NAME VALUE" line of a file.
func (c *cgroup) counter(dir int, file, name string) uint64 {
	data, err := c.read(dir, file)
	if err != nil {
		return 0
	}
	return counted(data, name)
}

// counter reads one "NAME VALUE" line; a file that is not there counts nothing.
func counter(path, name string) uint64 {
	data, err := readGroup(path)
	if err != nil {
		return 0
	}
	return counted(data, name)
}

func counted(data []byte, name string) uint64 {
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
	// Asked first: most groups are empty by now, and to list members is dear.
	if n, err := c.number(0, "pids.current"); err == nil && n == 0 {
		return nil
	}
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
		procs, err := os.ReadFile(filepath.Join(c.dirs[0], "cgroup.procs"))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) || err == nil && len(procs) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cgroup %s: list processes: %w", c.path, err)
		}
		for _, line := range strings.Fields(string(procs)) {
			// A process of another pid namespace is listed as 0.
			if pid, err := strconv.Atoi(line); err == nil && pid > 0 && pid != os.Getpid() {
				_ = unix.Kill(pid, unix.SIGKILL)
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
	c.forget()
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
