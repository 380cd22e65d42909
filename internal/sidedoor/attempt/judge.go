package attempt

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// refusals are the answers of a wall. ECONNREFUSED and the unreachables are the answer of a network namespace in which
// nobody listens; the harness outside checks that nothing arrived.
var refusals = []unix.Errno{
	unix.EACCES, unix.EPERM, unix.ENOSYS, unix.EROFS, unix.ELOOP, unix.EXDEV,
	unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT, unix.ESOCKTNOSUPPORT, unix.EPFNOSUPPORT,
	unix.ENETUNREACH, unix.ENETDOWN, unix.EHOSTUNREACH, unix.EADDRNOTAVAIL, unix.ECONNREFUSED,
}

var missing = []unix.Errno{unix.ENOENT, unix.ESRCH, unix.ENOTDIR, unix.ENXIO, unix.ENODEV, unix.ENOTTY}

// judge turns the error of a system call into an outcome; also lists further errnos that count as a refusal here.
func judge(what string, err error, also ...unix.Errno) Outcome {
	if err == nil {
		return Outcome{Verdict: Open, Detail: what}
	}
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return Outcome{Verdict: Error, Detail: fmt.Sprintf("%s: %v", what, err)}
	}
	o := Outcome{Errno: errno, Detail: fmt.Sprintf("%s: %v", what, errno)}
	switch {
	case slices.Contains(refusals, errno), slices.Contains(also, errno):
		o.Verdict = Closed
	case slices.Contains(missing, errno):
		o.Verdict = Absent
	default:
		o.Verdict = Error
	}
	return o
}

// reached judges a call that was made with arguments the kernel must dislike: any errno but a refusal was given past
// the permission check, so the door is open.
func reached(what string, err error) Outcome {
	o := judge(what, err)
	if o.Verdict == Closed && slices.Contains([]unix.Errno{unix.EPERM, unix.EACCES, unix.ENOSYS}, o.Errno) {
		return o
	}
	if o.Errno != 0 {
		o.Detail = "past the permission check: " + o.Detail
	}
	o.Verdict = Open
	return o
}

func opened(format string, args ...any) Outcome {
	return Outcome{Verdict: Open, Detail: fmt.Sprintf(format, args...)}
}

func closed(format string, args ...any) Outcome {
	return Outcome{Verdict: Closed, Detail: fmt.Sprintf(format, args...)}
}

func absent(format string, args ...any) Outcome {
	return Outcome{Verdict: Absent, Detail: fmt.Sprintf(format, args...)}
}

func impossible(format string, args ...any) Outcome {
	return Outcome{Verdict: Impossible, Detail: fmt.Sprintf(format, args...)}
}

func broke(format string, args ...any) Outcome {
	return Outcome{Verdict: Error, Detail: fmt.Sprintf(format, args...)}
}

// worst runs several tries at one thing and returns the most telling outcome: one that opened, else one that broke,
// else a refusal, else whatever came last.
func worst(outcomes ...Outcome) Outcome {
	rank := map[Verdict]int{Open: 4, Error: 3, Closed: 2, Absent: 1, Impossible: 0}
	best := outcomes[0]
	for _, o := range outcomes[1:] {
		if rank[o.Verdict] > rank[best.Verdict] {
			best = o
		}
	}
	return best
}
