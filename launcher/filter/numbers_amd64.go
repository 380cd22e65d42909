package filter

import (
	seccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// newerNative has the calls of this architecture alone that libseccomp 2.5.4 cannot resolve. uretprobe is made by the
// kernel's own trampoline: a function that someone probes from outside crashes where it is denied (Linux 6.11 to 6.13).
var newerNative = map[string]seccomp.ScmpSyscall{"uretprobe": unix.SYS_URETPROBE}
