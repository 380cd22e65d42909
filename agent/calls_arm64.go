package agent

import "golang.org/x/sys/unix"

// auditArch is AUDIT_ARCH_* of the native calls.
const auditArch = unix.AUDIT_ARCH_AARCH64

// native are the calls beyond those that every architecture has.
var native = []call{
	processCall("setrlimit", unix.SYS_SETRLIMIT, aboutLimit).also(noSys),
	fileCall("renameat", unix.SYS_RENAMEAT, aboutPath).at(2, 3),
}
