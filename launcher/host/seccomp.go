package host

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Seccomp is what seccomp(2) offers.
type Seccomp struct {
	Filter  Trial    `json:"filter"`
	Actions []string `json:"actions"` // return actions that the kernel knows
}

// HasAction reports whether a filter may return the action (errno, kill_process …).
func (s Seccomp) HasAction(name string) bool {
	for _, a := range s.Actions {
		if a == name {
			return true
		}
	}
	return false
}

var seccompActions = []struct {
	name  string
	value uint32
}{
	{"kill_process", unix.SECCOMP_RET_KILL_PROCESS},
	{"kill_thread", unix.SECCOMP_RET_KILL_THREAD},
	{"trap", unix.SECCOMP_RET_TRAP},
	{"errno", unix.SECCOMP_RET_ERRNO},
	{"user_notif", unix.SECCOMP_RET_USER_NOTIF},
	{"trace", unix.SECCOMP_RET_TRACE},
	{"log", unix.SECCOMP_RET_LOG},
	{"allow", unix.SECCOMP_RET_ALLOW},
}

// probeSeccomp hands the kernel no program at all: a kernel with filters gets as far as reading it and answers EFAULT.
func probeSeccomp() Seccomp {
	var s Seccomp
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, 0)
	if errno == unix.EFAULT {
		s.Filter = yes
	} else {
		s.Filter = no(errno)
	}
	for _, a := range seccompActions {
		value := a.value
		_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&value)))
		if errno == 0 {
			s.Actions = append(s.Actions, a.name)
		}
	}
	return s
}
