package filter

import (
	"errors"
	"fmt"

	seccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// newestKnown is the highest system call number that the tables of this package have an opinion on (Linux 7.2). What
// lies above did not exist, so ENOSYS is the honest answer, and the one that callers fall back from.
const newestKnown = 471

// newer has the calls that libseccomp 2.5.4 (Debian 12) cannot resolve. Numbers from 424 up are the same on every
// architecture.
var newer = map[string]seccomp.ScmpSyscall{
	"cachestat":        unix.SYS_CACHESTAT,
	"fchmodat2":        unix.SYS_FCHMODAT2,
	"map_shadow_stack": unix.SYS_MAP_SHADOW_STACK,
	"futex_wake":       unix.SYS_FUTEX_WAKE,
	"futex_wait":       unix.SYS_FUTEX_WAIT,
	"futex_requeue":    unix.SYS_FUTEX_REQUEUE,
	"statmount":        unix.SYS_STATMOUNT,
	"listmount":        unix.SYS_LISTMOUNT,
	"mseal":            unix.SYS_MSEAL,
	"setxattrat":       unix.SYS_SETXATTRAT,
	"getxattrat":       unix.SYS_GETXATTRAT,
	"listxattrat":      unix.SYS_LISTXATTRAT,
	"removexattrat":    unix.SYS_REMOVEXATTRAT,
	"file_getattr":     unix.SYS_FILE_GETATTR,
	"file_setattr":     unix.SYS_FILE_SETATTR,
	"rseq_slice_yield": unix.SYS_RSEQ_SLICE_YIELD,
}

// elsewhere has profile names that this architecture does not have.
var elsewhere = map[string]bool{"riscv_hwprobe": true, "uretprobe": true}

var errUnknownCall = errors.New("no such system call is known")

// number resolves a name. An unknown name is an error and not a rule less: a misspelt denial would be an open door.
func number(name string) (seccomp.ScmpSyscall, error) {
	nr, err := seccomp.GetSyscallFromName(name)
	if err == nil {
		return nr, nil
	}
	if !errors.Is(err, seccomp.ErrSyscallDoesNotExist) {
		return 0, fmt.Errorf("seccomp_syscall_resolve_name: %w", err)
	}
	if nr, ok := newer[name]; ok {
		return nr, nil
	}
	if nr, ok := newerNative[name]; ok {
		return nr, nil
	}
	if elsewhere[name] {
		return -1, nil
	}
	return 0, errUnknownCall
}
