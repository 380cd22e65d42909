package agent

import (
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/sidedoor"
)

// rules is a policy with everything in it.
var rules = Policy{
	Exec: []string{"/opt/agent/agent", "/opt/agent/run.py", "/opt/agent/tool.sh", "/opt/agent/sh", "/opt/agent/hook", "/usr/bin/rg"}, Routed: []string{"/usr/bin/dash"}, Libraries: []string{"/usr/lib/libc.so.6"},
	Needs:     map[string]string{"/opt/agent/run.py": "/usr/bin/python3", "/opt/agent/tool.sh": "/opt/agent/sh", "/opt/agent/sh": "/lib/ld.so", "/opt/agent/hook": "/usr/bin/dash"},
	Links:     map[string]string{"/bin": "/usr/bin"},
	Workspace: "/work", State: "/state", Scratch: []string{"/tmp"}, Protected: map[string]string{"/work/.git": "file-git", "/work/.envrc": "file-config"},
	Layers: []string{"landlock", "view", "seccomp", "net", "mount", "protect"}, Client: "/run/sharness/bin/sharness-bash",
}

func asks(path string) *Event {
	return &Event{Kind: Denial, Errno: unix.EACCES, Asked: Text{Text: path}, Exe: Text{Text: "/opt/agent/agent"}}
}

func inet4(socket Socket, args ...uint64) *Event {
	e := &Event{Kind: Denial, Errno: unix.EACCES, Socket: &socket, Address: make([]byte, 16)}
	binary.NativeEndian.PutUint16(e.Address, unix.AF_INET)
	copy(e.Address[2:], []byte{1, 187, 192, 0, 2, 9})
	copy(e.Args[:], args)
	return e
}

func unixTo(path string) *Event {
	e := &Event{Kind: Denial, Errno: unix.EACCES, Socket: &Socket{Family: unix.AF_UNIX, Type: unix.SOCK_STREAM}, Address: []byte{0, 0}}
	binary.NativeEndian.PutUint16(e.Address, unix.AF_UNIX)
	e.Address = append(e.Address, path...)
	return e
}

func with(errno unix.Errno, args ...uint64) *Event {
	e := &Event{Kind: Denial, Errno: errno}
	copy(e.Args[:], args)
	return e
}

func (e *Event) and(change func(*Event)) *Event { change(e); return e }

const minus1 = 1<<64 - 1

func TestJudge(t *testing.T) {
	tcp, udp := Socket{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP}, Socket{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP}
	for _, tt := range []struct {
		name, call  string
		e           *Event
		kind        event.Type
		door, cause string
		want        string // blocker, target or path
	}{
		{"shell", "execve", asks("/bin/bash"), event.ExecDenied, "exec-direct", "view", "/usr/bin/bash"},
		{"relative", "execve", asks("x/../y").and(func(e *Event) { e.Base.Text = "/work/sub" }), event.ExecDenied, "exec-workspace", "view", "/work/sub/y"},
		// Where the folder is unknown, nothing is claimed about the path.
		{"relative to nowhere", "execve", asks("y"), event.ExecDenied, "exec-direct", "view", ""},
		{"beside the workspace", "execve", asks("/workspace/y"), event.ExecDenied, "exec-direct", "view", "/workspace/y"},
		{"tmp", "execve", asks("/tmp/a"), event.ExecDenied, "exec-workspace", "view", "/tmp/a"},
		{"script whose interpreter is not pinned", "execve", asks("/opt/agent/run.py"), event.ExecDenied, "exec-direct", "view", "/usr/bin/python3"},
		{"script whose interpreter's loader is not", "execve", asks("/opt/agent/tool.sh"), event.ExecDenied, "exec-direct", "view", "/lib/ld.so"},
		{"script for a routed shell", "execve", asks("/opt/agent/hook"), event.ExecDenied, "exec-direct", "unknown", "/opt/agent/hook"},
		{"pinned", "execve", asks("/usr/bin/rg"), event.ExecDenied, "exec-direct", "unknown", "/usr/bin/rg"},
		{"descriptor under a filter", "execveat", with(unix.EPERM).and(func(e *Event) { e.Base.Text, e.Args[4] = "/usr/bin/env", unix.AT_EMPTY_PATH }), event.ExecDenied, "exec-direct", "seccomp", "/usr/bin/env"},
		{"name under the program's own filter", "execve", asks("/usr/bin/env").and(func(e *Event) { e.Errno = unix.EPERM }), event.ExecDenied, "exec-direct", "unknown", "/usr/bin/env"},
		{"memfd by descriptor", "execveat", asks("").and(func(e *Event) { e.Base = Text{Text: "/memfd:a", Detached: true}; e.Image = &Image{} }), event.ExecDenied, "exec-memfd", "view", "/memfd:a"},
		{"loader", "mmap", with(unix.EPERM).and(func(e *Event) { e.Exe.Text, e.Base.Text, e.NoExec = "/lib64/ld-linux-x86-64.so.2", "/work/a", true }), event.ExecDenied, "exec-ldso", "view", "/work/a"},
		{"loader by name", "execve", asks("/lib64/ld-linux-x86-64.so.2"), event.ExecDenied, "exec-ldso", "view", "/lib64/ld-linux-x86-64.so.2"},
		{"dlopen", "mmap", with(unix.EPERM).and(func(e *Event) { e.Exe.Text, e.Base.Text, e.NoExec = "/opt/agent/agent", "/work/a.so", true }), event.ExecDenied, "exec-inject", "view", "/work/a.so"},
		{"memfd_create", "memfd_create", with(unix.ENOSYS), event.MemfdDenied, "exec-memfd", "seccomp", ""},

		{"kill", "kill", with(unix.EPERM, 42, 15), event.SignalDenied, "sig", "landlock", "pid 42, SIGTERM"},
		{"kill 1", "kill", with(unix.EPERM, 1, 9), event.SignalDenied, "pid1", "landlock", "pid 1, SIGKILL"},
		{"group", "kill", with(unix.EPERM, minus1-6, 0), event.SignalDenied, "sig", "landlock", "group 7, signal 0"},
		{"tgkill", "tgkill", with(unix.EPERM, 42, 43, 9), event.SignalDenied, "sig", "landlock", "pid 42, SIGKILL"},
		{"pidfd", "pidfd_send_signal", with(unix.EPERM, 1, 9), event.SignalDenied, "sig", "landlock", "pidfd 1, SIGKILL"},
		{"ptrace", "ptrace", with(unix.EPERM, unix.PTRACE_ATTACH, 42), event.PtraceDenied, "ptrace", "seccomp", "pid 42"},
		{"memory of pid 1", "process_vm_readv", with(unix.EPERM, 1), event.PtraceDenied, "pid1", "seccomp", "pid 1"},
		{"limit of pid 1", "prlimit64", with(unix.ENOSYS, 1, unix.RLIMIT_CPU), event.SignalDenied, "pid1", "seccomp", "pid 1"},
		{"core limit", "prlimit64", with(unix.ENOSYS, 0, unix.RLIMIT_CORE), event.SyscallDenied, "core-helper", "seccomp", "limit 4"},
		{"core limit with high bits", "prlimit64", with(unix.ENOSYS, 0, 1<<32|unix.RLIMIT_CORE), event.SyscallDenied, "core-helper", "seccomp", "limit 4"},
		{"raised limit", "prlimit64", with(unix.EPERM, 0, unix.RLIMIT_NOFILE), event.SyscallDenied, "", "dac", "limit 7"},
		{"own priority", "setpriority", with(unix.EACCES, 0, 0, minus1), event.SyscallDenied, "", "dac", "own"},

		{"unshare", "unshare", with(unix.EPERM, unix.CLONE_NEWUSER), event.NSDenied, "ns", "seccomp", "flags 0x10000000"},
		{"mount", "mount", asks("/mnt"), event.NSDenied, "ns", "seccomp", "/mnt"},
		{"io_uring", "io_uring_setup", with(unix.ENOSYS), event.SyscallDenied, "kernel", "seccomp", ""},
		{"setuid", "setresuid", with(unix.EPERM), event.SyscallDenied, "setid", "dac", ""},
		{"TIOCSTI with high bits", "ioctl", with(unix.EPERM, 0, 1<<32|unix.TIOCSTI), event.SyscallDenied, "tty", "seccomp", "request 0x5412"},
		{"ioctl that loads a module", "ioctl", with(unix.EPERM, 0, unix.SIOCGIFBR), event.SyscallDenied, "kernel", "seccomp", "request 0x8940"},
		{"another ioctl", "ioctl", with(unix.EPERM, 0, 1), event.SyscallDenied, "", "unknown", "request 0x1"},
		{"lease", "fcntl", with(unix.EPERM, 3, unix.F_SETLEASE), event.FileDenied, "file-lease", "seccomp", "command 1024"},

		{"another host", "connect", inet4(tcp), event.NetDenied, "net-host", "landlock", "tcp 192.0.2.9:443"},
		{"no network", "connect", inet4(tcp).and(func(e *Event) { e.Errno = unix.ENETUNREACH }), event.NetDenied, "net-host", "net", "tcp 192.0.2.9:443"},
		{"dns", "sendto", inet4(udp).and(func(e *Event) { e.Errno = unix.ENETUNREACH }), event.NetDenied, "net-udp", "net", "udp 192.0.2.9:443"},
		{"dns under ABI 10", "sendto", inet4(udp), event.NetDenied, "net-udp", "landlock", "udp 192.0.2.9:443"},
		{"mptcp", "connect", inet4(Socket{unix.AF_INET, unix.SOCK_STREAM, 262}), event.NetDenied, "net-mptcp", "landlock", "mptcp 192.0.2.9:443"},
		{"fast open", "sendto", inet4(tcp, 0, 0, 0, unix.MSG_FASTOPEN), event.NetDenied, "net-tfo", "seccomp", "tcp 192.0.2.9:443"},
		{"fast open by msghdr", "sendmsg", inet4(tcp, 0, 0, unix.MSG_FASTOPEN), event.NetDenied, "net-tfo", "seccomp", "tcp 192.0.2.9:443"},
		{"fast open by option", "setsockopt", with(unix.EPERM, 0, unix.IPPROTO_TCP, unix.TCP_FASTOPEN_CONNECT), event.NetDenied, "net-tfo", "seccomp", "option 30 of level 6"},
		{"program on a socket", "setsockopt", with(unix.EPERM, 0, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER), event.NetDenied, "orch-bomb", "seccomp", "option 26 of level 1"},
		{"key of TCP", "setsockopt", with(unix.EPERM, 0, unix.IPPROTO_TCP, unix.TCP_MD5SIG), event.NetDenied, "kernel", "seccomp", "option 14 of level 6"},
		{"another option", "setsockopt", with(unix.EPERM, 0, unix.SOL_SOCKET, unix.SO_MARK), event.NetDenied, "", "dac", "option 36 of level 1"},
		{"bind", "bind", inet4(tcp), event.NetDenied, "net-listen", "landlock", "tcp 192.0.2.9:443"},
		{"vsock", "socket", with(unix.EPERM, unix.AF_VSOCK, unix.SOCK_STREAM), event.NetDenied, "net-family", "seccomp", "vsock"},
		{"raw", "socket", with(unix.EPERM, unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 1), event.NetDenied, "net-udp", "seccomp", "ip type 3 protocol 1"},
		{"docker", "connect", unixTo("/run/docker.sock\x00"), event.NetDenied, "unix-path", "dac", "unix /run/docker.sock"},
		{"abstract", "connect", unixTo("\x00name"), event.NetDenied, "unix-abstract", "landlock", "unix @name"},
		{"received descriptors", "recvmsg", with(unix.EPERM), event.NetDenied, "exec-scm", "seccomp", ""},

		{"set-uid", "fchmodat", asks("/work/a").and(func(e *Event) { e.Args[2] = 0o4755 }), event.FileDenied, "file-suid", "seccomp", "/work/a"},
		{"mode", "fchmodat", asks("/usr/a").and(func(e *Event) { e.Args[2] = 0o755 }), event.FileDenied, "file-meta", "landlock", "/usr/a"},
		{"fifo", "mknodat", asks("/work/f").and(func(e *Event) { e.Args[2] = unix.S_IFIFO | 0o644 }), event.FileDenied, "file-fifo", "landlock", "/work/f"},
		{"device", "mknodat", asks("/work/d").and(func(e *Event) { e.Errno, e.Args[2] = unix.EPERM, unix.S_IFCHR }), event.FileDenied, "file-fifo", "seccomp", "/work/d"},
		{"secret", "openat", asks("/etc/shadow"), event.FileDenied, "file-secret", "landlock", "/etc/shadow"},
		{"hook", "openat", asks("/work/.git/hooks/pre-commit").and(func(e *Event) { e.Args[2] = unix.O_WRONLY | unix.O_CREAT }), event.FileDenied, "file-git", "landlock", "/work/.git/hooks/pre-commit"},
		{"sysctl", "openat", asks("/proc/sys/kernel/core_pattern").and(func(e *Event) { e.Args[2] = unix.O_WRONLY }), event.FileDenied, "file-proc", "landlock", "/proc/sys/kernel/core_pattern"},
		{"swap", "openat", asks("/usr/bin/rg").and(func(e *Event) { e.Args[2] = unix.O_RDWR }), event.FileDenied, "exec-swap", "landlock", "/usr/bin/rg"},
		{"hook through /proc", "openat", asks("/proc/self/root/work/.git/config").and(func(e *Event) { e.Args[2] = unix.O_WRONLY; e.Errno = unix.EROFS }), event.FileDenied, "file-git", "protect", "/work/.git/config"},
		{"reading a hook", "openat", asks("/work/.git/hooks/pre-commit"), event.FileDenied, "file-secret", "landlock", "/work/.git/hooks/pre-commit"},
		{"renaming what is mounted upon", "renameat2", asks("/work/.git").and(func(e *Event) { e.Errno = unix.EBUSY }), event.FileDenied, "file-git", "protect", "/work/.git"},
		{"what a shell obeys", "openat", asks("/work/.envrc").and(func(e *Event) { e.Args[2] = unix.O_WRONLY; e.Errno = unix.EROFS }), event.FileDenied, "file-config", "protect", "/work/.envrc"},
		{"renaming a hook away", "renameat2", asks("/work/x").and(func(e *Event) { e.More.Text = "/work/.git/hooks/pre-commit"; e.Errno = unix.EBUSY }), event.FileDenied, "file-git", "protect", "/work/x"},
		{"renaming a program away", "renameat2", asks("/tmp/x").and(func(e *Event) { e.More.Text = "/usr/bin/rg" }), event.FileDenied, "exec-swap", "landlock", "/tmp/x"},
		{"linking a program", "linkat", asks("/work/x").and(func(e *Event) { e.More.Text = "/usr/bin/rg" }), event.FileDenied, "file-config", "landlock", "/work/x"},
		{"mode on a read-only mount", "fchmodat", asks("/usr/a").and(func(e *Event) { e.Args[2] = 0o755; e.Errno = unix.EROFS }), event.FileDenied, "file-meta", "mount", "/usr/a"},
		{"mode of a protected name", "fchmodat", asks("/work/.git/config").and(func(e *Event) { e.Args[2] = 0o755; e.Errno = unix.EROFS }), event.FileDenied, "file-meta", "protect", "/work/.git/config"},
		{"memory of pid 1", "openat", asks("/proc/1/mem"), event.FileDenied, "pid1", "landlock", "/proc/1/mem"},
		{"root of another", "openat", asks("/proc/77/root/etc/x"), event.FileDenied, "ptrace", "landlock", "/proc/77/root/etc/x"},
		{"own folder", "openat", asks("/proc/42/mem").and(func(e *Event) { e.Proc.NSPID = 42 }), event.FileDenied, "file-secret", "landlock", "/proc/42/mem"},
		{"client", "openat", asks("/run/sharness/bin/sharness-bash").and(func(e *Event) { e.Args[2] = unix.O_WRONLY }), event.FileDenied, "exec-swap", "landlock", "/run/sharness/bin/sharness-bash"},
		{"number with high bits", "unshare", with(unix.EPERM).and(func(e *Event) { e.WideNR = true }), event.NSDenied, "exec-abi", "seccomp", "flags 0x0"},
		{"program through /proc", "execve", asks("/proc/self/root/usr/bin/env"), event.ExecDenied, "exec-direct", "view", "/usr/bin/env"},
		{"cgroup", "openat", asks("/sys/fs/cgroup/cgroup.procs").and(func(e *Event) { e.Args[2] = unix.O_WRONLY }), event.FileDenied, "cg-escape", "landlock", "/sys/fs/cgroup/cgroup.procs"},
	} {
		c := calls[int(numberOf(tt.call))]
		tt.e.NR = c.nr
		v := rules.judge(c, tt.e)
		got := v.target
		if got == "" {
			got = v.blocker
		}
		if got == "" {
			got = v.path
		}
		if v.kind != tt.kind || v.door != tt.door || v.cause != tt.cause || got != tt.want {
			t.Errorf("%s: got %s, %q, %s, %q, want %s, %q, %s, %q", tt.name, v.kind, v.door, v.cause, got, tt.kind, tt.door, tt.cause, tt.want)
		}
		if _, known := sidedoor.ByID(v.door); v.door != "" && !known {
			t.Errorf("%s: no door %s in the catalogue", tt.name, v.door)
		}
	}
}

func TestProbesAreMarked(t *testing.T) {
	if v := rules.judge(calls[unix.SYS_KILL], with(unix.EPERM, 42, 0)); !v.probe {
		t.Error("signal 0 is a question")
	}
	e := asks("/bin/sh").and(func(e *Event) { e.NR, e.Args[4] = unix.SYS_EXECVEAT, atExecveCheck })
	if v := rules.judge(calls[unix.SYS_EXECVEAT], e); !v.probe {
		t.Error("AT_EXECVE_CHECK is a question")
	}
}

func TestWithoutLayersNothingIsBlamed(t *testing.T) {
	var none Policy
	for call, want := range map[string]string{"execve": causeDAC, "unshare": causeUnknown, "kill": causeUnknown, "connect": causeUnknown} {
		if v := none.judge(calls[int(numberOf(call))], with(unix.EACCES, 5)); v.cause != want {
			t.Errorf("%s: got %s, want %s", call, v.cause, want)
		}
	}
}

func TestKilledCallsOfAnotherABIHaveTheirDoor(t *testing.T) {
	r := NewReporter(rules, foldOptions, discard)
	for door, e := range map[string]*Event{
		"exec-abi": {Kind: Killed, NR: 11, Arch: unix.AUDIT_ARCH_I386},
		"":         {Kind: Killed, NR: unix.SYS_KEYCTL, Arch: auditArch}, // by a filter of its own
	} {
		if ev := r.describe(e); ev.Door != door {
			t.Errorf("got %s, want %s", ev.Door, door)
		}
	}
	if ev := r.describe(&Event{Kind: Killed, NR: x32Bit | 39, Arch: auditArch}); ev.Door != "exec-abi" || ev.Syscall != "x32 call 39" {
		t.Errorf("x32: got %s through %s", ev.Syscall, ev.Door)
	}
}

func TestDenialsOfOurSelfTestAreMarked(t *testing.T) {
	p := rules
	p.Stage = []string{"/usr/local/libexec/sharness/sharness-init", "/usr/local/libexec/sharness/sharness-box"}
	r := NewReporter(p, foldOptions, discard)
	e := asks("/usr/bin/true").and(func(e *Event) { e.NR, e.Exe.Text = unix.SYS_EXECVE, p.Stage[0] })
	if ev := r.describe(e); ev.Phase != "probe" {
		t.Errorf("got phase %q, want probe", ev.Phase)
	}
	e.Exe.Text = "/lib/sharness-init" // what is left of the path where the program lies on another file system
	if ev := r.describe(e); ev.Phase != "probe" {
		t.Errorf("got phase %q, want probe by another path", ev.Phase)
	}
	if ev := r.describe(asks("/usr/bin/true").and(func(e *Event) { e.NR = unix.SYS_EXECVE })); ev.Phase != "" {
		t.Errorf("got phase %q for the agent's own", ev.Phase)
	}
	e.Time = time.Unix(2, 0)
	asRoot, named := e.Proc, e.Proc
	asRoot.UID, named.UID, named.PID = 0, 1900000000, e.Proc.PID+1
	r.Event(&Event{Kind: Exec, Time: time.Unix(1, 0), Proc: asRoot, Exe: Text{Text: "/sharness-box"}})
	if ev := r.describe(e); ev.Phase != "probe" {
		t.Errorf("got phase %q, want probe once the stage went through its own other program", ev.Phase)
	}
	r.Event(&Event{Kind: Exec, Time: time.Unix(1, 0), Proc: named, Exe: Text{Text: "/opt/sharness-box"}})
	r.Event(&Event{Kind: Exec, Time: time.Unix(1, 0), Proc: named, Exe: Text{Text: "/opt/sharness-init"}})
	other := *e
	other.Proc = named
	if ev := r.describe(&other); ev.Phase != "" {
		t.Errorf("got phase %q for an agent and a program of its that are called as the stage's", ev.Phase)
	}
	r.Event(&Event{Kind: Exec, Time: time.Unix(1, 0), Proc: e.Proc, Exe: Text{Text: "/usr/bin/agent"}})
	if ev := r.describe(e); ev.Phase != "" {
		t.Errorf("got phase %q for a program of the stage's name that the agent executes", ev.Phase)
	}
	e.Time = time.Unix(0, 0)
	if ev := r.describe(e); ev.Phase != "probe" {
		t.Errorf("got phase %q for a denial that is read late, want probe", ev.Phase)
	}
}
