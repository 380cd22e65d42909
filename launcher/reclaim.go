package launcher

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxReclaim bounds the time that one group's page cache may cost.
const maxReclaim = 100 * time.Millisecond

// A group is removed retireAge after its command's end, when the file system has committed what the command wrote (ext4
// does so every 5 s) and nothing of it is held any more; earlier, when more than maxRetired wait.
const (
	retireAge  = 6 * time.Second
	maxRetired = 64
)

// retired are the groups of commands that have ended. The zero value is ready to use.
type retired struct {
	mu     sync.Mutex
	idle   map[int]*cgroup // by slot: those that the next command of it gets
	groups []retiree       // the oldest first
	busy   bool            // somebody removes them
	over   chan struct{}
	work   sync.WaitGroup
	errs   []error
}

type retiree struct {
	group *cgroup
	at    time.Time
}

// add takes a group without members.
func (r *retired) add(c *cgroup) {
	again := c.slot >= 0 && c.untouched()
	r.mu.Lock()
	defer r.mu.Unlock()
	if again && r.idle[c.slot] == nil {
		if r.idle == nil {
			r.idle = map[int]*cgroup{}
		}
		r.idle[c.slot] = c
		return
	}
	r.retire(c)
}

// retire wants the lock.
func (r *retired) retire(c *cgroup) {
	c.forget()
	if r.over == nil {
		r.over = make(chan struct{})
	}
	r.groups = append(r.groups, retiree{c, time.Now()})
	if !r.busy {
		r.busy = true
		r.work.Go(r.remove)
	}
}

// remove works until none is left.
func (r *retired) remove() {
	for {
		r.mu.Lock()
		if len(r.groups) == 0 {
			r.busy = false
			r.mu.Unlock()
			return
		}
		oldest, wait := r.groups[0], time.Duration(0)
		if len(r.groups) <= maxRetired {
			wait = time.Until(oldest.at.Add(retireAge))
		}
		if wait <= 0 {
			r.groups = r.groups[1:]
		}
		r.mu.Unlock()
		if wait <= 0 {
			err := oldest.group.remove()
			r.mu.Lock()
			r.errs = append(r.errs, err)
			r.mu.Unlock()
			continue
		}
		// A short sleep, since more may come meanwhile than are to wait.
		select {
		case <-time.After(min(wait, time.Second)):
		case <-r.over:
			r.mu.Lock()
			for i := range r.groups {
				r.groups[i].at = time.Time{}
			}
			r.mu.Unlock()
		}
	}
}

// finish removes all that wait. No group may be added any more.
func (r *retired) finish() error {
	r.mu.Lock()
	idle := r.idle
	r.idle = nil // nothing is left to trim
	if r.over != nil {
		close(r.over)
	}
	r.mu.Unlock()
	r.work.Wait()
	for _, c := range idle {
		r.errs = append(r.errs, c.remove())
	}
	return errors.Join(r.errs...)
}

// again returns the group that the last command of a slot left as it found it, if there is one. To make a group, to set its
// limits and to remove it costs about as much as the shell that runs in it.
func (r *retired) again(slot int) *cgroup {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.idle[slot]
	delete(r.idle, slot)
	return c
}

// trim retires those of slots that are used only when many commands run at once.
func (r *retired) trim() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for slot, c := range r.idle {
		if slot >= warmSlots {
			delete(r.idle, slot)
			r.retire(c)
		}
	}
}

// maxCharged is what may be left of a command in its group, as a part of the group's memory and at most: what the kernel
// frees a moment later, and a few files that it was the first to read.
const (
	maxChargedPart = 16
	maxCharged     = 4 << 20
)

// untouched says whether a group reads like a new one: nobody is in it, no limit of it was met, and next to nothing is
// charged to it. What was counted in it would else be told of the next command.
func (c *cgroup) untouched() bool {
	left, file := uint64(maxCharged), "memory.current"
	if c.bound > 0 {
		left = min(left, c.bound/maxChargedPart)
	}
	dir := 0
	if c.v2 == nil {
		dir, file = 1, "memory.usage_in_bytes"
	}
	members, merr := c.number(0, "pids.current")
	charged, cerr := c.number(dir, file)
	pids, perr := c.read(0, "pids.events")
	if merr != nil || cerr != nil || perr != nil || members > 0 || charged > left || counted(pids, "max") > 0 {
		return false
	}
	if c.v2 != nil {
		events, err := c.read(0, "memory.events")
		return err == nil && counted(events, "max") == 0 && counted(events, "oom") == 0 && counted(events, "oom_kill") == 0
	}
	events, err := c.read(1, "memory.oom_control")
	return err == nil && counted(events, "oom_kill") == 0 && (c.bound == 0 || !c.reached(c.bound))
}

// forget closes what is held open for the next command.
func (c *cgroup) forget() {
	for _, f := range c.files {
		f.Close()
	}
	closeFiles(c.entry)
	c.files, c.entry = nil, nil
}

// reclaim gives back what a group without members is still charged for: the cache of files that its processes touched. A
// removed group stays in the kernel, with its counters for every processor, as long as one page of it lies in the cache:
// a few hundred kilobytes for each command that wrote a file, and slower statistics for all.
//
// What could not be reclaimed in time, or is in use elsewhere, leaves one such group; nothing is wrong with it, so that is
// no error. The kernel documents memory.reclaim in admin-guide/cgroup-v2, memory.force_empty in cgroup-v1/memory.
func (c *cgroup) reclaim() {
	if !c.memory {
		return // of newShare
	}
	file, amount := "memory.force_empty", []byte("0")
	dir := c.dirs[0]
	if c.v2 != nil {
		usage, err := os.ReadFile(filepath.Join(dir, "memory.current"))
		if err != nil {
			return // no memory controller, or removed already
		}
		file, amount = "memory.reclaim", bytes.TrimSpace(usage)
	} else {
		dir = c.dirs[1]
	}
	fd, err := unix.Open(filepath.Join(dir, file), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return // memory.reclaim is of Linux 5.19
	}
	defer unix.Close(fd)
	writeWithin(fd, amount, maxReclaim)
}

// writeWithin makes one write(2) and interrupts it after a time. The signal is the one that the Go runtime takes for its
// own and ignores where it means nothing; what counts is EINTR.
func writeWithin(fd int, data []byte, limit time.Duration) {
	tid, done := make(chan int, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		tid <- unix.Gettid()
		_, _ = unix.Write(fd, data)
		close(done)
	}()
	thread := <-tid
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-done:
		return
	case <-timeout.C:
	}
	for {
		// Again and again: a signal that comes before the call has begun interrupts nothing.
		_ = unix.Tgkill(os.Getpid(), thread, unix.SIGURG)
		select {
		case <-done:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}
