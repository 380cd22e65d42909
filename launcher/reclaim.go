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
	groups []retiree // the oldest first
	busy   bool      // somebody removes them
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
	r.mu.Lock()
	defer r.mu.Unlock()
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
	if r.over != nil {
		close(r.over)
	}
	r.mu.Unlock()
	r.work.Wait()
	return errors.Join(r.errs...)
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
