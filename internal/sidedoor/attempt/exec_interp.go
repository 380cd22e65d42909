package attempt

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// execInterp runs code of its own from anonymous memory, as a JIT may, and asks it to reach what it must not.
func execInterp() []Attempt {
	const door = "exec-interp"
	code := []byte{0x0f, 0x05, 0xc3} // syscall; ret
	try := func(id, what string, calls func(t *Target) []call) Attempt {
		return Attempt{door + "/" + id, door, "code in anonymous memory tries to " + what, Opens, func(t *Target) Outcome {
			cs := calls(t)
			if cs == nil {
				return impossible("no bait")
			}
			page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
			if err != nil {
				return judge("mmap anonymous memory executable", err)
			}
			defer unix.Munmap(page)
			copy(page, code)
			for i := range cs {
				cs[i].abi, cs[i].code = foreign, uintptr(unsafe.Pointer(&page[0]))
			}
			_, err = t.forked(cs...)
			return judgeForked(what, err)
		}}
	}
	return []Attempt{
		try("exec", "execute a workspace file", func(t *Target) []call {
			p := t.unlistedProgram()
			return []call{sys(unix.SYS_EXECVE, t.str(p), t.argv(8, "x"), t.argv(8))}
		}),
		try("read", "read a secret", func(t *Target) []call {
			if t.Secret == "" {
				return nil
			}
			return []call{sys(unix.SYS_OPENAT, atFDCWD, t.str(t.Secret), unix.O_RDONLY)}
		}),
		try("connect", "connect to a host port", func(t *Target) []call {
			if t.TCP == 0 {
				return nil
			}
			return []call{sys(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0), sys(unix.SYS_CONNECT, previous, t.bytes(sockaddr4(t.TCP)), 16)}
		}),
		try("signal", "signal a process outside", func(t *Target) []call {
			pid := t.victim()
			if pid == 0 {
				return nil
			}
			return []call{sys(unix.SYS_KILL, uintptr(pid), 0)}
		}),
		try("memfd", "make a memfd", func(t *Target) []call { return []call{sys(unix.SYS_MEMFD_CREATE, t.str("x"), 0)} }),
	}
}
