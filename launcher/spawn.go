package launcher

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"github.com/sharness/sharness/internal/lean"
	"golang.org/x/sys/unix"
)

// spawner starts every child of the supervisor from one thread that lives as long as the process. PDEATHSIG is tied to
// the thread that forks, not to the process (prctl(2)): from any other thread the children would die with a goroutine.
//
// The thread keeps the timer slack that the supervisor was started with, which its children inherit: the programs of a
// domain are to find the host's.
type spawner struct {
	work    chan func()
	helpers *cgroup // where helpers are born; nil: where we are
}

func newSpawner() *spawner {
	sp := &spawner{work: make(chan func())}
	go func() {
		runtime.LockOSThread()
		lean.SetThreadSlack(lean.Drowse())
		for fn := range sp.work {
			fn()
		}
	}()
	return sp
}

// do runs fn on the spawner's thread.
func (sp *spawner) do(fn func() error) error {
	done := make(chan error, 1)
	sp.work <- func() { done <- fn() }
	return <-done
}

// drowsy runs fn, which starts one of our own Go programs, with the slack that it is to have.
func drowsy(fn func() error) error {
	slack := lean.ThreadSlack()
	lean.SetThreadSlack(lean.Slack)
	defer lean.SetThreadSlack(slack)
	return fn()
}

// inNetNS runs fn, which starts a process, with the calling thread in another network namespace. A thread that cannot
// go back to the host's ends the process: what it started next would be in the wrong network.
func inNetNS(ns *os.File, fn func() error) error {
	if ns == nil {
		return fn()
	}
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	defer home.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("network namespace: enter: %w", err)
	}
	err = fn()
	if berr := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); berr != nil {
		panic(fmt.Sprintf("launcher: thread cannot return to its network namespace: %v", berr))
	}
	return err
}

// socketpair returns two ends of a unix socket, both close-on-exec.
func socketpair(typ int) (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "socketpair"), os.NewFile(uintptr(fds[1]), "socketpair"), nil
}

// domainFlags are the namespaces of every domain. The network namespace is new or the one of the calling thread; the
// cgroup namespace is unshared inside, since with CLONE_INTO_CGROUP its root would be the group of the supervisor.
const domainFlags = unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// wait4 reaps one child and says how it ended.
func wait4(pid int) (syscall.WaitStatus, error) {
	var ws syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &ws, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		return ws, err
	}
}
