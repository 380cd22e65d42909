package confine

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// CloexecAbove marks every descriptor above 2 that is not in keep as close-on-exec, so that the next execve closes it
// (close_range(2)). It needs no /proc. The marks of 0-2 and of those in keep stay as they are.
func CloexecAbove(keep ...int) error {
	low := uint(3)
	for _, fd := range slices.Sorted(slices.Values(keep)) {
		if fd < int(low) {
			continue // 0-2, or named twice
		}
		if uint(fd) > low {
			if err := cloexecRange(low, uint(fd)-1); err != nil {
				return err
			}
		}
		low = uint(fd) + 1
	}
	return cloexecRange(low, math.MaxUint32)
}

func cloexecRange(low, high uint) error {
	if err := unix.CloseRange(low, high, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close_range %d-%d: %w", low, high, err)
	}
	return nil
}

// CloseAbove closes every descriptor above 2 that this process was born with and that is not in keep. A descriptor
// that came through execve has no close-on-exec mark, and all that Go opens has one: so the poller of the runtime,
// without which it would crash, is told from a stranger. It reads /proc/self/fd.
func CloseAbove(keep ...int) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("close inherited descriptors: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return fmt.Errorf("close inherited descriptors: %w", err)
		}
		if fd <= 2 || slices.Contains(keep, fd) {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == unix.EBADF {
			continue // the one that read the folder
		}
		if err != nil {
			return fmt.Errorf("fcntl F_GETFD of %d: %w", fd, err)
		}
		if flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		if err := unix.Close(fd); err != nil {
			return fmt.Errorf("close inherited descriptor %d: %w", fd, err)
		}
	}
	return nil
}
