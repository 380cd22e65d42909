package host

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Landlock is what landlock_create_ruleset(2) answers. ABI 0 means that the kernel has no Landlock, or that it was not
// started (lsm= on the kernel's command line); Cause tells which.
type Landlock struct {
	ABI    int    `json:"abi"`
	Cause  string `json:"cause,omitempty"`
	Errata *int   `json:"errata"` // bit N-1: erratum N is fixed; nil: the kernel cannot say

	// KeyctlErratum: by its version this kernel may let keyctl(KEYCTL_SESSION_TO_PARENT) shed a domain
	// (CVE-2024-42318). A distribution may have fixed it under an older number.
	KeyctlErratum bool `json:"keyctl_erratum"`
}

// Fixed reports whether the kernel says that erratum n is fixed. A kernel that cannot say is one that has not.
func (l Landlock) Fixed(n int) bool { return l.Errata != nil && *l.Errata&(1<<(n-1)) != 0 }

func probeLandlock() Landlock {
	abi, errno := landlockCreate(unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch errno {
	case 0:
	case unix.ENOSYS:
		return Landlock{Cause: "not built into this kernel (CONFIG_SECURITY_LANDLOCK)"}
	case unix.EOPNOTSUPP:
		return Landlock{Cause: "built in but not started: add landlock to lsm= on the kernel's command line"}
	default:
		return Landlock{Cause: errnoName(errno)}
	}
	l := Landlock{ABI: abi}
	if errata, errno := landlockCreate(unix.LANDLOCK_CREATE_RULESET_ERRATA); errno == 0 {
		l.Errata = &errata
	}
	return l
}

func landlockCreate(flags uintptr) (int, unix.Errno) {
	r, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, flags)
	return int(r), errno
}

// keyctlErratum reports whether the kernel is older than the fix of CVE-2024-42318 in its stable series. Debian's
// release ends in the number of its module ABI (6.1.0-48-amd64); the patch level stands in uname's version.
func keyctlErratum(release, version string) bool {
	major, minor, patch, err := parseRelease(release)
	if err != nil {
		return true
	}
	if _, rest, ok := strings.Cut(version, fmt.Sprintf("Debian %d.%d.", major, minor)); ok {
		if _, _, debian, err := parseRelease("0.0." + rest); err == nil {
			patch = debian
		}
	}
	fixedIn := map[[2]int]int{{5, 15}: 165, {6, 1}: 103, {6, 6}: 44, {6, 10}: 3}
	if fixed, ok := fixedIn[[2]int{major, minor}]; ok {
		return patch < fixed
	}
	return major < 6 || major == 6 && minor < 11
}

// parseRelease reads the leading numbers of uname's release: "6.1.0-48-amd64" is 6, 1, 0.
func parseRelease(release string) (major, minor, patch int, err error) {
	fields := strings.SplitN(release, ".", 3)
	out := [3]int{}
	for i, field := range fields {
		end := strings.IndexFunc(field, func(r rune) bool { return r < '0' || r > '9' })
		if end < 0 {
			end = len(field)
		}
		if out[i], err = strconv.Atoi(field[:end]); err != nil {
			return 0, 0, 0, fmt.Errorf("kernel release %q: %w", release, err)
		}
	}
	if len(fields) < 2 {
		return 0, 0, 0, fmt.Errorf("kernel release %q: no minor number", release)
	}
	return out[0], out[1], out[2], nil
}
