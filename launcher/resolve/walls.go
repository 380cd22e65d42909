package resolve

import (
	"fmt"
	"strings"

	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/launcher/host"
)

// layerOrder is the order layers are shown in: those of the kernel first.
var layerOrder = []sidedoor.Layer{
	sidedoor.Landlock, sidedoor.View, sidedoor.Seccomp, sidedoor.PID, sidedoor.Memfd, sidedoor.Net, sidedoor.Mount,
	sidedoor.UID, sidedoor.Cgroup, sidedoor.FD, sidedoor.Pin, sidedoor.Protect, sidedoor.Relay, sidedoor.Server,
	sidedoor.TTY, sidedoor.Rlimit, sidedoor.Env, sidedoor.Sink, sidedoor.Filter,
}

// walls returns what each layer lacks here; nil: it holds.
func walls(f *host.Features) map[sidedoor.Layer]*Need {
	seccomp := needSeccomp(f)
	mount := firstNeed(needNamespace(f, "mnt"), needTrial("open_tree", f.OpenTree, "needs Linux 5.12 or newer"))
	pid := needNamespace(f, "pid")
	return map[sidedoor.Layer]*Need{
		sidedoor.Landlock: needLandlock(f, seccomp),
		sidedoor.Seccomp:  seccomp,
		sidedoor.Mount:    mount,
		sidedoor.View:     mount,
		sidedoor.Pin:      mount, // the hash is taken through the clone that is executed
		sidedoor.Protect:  mount,
		sidedoor.PID:      pid,
		sidedoor.Memfd:    firstNeed(pid, needTrial("vm.memfd_noexec", f.MemfdNoexec, "needs Linux 6.3 or newer")),
		sidedoor.Net:      needNamespace(f, "net"),
		sidedoor.Relay:    needNamespace(f, "net"), // without it the relay can be walked around
		sidedoor.UID:      needIDs(f),
		sidedoor.Server:   needIDs(f), // what parses must not be root
		sidedoor.Sink:     needIDs(f),
		sidedoor.Filter:   nil,
		sidedoor.Cgroup:   needCgroup(f),
		sidedoor.FD:       needTrial("close_range", f.CloseRange, "needs Linux 5.9 or newer"),
		sidedoor.Rlimit:   needCoreLimit(f.CorePattern),
		sidedoor.TTY:      nil,
		sidedoor.Env:      nil,
	}
}

func needLandlock(f *host.Features, seccomp *Need) *Need {
	if f.Landlock.ABI <= 0 {
		return &Need{Why: orElse(f.Landlock.Cause, "not available"), Fix: "a kernel with CONFIG_SECURITY_LANDLOCK, and landlock in lsm= on its command line"}
	}
	if f.Landlock.KeyctlErratum && seccomp != nil {
		return &Need{Why: "this kernel may let keyctl shed a domain (CVE-2024-42318), and no filter stops the call",
			Fix: "Linux 6.1.103, 6.6.44, 6.10.3 or newer"}
	}
	return nil
}

func needSeccomp(f *host.Features) *Need {
	const fix = "a kernel with CONFIG_SECCOMP_FILTER; in a container, a profile that lets seccomp(2) through"
	if n := needTrial("seccomp filter", f.Seccomp.Filter, fix); n != nil {
		return n
	}
	for _, action := range []string{"errno", "kill_process", "allow"} {
		if !f.Seccomp.HasAction(action) {
			return &Need{Why: "seccomp has no action " + action, Fix: fix}
		}
	}
	return nil
}

func needNamespace(f *host.Features, name string) *Need {
	return needTrial(name+" namespace", f.Namespaces[name], fmt.Sprintf("a kernel with %s; in a container, CAP_SYS_ADMIN", namespaceConfig[name]))
}

var namespaceConfig = map[string]string{
	"mnt": "mount namespaces", "pid": "CONFIG_PID_NS", "net": "CONFIG_NET_NS", "ipc": "CONFIG_IPC_NS", "uts": "CONFIG_UTS_NS",
	"cgroup": "CONFIG_CGROUPS", "user": "CONFIG_USER_NS",
}

func needCgroup(f *host.Features) *Need {
	for _, name := range []string{"pids", "memory"} {
		c, ok := f.Cgroup.Controllers[name]
		if !ok {
			return &Need{Why: "no " + name + " controller", Fix: "mount cgroup2 on /sys/fs/cgroup (memory may need cgroup_enable=memory on the kernel's command line)"}
		}
		if !c.Writable {
			return &Need{Why: fmt.Sprintf("the %s controller at %s cannot be written", name, c.Mount), Fix: "in a container, a writable cgroup mount; otherwise root"}
		}
	}
	return nil
}

// needIDs asks for what changing to an id of one's own takes.
func needIDs(f *host.Features) *Need {
	var missing []string
	for _, c := range []string{"CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"} {
		if !f.HasCapability(c) {
			missing = append(missing, c)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return &Need{Why: "without " + strings.Join(missing, ", "), Fix: "run as root"}
}

// needCoreLimit: since Linux 6.16 a pattern of "@SOCKET" has the kernel itself connect to a daemon outside and send it the core,
// and no limit is asked first, as it is before a piped handler starts. Older kernels take it for the name of a file, and an
// administrator who wrote it for that is asked all the same: it would change its meaning with the next kernel.
func needCoreLimit(pattern *string) *Need {
	const fix = "kernel.core_pattern with a file's name, or with a handler behind a |, which the limit of 1 stops"
	switch {
	case pattern == nil:
		return &Need{Why: "kernel.core_pattern cannot be read", Fix: fix}
	case strings.HasPrefix(*pattern, "@"):
		return &Need{Why: "kernel.core_pattern is a socket, which no limit keeps a core from", Fix: fix}
	}
	return nil
}

func needTrial(what string, t host.Trial, fix string) *Need {
	if t.State == host.Yes {
		return nil
	}
	return &Need{Why: what + ": " + orElse(t.Cause, "not available"), Fix: fix}
}

func firstNeed(needs ...*Need) *Need {
	for _, n := range needs {
		if n != nil {
			return n
		}
	}
	return nil
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
