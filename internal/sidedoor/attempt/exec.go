package attempt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// client is the one program that a domain offers beside the pinned ones; a routed path is the same file.
const client = "/run/sharness/bin/sharness-bash"

// routed tells whether path is the bash-server's client under another name: executing it is a request, not a way past.
func routed(path string) bool {
	var a, b unix.Stat_t
	return unix.Stat(path, &a) == nil && unix.Stat(client, &b) == nil && a.Dev == b.Dev && a.Ino == b.Ino
}

// run executes a program and returns its exit status (negative: the signal) and what it printed.
func run(path string, argv, env []string, files ...uintptr) (status int, output string, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, "", err
	}
	defer r.Close()
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		w.Close()
		return 0, "", err
	}
	defer null.Close()
	fds := append([]uintptr{null.Fd(), w.Fd(), w.Fd()}, files...)
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: env, Files: fds})
	w.Close()
	if err != nil {
		var e syscall.Errno
		if errors.As(err, &e) {
			err = e
		}
		return 0, "", err
	}
	done := make(chan string)
	go func() {
		out, _ := io.ReadAll(io.LimitReader(r, 16<<10))
		done <- string(out)
	}()
	ws, err := wait(pid)
	if err != nil {
		return 0, "", err
	}
	output = <-done
	if ws.Signaled() {
		return -int(ws.Signal()), output, nil
	}
	return ws.ExitStatus(), output, nil
}

// execute tries to start path. That execve succeeded is enough: the walls had to stand before it.
func execute(path string, argv ...string) Outcome {
	if routed(path) {
		return closed("%s is the bash-server's client here", path)
	}
	if len(argv) == 0 {
		argv = []string{path}
	}
	status, out, err := run(path, argv, []string{"PATH=/usr/bin:/bin"})
	if err != nil {
		return judge("execve "+path, err)
	}
	return opened("%s ran, status %d %s", path, status, oneLine(out))
}

func oneLine(s string) string {
	s = strings.TrimSpace(s)
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = s[:i]
	}
	return strconv.QuoteToGraphic(s[:min(len(s), 160)])
}

func execDirect() []Attempt {
	const door = "exec-direct"
	var a []Attempt
	shells := []string{"/bin/sh", "/bin/bash", "/usr/bin/bash", "/bin/dash", "/usr/bin/python3", "/usr/bin/perl", "/usr/bin/awk", "/usr/bin/env",
		"/usr/bin/vim", "/usr/bin/git", "/usr/bin/busybox", "/usr/bin/node", "/usr/bin/ssh", "/usr/bin/curl", "/usr/bin/true", "/usr/bin/find",
		"/usr/bin/make", "/usr/bin/gcc", "/usr/bin/gdb", "/usr/bin/systemd-run", "/usr/bin/setsid", "/usr/bin/unshare"}
	for _, p := range shells {
		control := Varies
		if p == "/bin/sh" || p == "/bin/bash" || p == "/usr/bin/true" {
			control = Opens
		}
		a = append(a, Attempt{door + "/" + nameOf(p), door, "execute " + p, control, func(*Target) Outcome { return execute(p, p, "--version") }})
	}
	unlisted := func(id, what string, control Control, how func(t *Target) Outcome) {
		a = append(a, Attempt{door + "/" + id, door, what, control, func(t *Target) Outcome {
			if t.Unlisted == "" {
				return impossible("no bait")
			}
			return how(t)
		}})
	}
	unlisted("unlisted", "execute a program that the manifest does not list", Opens, func(t *Target) Outcome { return execute(t.Unlisted) })
	unlisted("symlink", "execute it through a symbolic link", Opens, func(t *Target) Outcome {
		link := t.scratch("link")
		if err := os.Symlink(t.Unlisted, link); err != nil {
			return judge("symlink", err)
		}
		return execute(link)
	})
	unlisted("hardlink", "execute it through a hard link", Varies, func(t *Target) Outcome { // protected_hardlinks
		link := t.scratch("hard")
		if err := unix.Link(t.Unlisted, link); err != nil {
			return judge("link", err)
		}
		return execute(link)
	})
	unlisted("proc-self-root", "execute it as /proc/self/root/…", Opens, func(t *Target) Outcome { return execute("/proc/self/root" + t.Unlisted) })
	unlisted("proc-1-root", "execute it as /proc/1/root/…", Refused, func(t *Target) Outcome { return execute("/proc/1/root" + t.Unlisted) })
	unlisted("proc-self-cwd", "execute it as /proc/self/cwd/../…", Opens, func(t *Target) Outcome {
		dir, err := os.Getwd()
		if err != nil {
			return judge("getcwd", err)
		}
		return execute("/proc/self/cwd" + strings.Repeat("/..", strings.Count(dir, "/")) + t.Unlisted)
	})
	unlisted("proc-self-fd", "open it and execute /proc/self/fd/N", Opens, func(t *Target) Outcome {
		f, err := os.Open(t.Unlisted)
		if err != nil {
			return judge("open", err)
		}
		defer f.Close()
		return execute(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	})
	unlisted("o-path", "open it with O_PATH and execveat(AT_EMPTY_PATH)", Opens, func(t *Target) Outcome {
		fd, err := unix.Open(t.Unlisted, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return judge("open", err)
		}
		defer unix.Close(fd)
		return execFD(t, fd)
	})
	unlisted("dotdot", "execute it through .. and doubled slashes", Opens, func(t *Target) Outcome { return execute("//usr/..//" + t.Unlisted) })
	unlisted("copy", "copy it under another name into the workspace and execute the copy", Opens, func(t *Target) Outcome {
		raw, err := os.ReadFile(t.Unlisted)
		if err != nil {
			return judge("read", err)
		}
		p := t.scratch("copy")
		if err := t.put(p, raw, 0o755); err != nil {
			return judge("write", err)
		}
		return execute(p)
	})
	unlisted("argv0", "execute it with the name of a listed program in argv[0]", Opens, func(t *Target) Outcome { return execute(t.Unlisted, t.Self) })
	unlisted("client-relative", "execute it relative to the client's folder", Varies, func(t *Target) Outcome {
		return execute(filepath.Dir(client) + "/../../.." + t.Unlisted)
	})
	return a
}

// execFD executes a descriptor by execveat and by its name below /proc.
func execFD(t *Target, fd int) Outcome {
	_, err := t.forked(sys(unix.SYS_EXECVEAT, uintptr(fd), t.str(""), t.argv(8, "x"), t.argv(8), unix.AT_EMPTY_PATH))
	first := judgeForked("execveat(fd, AT_EMPTY_PATH)", err)
	_, err = t.forked(sys(unix.SYS_EXECVE, t.str(fmt.Sprintf("/proc/self/fd/%d", fd)), t.argv(8, "x"), t.argv(8)))
	return worst(first, judgeForked("execve /proc/self/fd/N", err))
}

// tinyELF is a whole static program: exit_group(PayloadStatus).
func tinyELF() []byte {
	code := []byte{0xbf, PayloadStatus, 0, 0, 0, 0xb8, 231, 0, 0, 0, 0x0f, 0x05} // mov edi; mov eax; syscall
	const base, headers = 0x400000, 64 + 56
	var b bytes.Buffer
	b.Write([]byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	le := func(size int, v uint64) {
		for i := range size {
			b.WriteByte(byte(v >> (8 * i)))
		}
	}
	le(2, 2)            // ET_EXEC
	le(2, 62)           // EM_X86_64
	le(4, 1)            // version
	le(8, base+headers) // entry
	le(8, 64)           // program headers
	le(8, 0)            // section headers
	le(4, 0)            // flags
	for _, v := range []uint64{64, 56, 1, 0, 0, 0} {
		le(2, v)
	}
	le(4, 1) // PT_LOAD
	le(4, 5) // read, execute
	size := uint64(headers + len(code))
	for _, v := range []uint64{0, base, base, size, size, 0x1000} {
		le(8, v)
	}
	b.Write(code)
	return b.Bytes()
}
