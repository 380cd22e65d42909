package host

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A child of these functions is a copy of this process with one thread, in which the Go runtime must not run: it may
// only make raw system calls with arguments prepared before, from functions that cannot grow the stack or be
// instrumented, and with every signal blocked, because a handler would enter the runtime.

// job is what the child does.
type job struct {
	flags uintptr
	step  [4]call // made in order; the first that fails ends the child with its errno as exit status
	steps int
	pause bool // wait for SIGKILL instead of exiting
}

// call is one system call. first makes descriptor arguments possible: a.a[0] is replaced by the last result.
type call struct {
	nr    uintptr
	a     [6]uintptr
	first bool
	want  uintptr // with check: the result that means success
	check bool
}

//go:nosplit
//go:norace
//go:noinline
func cloneJob(j *job) (uintptr, syscall.Errno) {
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, j.flags|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	var last uintptr
	for i := 0; i < j.steps; i++ {
		c := &j.step[i]
		if c.first {
			c.a[0] = last
		}
		r, _, e := syscall.RawSyscall6(c.nr, c.a[0], c.a[1], c.a[2], c.a[3], c.a[4], c.a[5])
		if e != 0 {
			syscall.RawSyscall(syscall.SYS_EXIT_GROUP, uintptr(e), 0, 0)
		}
		if c.check && r != c.want {
			syscall.RawSyscall(syscall.SYS_EXIT_GROUP, uintptr(syscall.EPROTO), 0, 0)
		}
		last = r
	}
	for j.pause {
		syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
	syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	return 0, 0
}

// start clones a child for j. The thread must be locked; the caller reaps the child.
func start(j *job) (int, error) {
	var all, old unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &old); err != nil {
		return 0, fmt.Errorf("block signals: %w", err)
	}
	pid, errno := cloneJob(j)
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil); err != nil {
		// A thread with every signal blocked is not ours to hand back to the runtime.
		panic(fmt.Sprintf("host: restore signal mask: %v", err))
	}
	runtime.KeepAlive(j)
	if errno != 0 {
		return 0, errno
	}
	return int(pid), nil
}

// run clones a child for j and waits for its end. The error is an errno, of clone itself or of the first step that
// failed; EPROTO means that a step answered something unexpected.
func run(j *job) error {
	pid, err := start(j)
	if err != nil {
		return err
	}
	status, err := reap(pid)
	if err != nil {
		return err
	}
	if !status.Exited() {
		return fmt.Errorf("probe child ended by %v", status.Signal())
	}
	if code := status.ExitStatus(); code != 0 {
		return syscall.Errno(code)
	}
	return nil
}

func reap(pid int) (unix.WaitStatus, error) {
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(pid, &status, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("wait for probe child: %w", err)
		}
		return status, nil
	}
}

// userNamespace returns a descriptor of a new user namespace that maps inside to outside for one id, for an idmapped
// mount. The child that holds it is gone when this returns; the caller closes the descriptor.
func userNamespace(inside, outside int) (int, error) {
	j := &job{flags: unix.CLONE_NEWUSER, pause: true, steps: 1}
	j.step[0] = call{nr: unix.SYS_PRCTL, a: [6]uintptr{unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL)}}
	pid, err := start(j)
	if err != nil {
		return -1, fmt.Errorf("clone user namespace: %w", err)
	}
	defer func() {
		_ = unix.Kill(pid, unix.SIGKILL) // our unreaped child: the pid cannot be anybody else's
		_, _ = reap(pid)
	}()
	line := fmt.Appendf(nil, "%d %d 1\n", inside, outside)
	for _, name := range []string{"uid_map", "gid_map"} {
		if err := writeOnce(fmt.Sprintf("/proc/%d/%s", pid, name), line); err != nil {
			return -1, err
		}
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/user", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open user namespace: %w", err)
	}
	return fd, nil
}

// writeOnce writes b in one write, as the id maps demand.
func writeOnce(path string, b []byte) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, b); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func pointer[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }
