package tty

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// After signal.Notify of SIGTSTP, signal.Reset does not bring the default action back: the runtime leaves its handler
// in place, which then ignores the signal (runtime.sigInstallGoHandler answers true although initsig never installed
// it; seen with Go 1.26). So the action is set with the system call, and the runtime's put back afterwards.

// sigaction is the kernel's struct sigaction, taken as it is. All zero is the default action.
type sigaction struct {
	handler uintptr
	rest    [24]byte
}

const sigIgn = 1

// sigsetSize is what rt_sigaction(2) calls sigsetsize.
const sigsetSize = 8

func setAction(sig int, action sigaction) (old sigaction) {
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)),
		uintptr(unsafe.Pointer(&old)), sigsetSize, 0, 0)
	return old
}

// ignored tells whether the process was started with the signal ignored: then it does not want to be stopped.
func ignored(sig int) bool {
	var now sigaction
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&now)), sigsetSize, 0, 0)
	return now.handler == sigIgn
}
