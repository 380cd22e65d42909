package confine

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxInsns is BPF_MAXINSNS, the kernel's own cap on one filter.
const maxInsns = 4096

// notSupp is the kernel's own ENOTSUPP: there was no memory to compile a filter into, and this kernel has no interpreter
// (CONFIG_BPF_JIT_ALWAYS_ON).
const notSupp = syscall.Errno(524)

// LoadSeccomp loads one compiled filter (an array of struct sock_filter) on every thread. Of filters that answer with
// different errnos the one loaded last wins (seccomp(2)). It needs no_new_privs, and the seccomp call itself, which a
// helper's filter does not allow: that one is loaded last.
func LoadSeccomp(prog []byte) error { return loadSeccomp(prog, unix.SECCOMP_FILTER_FLAG_TSYNC) }

func loadSeccomp(prog []byte, flags uintptr) error {
	const size = int(unsafe.Sizeof(unix.SockFilter{}))
	if len(prog) == 0 || len(prog)%size != 0 || len(prog)/size > maxInsns {
		return fmt.Errorf("seccomp: load filter: %d bytes are no filter", len(prog))
	}
	fprog := unix.SockFprog{
		Len:    uint16(len(prog) / size),
		Filter: (*unix.SockFilter)(unsafe.Pointer(&prog[0])),
	}
	tid, _, errno := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		flags, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if errno == notSupp {
		return fmt.Errorf("seccomp: load filter: the host's net.core.bpf_jit_limit is used up: %w", errno)
	}
	if errno != 0 {
		return fmt.Errorf("seccomp: load filter: %w", errno)
	}
	if tid != 0 {
		return fmt.Errorf("seccomp: load filter: thread %d has another ancestry", tid)
	}
	return nil
}
