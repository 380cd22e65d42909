package attempt

import (
	"golang.org/x/sys/unix"
)

// unlistedProgram is something that could be executed but for the walls: a program in the workspace, or one of the
// system where the workspace is only to be read.
func (t *Target) unlistedProgram() string {
	p := t.scratch("program")
	if t.put(p, tinyELF(), 0o755) != nil {
		return "/usr/bin/true"
	}
	return p
}

// execABI leaves the 64-bit system call ABI. Every filter that looks at numbers alone is blind here.
func execABI() []Attempt {
	const door = "exec-abi"
	var a []Attempt
	int80 := func(id, what string, control Control, calls func(t *Target) []call) {
		a = append(a, Attempt{door + "/int80-" + id, door, "int 0x80: " + what, control, func(t *Target) Outcome {
			cs := calls(t)
			if cs == nil {
				return closed("there is no file to try it on")
			}
			for i := range cs {
				cs[i].abi = ia32
			}
			_, err := t.forked(cs...)
			if k, ok := err.(killed); ok && k.sig == unix.SIGSEGV {
				return impossible("this kernel has no 32-bit system calls")
			}
			return reachedForked("int 0x80 "+what, err)
		}})
	}
	one := func(c call) func(*Target) []call { return func(*Target) []call { return []call{c} } }
	int80("getpid", "getpid", Varies, one(sys(20)))
	int80("socket", "socket(AF_INET)", Varies, one(sys(359, unix.AF_INET, unix.SOCK_STREAM, 0)))
	int80("socketcall", "socketcall(SYS_SOCKET)", Varies, func(t *Target) []call {
		return []call{sys(102, 1, t.words(4, unix.AF_INET, unix.SOCK_STREAM, 0))}
	})
	int80("execve", "execve of a workspace file", Varies, func(t *Target) []call {
		p := t.unlistedProgram()
		return []call{sys(11, t.str(p), t.argv(4, "x"), t.argv(4))}
	})
	int80("memfd", "memfd_create", Varies, func(t *Target) []call { return []call{sys(356, t.str("x"), 0)} })
	int80("io-uring", "io_uring_setup", Varies, func(t *Target) []call { return []call{sys(425, 1, t.bytes(make([]byte, 128)))} })
	int80("unshare", "unshare(NEWUSER)", Varies, one(sys(310, unix.CLONE_NEWUSER)))
	int80("ptrace", "ptrace(TRACEME)", Varies, one(sys(26, 0)))
	int80("chmod-suid", "chmod 04755", Varies, func(t *Target) []call {
		p := t.scratch("abi-suid")
		if t.put(p, nil, 0o600) != nil {
			return nil // the workspace is only to be read
		}
		return []call{sys(15, t.str(p), 0o4755)}
	})
	const x32 = 0x40000000
	foreignNumber := func(id, what string, control Control, nr uintptr, args func(t *Target) []uintptr) {
		a = append(a, Attempt{door + "/" + id, door, what, control, func(t *Target) Outcome {
			_, err := t.forked(sys(nr, args(t)...))
			return reachedForked(what, err)
		}})
	}
	none := func(*Target) []uintptr { return nil }
	foreignNumber("x32-getpid", "x32 getpid", Varies, x32|unix.SYS_GETPID, none)
	foreignNumber("x32-socket", "x32 socket(AF_INET)", Varies, x32|unix.SYS_SOCKET, func(*Target) []uintptr {
		return []uintptr{unix.AF_INET, unix.SOCK_STREAM, 0}
	})
	foreignNumber("x32-execve", "x32 execve of a workspace file", Varies, x32|520, func(t *Target) []uintptr {
		p := t.unlistedProgram()
		return []uintptr{t.str(p), t.argv(4, "x"), t.argv(4)}
	})
	foreignNumber("x32-ptrace", "x32 ptrace(TRACEME)", Varies, x32|521, func(*Target) []uintptr { return []uintptr{0} })
	foreignNumber("high-bits-execve", "execve with bits above 32 set in its number", Opens, 1<<32|unix.SYS_EXECVE, func(t *Target) []uintptr {
		p := t.unlistedProgram()
		return []uintptr{t.str(p), t.argv(8, "x"), t.argv(8)}
	})
	foreignNumber("high-bits-memfd", "memfd_create with bits above 32 set in its number", Opens, 1<<32|unix.SYS_MEMFD_CREATE, func(t *Target) []uintptr {
		return []uintptr{t.str("x"), 0}
	})
	foreignNumber("high-bits-unshare", "unshare with bits above 32 set in its number", Varies, 1<<32|unix.SYS_UNSHARE, func(*Target) []uintptr {
		return []uintptr{unix.CLONE_NEWUSER}
	})
	return a
}
