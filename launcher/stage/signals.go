package stage

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// resetSignals gives every signal that is ignored its default action. execve(2) resets handlers but not these: a target
// would go on ignoring what some ancestor of the supervisor ignored, for reasons of its own.
func resetSignals() error {
	const (
		signals = 64
		ignore  = 1
	)
	// struct sigaction of the system call: handler, flags, restorer, mask.
	type action [4]uintptr
	for sig := uintptr(1); sig <= signals; sig++ {
		var now, def action
		if err := sigaction(sig, nil, unsafe.Pointer(&now)); err != nil || now[0] != ignore {
			continue // KILL and STOP have no action that could be asked for
		}
		if err := sigaction(sig, unsafe.Pointer(&def), nil); err != nil {
			return fmt.Errorf("default action of signal %d: %w", sig, err)
		}
	}
	return nil
}

func sigaction(sig uintptr, set, old unsafe.Pointer) error {
	if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(set), uintptr(old), 8, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
