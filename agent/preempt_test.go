package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
)

// twoPrograms is a Tracer as it is where the kernel preempts programs.
func twoPrograms(t *testing.T, g group) *Tracer {
	t.Helper()
	tracer, err := load(Options{Cgroups: []string{g.dir}}, true)
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

// deniedChild is refused n calls.
func deniedChild(input json.RawMessage) (any, error) {
	n, err := decodeInput[int](input)
	if err != nil {
		return nil, err
	}
	if err := enter(); err != nil {
		return nil, err
	}
	for range n {
		raw(unix.SYS_UNSHARE, unix.CLONE_NEWNS)
	}
	return nil, nil
}

const someDenials = 500

// On a kernel that preempts none the second program finds the mark of the first each time.
func TestTwoProgramsTellEachDenialOnce(t *testing.T) {
	g := newGroup(t, "")
	r := run(t, twoPrograms(t, g), policy, func() {
		kerneltest.Child{Name: "denied", Input: someDenials, Setup: g.into(t)}.Run(t)
	})
	if d := r.last.Denials["process"]; d.Produced != someDenials {
		t.Errorf("got %d records, want %d", d.Produced, someDenials)
	}
	preempts, err := preemptible()
	if err != nil {
		t.Fatal(err)
	}
	if !preempts && r.last.Caught != 0 {
		t.Errorf("the second program looked at %d calls that the first had looked at", r.last.Caught)
	}
}

func TestSecondProgramTellsWhatTheFirstWasNotStartedFor(t *testing.T) {
	g := newGroup(t, "")
	tracer := twoPrograms(t, g)
	first := len(tracer.links) - 2
	if err := tracer.links[first].Close(); err != nil {
		t.Fatal(err)
	}
	tracer.links = slices.Delete(tracer.links, first, first+1)
	r := run(t, tracer, policy, func() {
		kerneltest.Child{Name: "denied", Input: someDenials, Setup: g.into(t)}.Run(t)
	})
	if d := r.last.Denials["process"]; d.Produced != someDenials || r.last.Caught < someDenials {
		t.Errorf("got %d records and %d calls looked at, want %d and at least as many", d.Produced, r.last.Caught, someDenials)
	}
}

// crowdChild is refused n calls by a thread that takes the processor away from others, which are busy with system calls, at
// whatever instruction they are.
func crowdChild(input json.RawMessage) (any, error) {
	n, err := decodeInput[int](input)
	if err != nil {
		return nil, err
	}
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	var one unix.CPUSet
	for cpu := 0; one.Count() == 0; cpu++ {
		if allowed.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	pinned := func() error {
		runtime.LockOSThread()
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return fmt.Errorf("sched_setaffinity: %w", err)
		}
		return nil
	}
	if err := pinned(); err != nil {
		return nil, err
	}
	// A wake-up of this class never waits for the end of a system call; whatever starts from here is of the usual one.
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1,
		Flags: unix.SCHED_FLAG_RESET_ON_FORK}, 0); err != nil {
		return nil, fmt.Errorf("sched_setattr: %w", err)
	}
	if err := enter(); err != nil {
		return nil, err
	}
	var stop atomic.Bool
	others := make(chan error)
	for range crowd {
		go func() {
			err := pinned()
			for err == nil && !stop.Load() {
				raw(unix.SYS_GETPPID)
			}
			others <- err
		}()
	}
	for i := range n {
		// A little longer each time, so that it is another instruction.
		pause := unix.NsecToTimespec(int64(20_000 + 7*(i%1000)))
		_, _, _ = syscall.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&pause)), 0, 0, 0)
		raw(unix.SYS_UNSHARE, unix.CLONE_NEWNS)
	}
	stop.Store(true)
	for range crowd {
		err = errors.Join(err, <-others)
	}
	return nil, err
}

const crowd = 3

// Whoever is preempted in a program keeps the kernel from starting it for others on that processor.
func TestDenialsAreToldWhereProgramsArePreempted(t *testing.T) {
	const n = 20_000
	g := newGroup(t, "")
	r := traced(t, g, Options{}, policy, func() {
		kerneltest.Child{Name: "crowd", Input: n, Setup: g.into(t)}.Run(t)
	})
	if d := r.last.Denials["process"]; d.Produced != n {
		t.Errorf("got %d denials, want %d", d.Produced, n)
	}
	t.Logf("the second program told of %d calls", r.last.Caught)
}
