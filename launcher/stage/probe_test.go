package stage

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Only the errno of the wall counts: ENOENT or EFAULT would be an attempt that broke, and proved nothing.
func TestOnlyARefusalCountsAsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want []syscall.Errno
		ok   bool
	}{
		{"success", nil, []syscall.Errno{unix.EPERM}, false},
		{"the errno", unix.EPERM, []syscall.Errno{unix.EPERM}, true},
		{"one of several", unix.EROFS, []syscall.Errno{unix.EACCES, unix.EROFS}, true},
		{"wrapped", fmt.Errorf("open: %w", unix.EACCES), []syscall.Errno{unix.EACCES}, true},
		{"another errno", unix.ENOENT, []syscall.Errno{unix.EACCES, unix.EPERM}, false},
		{"its neighbour", unix.EACCES, []syscall.Errno{unix.EPERM}, false},
		{"no errno at all", errors.New("broke"), []syscall.Errno{unix.EPERM}, false},
		{"nothing would do", unix.EPERM, nil, false},
	} {
		if err := refused(c.err, c.want...); (err == nil) != c.ok {
			t.Errorf("%s: want refused %v, got %v", c.name, c.ok, err)
		}
	}
}

func TestOpenDoorIsNamed(t *testing.T) {
	for _, c := range []Check{
		{Door: "file-config", Try: TryWrite, Path: t.TempDir() + "/new"}, // nothing refuses it here
		{Door: "exec-memfd", Try: TryMemfd},
		{Door: "some-door", Try: "no such attempt"},
		{Door: "other-door"},
	} {
		err := c.run()
		if err == nil || !strings.HasPrefix(err.Error(), "self-probe: door "+c.Door+" is open") || !strings.HasSuffix(err.Error(), "refusing to start") {
			t.Errorf("%+v: want the door named and the start refused, got %v", c, err)
		}
	}
}
