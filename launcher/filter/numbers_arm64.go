package filter

import seccomp "github.com/seccomp/libseccomp-golang"

// newerNative has the calls of this architecture alone that libseccomp 2.5.4 cannot resolve.
var newerNative = map[string]seccomp.ScmpSyscall{}
