package host

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

var yes = Trial{State: Yes}

// no describes an attempt that met errno, in the kernel's word for it.
func no(errno syscall.Errno) Trial { return Trial{State: No, Cause: errnoName(errno)} }

// outcome is the trial that ended with err: EPERM and EACCES without privilege prove nothing.
func outcome(err error, privileged bool) Trial {
	if err == nil {
		return yes
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return Trial{State: No, Cause: err.Error()}
	}
	t := no(errno)
	if !privileged && (errno == unix.EPERM || errno == unix.EACCES) {
		t.State, t.Cause = Unknown, t.Cause+": needs root to find out"
	}
	return t
}

func errnoName(errno syscall.Errno) string {
	if name := unix.ErrnoName(errno); name != "" {
		return name
	}
	return errno.Error()
}
