package kerneltest

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// execveat asks about a path with empty argument and environment lists. With AT_EXECVE_CHECK it returns.
func execveat(path *byte, flags int) error {
	var end uintptr
	dir := unix.AT_FDCWD
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(dir), uintptr(unsafe.Pointer(path)),
		uintptr(unsafe.Pointer(&end)), uintptr(unsafe.Pointer(&end)), uintptr(flags), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
