package confine

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// prctlAll makes one prctl(2) on every thread.
func prctlAll(name string, option, arg2, arg3 uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, option, arg2, arg3, 0, 0, 0); errno != 0 {
		return fmt.Errorf("prctl %s: %w", name, errno)
	}
	return nil
}

// prctlGet returns what a prctl answers on the calling thread.
func prctlGet(name string, option, arg2, arg3 int) (int, error) {
	got, _, errno := syscall.RawSyscall6(unix.SYS_PRCTL, uintptr(option), uintptr(arg2), uintptr(arg3), 0, 0, 0)
	if errno != 0 {
		return 0, fmt.Errorf("prctl %s: %w", name, errno)
	}
	return int(got), nil
}

// NoNewPrivs sets no_new_privs: no execve gains anything any more, and Landlock and seccomp may be used without
// capabilities. It cannot be taken back (PR_SET_NO_NEW_PRIVS(2const)).
func NoNewPrivs() error { return noNewPrivs(prctlAll) }

func noNewPrivs(prctl prctlFunc) error {
	if err := prctl("PR_SET_NO_NEW_PRIVS", unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return err
	}
	got, err := prctlGet("PR_GET_NO_NEW_PRIVS", unix.PR_GET_NO_NEW_PRIVS, 0, 0)
	if err != nil {
		return err
	}
	if got != 1 {
		return fmt.Errorf("prctl PR_SET_NO_NEW_PRIVS: reads back %d", got)
	}
	return nil
}

// NotDumpable closes /proc/PID/{mem,environ,fd,root,…} of this process to others of its uid, and makes it untraceable
// for them. execve and every change of ids set it back, so that it comes after SetIDs.
func NotDumpable() error {
	// The flag belongs to the memory, which all threads share.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_DUMPABLE: %w", err)
	}
	got, err := prctlGet("PR_GET_DUMPABLE", unix.PR_GET_DUMPABLE, 0, 0)
	if err != nil {
		return err
	}
	if got != 0 {
		return fmt.Errorf("prctl PR_SET_DUMPABLE: reads back %d", got)
	}
	return nil
}
