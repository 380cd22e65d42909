package filter

import (
	"fmt"
	"io"
	"os"
	"unsafe"

	seccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// export returns the compiled program. libseccomp 2.5 can only write it to a descriptor.
func export(f *seccomp.ScmpFilter) ([]byte, error) {
	fd, err := unix.MemfdCreate("filter", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	file := os.NewFile(uintptr(fd), "filter")
	defer file.Close()
	if err := f.ExportBPF(file); err != nil {
		return nil, fmt.Errorf("seccomp_export_bpf: %w", err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("seek in exported filter: %w", err)
	}
	prog, err := io.ReadAll(file)
	if err != nil {
		return nil, fmt.Errorf("read exported filter: %w", err)
	}
	return prog, nil
}

// Offsets into struct seccomp_data (linux/seccomp.h).
const (
	offsetNumber = 0
	offsetArch   = 4
)

// x32Bit marks a number of the x32 ABI, which shares the architecture word of x86-64.
const x32Bit = 0x40000000

// withCeiling puts before a program the answer ENOSYS for native numbers above newestKnown, which libseccomp cannot
// express. Other architectures and x32 numbers fall through to the program and die there.
func withCeiling(prog []byte) ([]byte, error) {
	arch, err := auditArch()
	if err != nil {
		return nil, err
	}
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		above = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K
		least = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K
	)
	head := []unix.SockFilter{
		{Code: load, K: offsetArch},
		{Code: equal, K: arch, Jf: 4},
		{Code: load, K: offsetNumber},
		{Code: above, K: newestKnown, Jf: 2},
		{Code: least, K: x32Bit, Jt: 1},
		{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
	}
	size := int(unsafe.Sizeof(head[0])) * len(head)
	return append(unsafe.Slice((*byte)(unsafe.Pointer(&head[0])), size), prog...), nil
}

// auditArch is the architecture word of native calls.
func auditArch() (uint32, error) {
	native, err := seccomp.GetNativeArch()
	if err != nil {
		return 0, fmt.Errorf("seccomp_arch_native: %w", err)
	}
	switch native {
	case seccomp.ArchAMD64:
		return unix.AUDIT_ARCH_X86_64, nil
	case seccomp.ArchARM64:
		return unix.AUDIT_ARCH_AARCH64, nil
	}
	return 0, fmt.Errorf("architecture %v is not supported", native)
}
