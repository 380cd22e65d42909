package attempt

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// execSCM looks for any way by which a command could hand a descriptor to the orchestrator.
func execSCM() []Attempt {
	const door = "exec-scm"
	return []Attempt{
		{door + "/meeting-point", door, "bind a unix socket in the workspace, where a command could meet it", Opens, func(t *Target) Outcome {
			return bindUnix(t.scratch("meet.sock"))
		}},
		{door + "/client-stdin", door, "let a command find the orchestrator's own socket on its descriptor 0", NoServer, func(t *Target) Outcome {
			if _, err := os.Stat(client); err != nil {
				return absent("no client: %v", err)
			}
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return judge("socketpair", err)
			}
			mine, theirs := os.NewFile(uintptr(pair[0]), "mine"), os.NewFile(uintptr(pair[1]), "theirs")
			defer mine.Close()
			defer theirs.Close()
			own, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", theirs.Fd()))
			if err != nil {
				return judge("readlink", err)
			}
			out, status, err := viaClient(theirs, "exec readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2")
			if err != nil {
				return judge("run the client", err)
			}
			if strings.Contains(out, own) {
				return opened("the command holds %s", own)
			}
			if status != 0 {
				return broke("the client ended with %d: %s", status, oneLine(out))
			}
			return closed("the command got descriptors of its own: %s", strings.Join(strings.Fields(out), " "))
		}},
	}
}

// viaClient runs a command the one allowed way.
func viaClient(stdin *os.File, command string) (output string, status int, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", 0, err
	}
	defer r.Close()
	pid, err := syscall.ForkExec(client, []string{"bash", "-c", command}, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{stdin.Fd(), w.Fd(), w.Fd()}})
	w.Close()
	if err != nil {
		return "", 0, err
	}
	done := make(chan string)
	go func() {
		buf := make([]byte, 64<<10)
		n := 0
		for n < len(buf) {
			m, err := r.Read(buf[n:])
			n += m
			if err != nil {
				break
			}
		}
		done <- string(buf[:n])
	}()
	ws, err := wait(pid)
	return <-done, ws.ExitStatus(), err
}

// execABI leaves the 64-bit system call ABI. Every filter that looks at numbers alone is blind here.
func execABI() []Attempt {
	const door = "exec-abi"
	var a []Attempt
	int80 := func(id, what string, control Control, calls func(t *Target) []call) {
		a = append(a, Attempt{door + "/int80-" + id, door, "int 0x80: " + what, control, func(t *Target) Outcome {
			cs := calls(t)
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
		p := t.scratch("abi")
		t.put(p, tinyELF(), 0o755)
		return []call{sys(11, t.str(p), t.argv(4, "x"), t.argv(4))}
	})
	int80("memfd", "memfd_create", Varies, func(t *Target) []call { return []call{sys(356, t.str("x"), 0)} })
	int80("io-uring", "io_uring_setup", Varies, func(t *Target) []call { return []call{sys(425, 1, t.bytes(make([]byte, 128)))} })
	int80("unshare", "unshare(NEWUSER)", Varies, one(sys(310, unix.CLONE_NEWUSER)))
	int80("ptrace", "ptrace(TRACEME)", Varies, one(sys(26, 0)))
	int80("chmod-suid", "chmod 04755", Varies, func(t *Target) []call {
		p := t.scratch("abi-suid")
		t.put(p, nil, 0o600)
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
		p := t.scratch("x32")
		t.put(p, tinyELF(), 0o755)
		return []uintptr{t.str(p), t.argv(4, "x"), t.argv(4)}
	})
	foreignNumber("x32-ptrace", "x32 ptrace(TRACEME)", Varies, x32|521, func(*Target) []uintptr { return []uintptr{0} })
	foreignNumber("high-bits-execve", "execve with bits above 32 set in its number", Opens, 1<<32|unix.SYS_EXECVE, func(t *Target) []uintptr {
		p := t.scratch("high")
		t.put(p, tinyELF(), 0o755)
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
			p := t.scratch("jit")
			t.put(p, tinyELF(), 0o755)
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

// execSwap changes a pinned file under its name. EXDEV, EBUSY and ETXTBSY are refusals here: the name is a mount point
// or the image is running.
func execSwap() []Attempt {
	const door = "exec-swap"
	also := []unix.Errno{unix.EBUSY, unix.ETXTBSY}
	targets := []struct {
		name    string
		path    func(*Target) string
		control Control
	}{
		{"owned", func(t *Target) string { return t.Owned }, Opens}, // shows that the attempts work
		{"self", func(t *Target) string { return t.Self }, Refused},
		{"loader", func(t *Target) string { return t.Loader }, Refused},
		{"client", func(*Target) string { return client }, NoServer},
	}
	var a []Attempt
	for _, x := range targets {
		add := func(id, what string, how func(t *Target, path string) Outcome) {
			a = append(a, Attempt{door + "/" + x.name + "-" + id, door, what + " (" + x.name + ")", x.control, func(t *Target) Outcome {
				path := x.path(t)
				if path == "" {
					return impossible("no such file here")
				}
				return how(t, path)
			}})
		}
		add("write", "open a pinned file for writing", func(t *Target, path string) Outcome {
			fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				unix.Close(fd)
			}
			return judge("open for writing", err, also...)
		})
		add("exchange", "rename another file over a pinned one", func(t *Target, path string) Outcome {
			mine := t.scratch("swap")
			if err := t.put(mine, tinyELF(), 0o755); err != nil {
				return judge("write", err)
			}
			// Exchanged, so that it can be put back.
			err := unix.Renameat2(unix.AT_FDCWD, mine, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)
			if err == nil {
				unix.Renameat2(unix.AT_FDCWD, mine, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)
			}
			return judge("renameat2 EXCHANGE", err, also...)
		})
		add("move", "move a pinned file away", func(t *Target, path string) Outcome {
			err := unix.Rename(path, path+".moved")
			if err == nil {
				unix.Rename(path+".moved", path)
			}
			return judge("rename", err, also...)
		})
		add("truncate", "truncate a pinned file by path, to the length it has", func(t *Target, path string) Outcome {
			var st unix.Stat_t
			if err := unix.Stat(path, &st); err != nil {
				return judge("stat", err)
			}
			return judge("truncate", unix.Truncate(path, st.Size), also...)
		})
		add("chmod", "change the mode of a pinned file to what it is", func(t *Target, path string) Outcome {
			var st unix.Stat_t
			if err := unix.Stat(path, &st); err != nil {
				return judge("stat", err)
			}
			return judge("chmod", unix.Chmod(path, st.Mode&0o777), also...)
		})
	}
	return append(a,
		Attempt{door + "/proc-self-exe", door, "open /proc/self/exe for writing", Refused, func(t *Target) Outcome {
			fd, err := unix.Open("/proc/self/exe", unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				unix.Close(fd)
			}
			return judge("open for writing", err, also...)
		}},
	)
}
