package bait

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ipc makes a shared memory segment and a message queue that everyone on the host may read: only another IPC namespace
// is in the way.
func (p *Planted) ipc() error {
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o644)
	if err != nil {
		return fmt.Errorf("shmget: %w", err)
	}
	// Attached and removed: others can still attach it by its id, and it goes with this process at the latest.
	memory, err := unix.SysvShmAttach(id, 0, 0)
	_, removed := unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	if err != nil || removed != nil {
		return fmt.Errorf("shmat, IPC_RMID: %w", errors.Join(err, removed))
	}
	p.closing(func() error { return unix.SysvShmDetach(memory) })
	p.Bait.Segment = id + 1

	p.Bait.Queue = "sharness-" + p.Bait.SecretValue
	name, err := unix.BytePtrFromString(p.Bait.Queue)
	if err != nil {
		return err
	}
	// struct mq_attr of mq_open(2): flags, the most messages, their size, messages. A small one, because what a killed run
	// leaves counts against its user's RLIMIT_MSGQUEUE until the next boot.
	attr := [8]int64{0, 1, 64, 0}
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644,
		uintptr(unsafe.Pointer(&attr)), 0, 0)
	if errno != 0 {
		return fmt.Errorf("mq_open: %w", errno)
	}
	unix.Close(int(fd))
	p.closing(func() error {
		if _, _, errno := unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(name)), 0, 0); errno != 0 {
			return fmt.Errorf("mq_unlink: %w", errno)
		}
		return nil
	})
	return nil
}
