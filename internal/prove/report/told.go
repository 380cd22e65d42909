package report

import (
	"regexp"

	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/internal/sidedoor/probe"
)

// told says whether the log must have an event of this result: a denial by an errno that counts as one (docs/events.md).
// An attempt that ended without an errno, or with one that says that there is nothing, is none. files: calls that take a
// path are reported too, and with them what a read-only mount refuses.
func told(r *probe.Result, files bool) bool {
	if r.Verdict != probe.Closed {
		return false
	}
	switch r.Errno {
	case "EACCES", "EPERM":
		return files || !pathCall.MatchString(r.Detail)
	case "ENETUNREACH", "EHOSTUNREACH":
		return true
	case "EROFS", "EBUSY":
		return files
	case "ENOSYS":
		return !sidedoor.Untold(r.ID) && r.ID != unknownCall
	}
	return false
}

// pathCall are refusals of calls that take a path: off by default, because programs look for files that they may not
// read (docs/tracing.md).
var pathCall = regexp.MustCompile(`^(open|openat|openat2|creat|tmpfile|truncate|rename|link|unlink|rmdir|symlink|mkdir|chown|lchown|utime|setxattr|stat|plant|write)\b`)

// unknownCall has a number that no kernel had when sharness was built: ENOSYS is the kernel's answer too.
const unknownCall = "kernel/unknown-number"
