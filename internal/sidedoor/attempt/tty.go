package attempt

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// ttyAttempts ask with a bad pointer: TIOCSTI and its kin look at permission first, so EFAULT is the proof that a real
// pointer would have typed, and nothing is typed.
func ttyAttempts() []Attempt {
	const door = "tty"
	requests := []struct {
		name    string
		request uintptr
		control Control
	}{
		// dev.tty.legacy_tiocsti=0 answers EIO on some hosts.
		{"tiocsti", unix.TIOCSTI, Varies},
		// The kernel cuts the request to 32 bits; a filter that compares 64 lets these through.
		{"tiocsti-bit-32", 1<<32 | unix.TIOCSTI, Varies},
		{"tiocsti-bit-63", 1<<63 | unix.TIOCSTI, Varies},
		{"tiocsti-all-high", 0xffffffff<<32 | unix.TIOCSTI, Varies},
		// Only a console knows TIOCLINUX: a pty answers ENOTTY even to root.
		{"tioclinux", tioclinux, Varies},
		{"tioclinux-bit-32", 1<<32 | tioclinux, Varies},
	}
	var out []Attempt
	for _, r := range requests {
		out = append(out, Attempt{door + "/own-" + r.name, door, r.name + " on a pty of one's own, as session leader", r.control,
			func(t *Target) Outcome { return ownPTY(t, r.request) }})
		for fd := range 3 {
			out = append(out, Attempt{fmt.Sprintf("%s/fd%d-%s", door, fd, r.name), door, fmt.Sprintf("%s on descriptor %d", r.name, fd), Varies,
				func(t *Target) Outcome {
					_, err := t.forked(sys(unix.SYS_IOCTL, uintptr(fd), r.request, 1))
					return judgeTTY(err)
				}})
		}
		out = append(out, Attempt{door + "/dev-tty-" + r.name, door, r.name + " on /dev/tty", Varies, func(t *Target) Outcome {
			_, err := t.forked(
				sys(unix.SYS_OPENAT, atFDCWD, t.str("/dev/tty"), unix.O_RDWR|unix.O_NOCTTY),
				sys(unix.SYS_IOCTL, previous, r.request, 1))
			return judgeTTY(err)
		}})
	}
	return out
}

const tioclinux = 0x541c

// minus is a negative number as a system call takes it.
func minus(n int) uintptr { return uintptr(-n) }

var atFDCWD = minus(100)

func ownPTY(t *Target, request uintptr) Outcome {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return judge("open /dev/ptmx", err)
	}
	defer unix.Close(master)
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return judge("unlock pty", err)
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return judge("number of pty", err)
	}
	_, err = t.forked(
		sys(unix.SYS_SETSID),
		sys(unix.SYS_OPENAT, atFDCWD, t.str(fmt.Sprintf("/dev/pts/%d", n)), unix.O_RDWR), // becomes the controlling terminal
		sys(unix.SYS_IOCTL, previous, request, 1))
	return judgeTTY(err)
}

func judgeTTY(err error) Outcome {
	switch err {
	case unix.EFAULT, nil:
		return Outcome{Verdict: Open, Errno: unix.EFAULT, Detail: "past the permission check: a real byte would have been typed"}
	case unix.EINVAL:
		return Outcome{Verdict: Open, Errno: unix.EINVAL, Detail: "past the permission check"}
	case unix.EIO:
		return Outcome{Verdict: Closed, Errno: unix.EIO, Detail: "the kernel's own switch (legacy_tiocsti) refuses"}
	}
	return judgeForked("ioctl", err)
}
