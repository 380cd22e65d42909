package attempt

import (
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func int80(nr, a, b, c, d, e uintptr) uintptr
func jump(code, nr, a, b, c, d, e uintptr) uintptr

type abi uintptr

const (
	native  abi = iota
	ia32        // by int 0x80
	foreign     // by the code at call.code, in anonymous memory
)

// call is one system call of a forked child. An argument equal to previous stands for the result of the call before.
type call struct {
	nr   uintptr
	a    [6]uintptr
	abi  abi
	code uintptr
}

const previous = ^uintptr(0) - 0x5a5a

func sys(nr uintptr, args ...uintptr) call {
	c := call{nr: nr}
	copy(c.a[:], args)
	return c
}

// report is what the child leaves in shared memory before it ends.
type report struct {
	step  uintptr // calls that returned without error
	errno uintptr
	last  uintptr // result of the last one
}

// forkCalls forks a child that makes the calls one after the other until one fails. Nothing of the Go runtime runs in
// the child: a scheduler that wakes up in a copy with one thread would hang, hence nosplit and no allocation.
//
//go:noinline
//go:norace
//go:nosplit
func forkCalls(calls *call, n uintptr, out *report, flags uintptr) (pid uintptr, errno syscall.Errno) {
	pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	// A call that the kernel answers with a fault (int 0x80 without 32-bit system calls) ends the child by it. The Go
	// runtime's handler would run else, and may wait for a lock that another thread of the parent held at the fork.
	var byDefault [4]uintptr // struct kernel_sigaction of SIG_DFL
	for _, sig := range [...]uintptr{uintptr(unix.SIGSEGV), uintptr(unix.SIGBUS), uintptr(unix.SIGILL), uintptr(unix.SIGFPE), uintptr(unix.SIGTRAP)} {
		syscall.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	}
	var prev uintptr
	for i := uintptr(0); i < n; i++ {
		c := (*call)(unsafe.Add(unsafe.Pointer(calls), i*unsafe.Sizeof(*calls)))
		for k := range c.a {
			if c.a[k] == previous {
				c.a[k] = prev
			}
		}
		var r uintptr
		var e syscall.Errno
		switch c.abi {
		case native:
			r, _, e = syscall.RawSyscall6(c.nr, c.a[0], c.a[1], c.a[2], c.a[3], c.a[4], c.a[5])
		case ia32:
			r = int80(c.nr, c.a[0], c.a[1], c.a[2], c.a[3], c.a[4])
			if s := int32(r); s < 0 && s > -4096 {
				e = syscall.Errno(-s)
			}
		default:
			r = jump(c.code, c.nr, c.a[0], c.a[1], c.a[2], c.a[3], c.a[4])
			if s := int64(r); s < 0 && s > -4096 {
				e = syscall.Errno(-s)
			}
		}
		if e != 0 {
			out.errno = uintptr(e)
			syscall.RawSyscall6(unix.SYS_EXIT_GROUP, 1, 0, 0, 0, 0, 0)
		}
		prev = r
		out.step, out.last = i+1, r
	}
	syscall.RawSyscall6(unix.SYS_EXIT_GROUP, 0, 0, 0, 0, 0, 0)
	return 0, 0
}

// childTimeout ends a child that a call blocked.
const childTimeout = 5 * time.Second

// killed is the error of a child that a signal ended: a filter that kills.
type killed struct{ sig unix.Signal }

func (k killed) Error() string { return "killed by " + unix.SignalName(k.sig) }

// forked makes the calls in a child with one thread. It returns nil when all of them returned, or when the child
// became another program; the errno of the one that failed; or killed. step counts the calls that succeeded.
func (t *Target) forked(calls ...call) (step int, err error) { return t.forkedFlags(0, calls...) }

func (t *Target) forkedFlags(flags uintptr, calls ...call) (step int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	*t.shared = report{}
	pid, errno := forkCalls(&calls[0], uintptr(len(calls)), t.shared, flags)
	if errno != 0 {
		return -1, errno
	}
	t.child = int(pid)
	ws, err := wait(t.child)
	if err != nil {
		return -1, err
	}
	runtime.KeepAlive(calls)
	step = int(t.shared.step)
	switch {
	case ws.Signaled():
		return step, killed{ws.Signal()}
	case t.shared.errno != 0:
		return step, unix.Errno(t.shared.errno)
	}
	return step, nil // an execve succeeded, and what it started has ended
}

func wait(pid int) (unix.WaitStatus, error) {
	timer := time.AfterFunc(childTimeout, func() { unix.Kill(pid, unix.SIGKILL) })
	defer timer.Stop()
	var ws unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &ws, 0, nil)
		if err != unix.EINTR {
			return ws, err
		}
	}
}

// judgeForked is judge for forked: a child that SIGSYS killed met the filter.
func judgeForked(what string, err error, also ...unix.Errno) Outcome {
	if k, ok := err.(killed); ok {
		if k.sig == unix.SIGSYS {
			return closed("%s: %v", what, k)
		}
		return broke("%s: %v", what, k)
	}
	return judge(what, err, also...)
}

// reachedForked is reached for forked.
func reachedForked(what string, err error) Outcome {
	if _, ok := err.(killed); ok {
		return judgeForked(what, err)
	}
	return reached(what, err)
}
