package confine

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Thread gives up privilege of the calling thread alone. It is for a thread that is locked to its goroutine and executes
// another program next: execve(2) ends the other threads, and the program has the caller's credentials and filters. What
// it does costs a system call; on every thread each of them stops the world.
type Thread struct{}

type (
	prctlFunc func(name string, option, arg2, arg3 uintptr) error
	callFunc  func(trap, a1, a2, a3 uintptr) (r1, r2 uintptr, err syscall.Errno)
)

// prctlThread makes one prctl(2) on the calling thread.
func prctlThread(name string, option, arg2, arg3 uintptr) error {
	if _, _, errno := syscall.RawSyscall6(unix.SYS_PRCTL, option, arg2, arg3, 0, 0, 0); errno != 0 {
		return fmt.Errorf("prctl %s: %w", name, errno)
	}
	return nil
}

// DropBounding is DropBounding of the thread.
func (Thread) DropBounding() error { return dropBounding(prctlThread) }

// LockSecurebits is LockSecurebits of the thread.
func (Thread) LockSecurebits() error { return lockSecurebits(prctlThread) }

// ClearCaps is ClearCaps of the thread.
func (Thread) ClearCaps() error { return clearCaps(prctlThread, syscall.RawSyscall) }

// NoNewPrivs is NoNewPrivs of the thread.
func (Thread) NoNewPrivs() error { return noNewPrivs(prctlThread) }

// LoadSeccomp is LoadSeccomp of the thread.
func (Thread) LoadSeccomp(prog []byte) error { return loadSeccomp(prog, 0) }

// SetIDs is SetIDs of the thread.
func (Thread) SetIDs(uid, gid int) error {
	if err := droppable(uid, gid); err != nil {
		return err
	}
	u, g := uintptr(uid), uintptr(gid)
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return fmt.Errorf("setgroups: %w", errno)
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESGID, g, g, g); errno != 0 {
		return fmt.Errorf("setresgid %d: %w", gid, errno)
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, u, u, u); errno != 0 {
		return fmt.Errorf("setresuid %d: %w", uid, errno)
	}
	return idsAre(uid, gid)
}
