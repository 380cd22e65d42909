// Package host measures what the running kernel and this process can do: the features that Resolve decides on.
//
// Every answer comes from trying the thing itself in a way that leaves nothing behind (a child that exits at once, a
// mount that is never attached), never from a version number: distributions backport, containers take away. The one
// exception is the keyctl erratum of Landlock, which cannot be tried without provoking it; it says so.
// Probe works for any uid, and an answer that needs more privilege is State Unknown, not no.
package host

import (
	"fmt"
	"runtime"

	"github.com/sharness/sharness/launcher/mountinfo"
)

// State is the outcome of one attempt.
type State string

// The outcomes. Unknown means that this process was not privileged enough to find out.
const (
	Yes     State = "yes"
	No      State = "no"
	Unknown State = "unknown"
)

// Trial is one attempt and, unless it succeeded, what it met.
type Trial struct {
	State State  `json:"state"`
	Cause string `json:"cause,omitempty"`
}

// Features is everything Probe found. The zero value is a host on which nothing works.
type Features struct {
	Kernel  string `json:"kernel"`  // uname's release
	Version string `json:"version"` // uname's version: the build
	Machine string `json:"machine"`

	UID          int      `json:"uid"`
	Capabilities []string `json:"capabilities"` // effective, of this process

	Landlock   Landlock         `json:"landlock"`
	Seccomp    Seccomp          `json:"seccomp"`
	Namespaces map[string]Trial `json:"namespaces"`          // cgroup, ipc, mnt, net, pid, time, user, uts
	MaxUserNS  *int             `json:"max_user_namespaces"` // user.max_user_namespaces; nil when there is no such file
	Cgroup     Cgroup           `json:"cgroup"`
	Container  Container        `json:"container"`

	Idmap            []Idmap `json:"idmap"` // one for each path of Options
	MountNoSymfollow Trial   `json:"mount_nosymfollow"`
	MemfdNoexec      Trial   `json:"memfd_noexec"` // 2 written and read back inside a new pid namespace

	OpenTree      Trial `json:"open_tree"` // detached clone of a mount
	Openat2       Trial `json:"openat2"`
	CloseRange    Trial `json:"close_range"`
	Pidfd         Trial `json:"pidfd"`
	PeerPidfd     Trial `json:"peer_pidfd"`     // SO_PEERPIDFD
	ExecveCheck   Trial `json:"execve_check"`   // AT_EXECVE_CHECK
	MemfdCreate   Trial `json:"memfd_create"`   // sealed, as we hand plans over
	CgroupKill    Trial `json:"cgroup_kill"`    // cgroup.kill below the unified hierarchy
	BTF           Trial `json:"btf"`            // /sys/kernel/btf/vmlinux
	Tracefs       Trial `json:"tracefs"`        // mounted
	LegacyTIOCSTI *int  `json:"legacy_tiocsti"` // dev.tty.legacy_tiocsti; nil: the kernel has no such switch
	YamaScope     *int  `json:"yama_ptrace_scope"`

	CorePattern *string `json:"core_pattern"` // kernel.core_pattern; nil: it cannot be read

	LSMs     []string `json:"lsms"`     // in order; empty when securityfs is not mounted
	Lockdown string   `json:"lockdown"` // none, integrity, confidentiality; empty when it cannot be read
}

// Options says what to probe beyond the kernel.
type Options struct {
	Paths []string // absolute paths whose filesystems are tried for idmapped mounts; default "/"
}

// Probe measures the running host. An error means that the measuring itself broke (no /proc, no uname), not that a
// feature is missing.
func Probe(o Options) (*Features, error) {
	f := &Features{}
	if err := f.readKernel(); err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	// Attempts change the credentials or namespaces of a thread for a moment: keep them on one thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	root := f.HasCapability("CAP_SYS_ADMIN")
	f.Landlock = probeLandlock()
	f.Landlock.KeyctlErratum = keyctlErratum(f.Kernel, f.Version)
	f.Seccomp = probeSeccomp()
	f.Namespaces = probeNamespaces()
	f.MemfdNoexec = probeMemfdNoexec(root)
	f.probeCalls()
	mounts, err := mountinfo.Read()
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	if f.Cgroup, err = readCgroup(mounts); err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	f.CgroupKill = probeCgroupKill(f.Cgroup, root)
	f.Container = readContainer()
	f.readTracing(mounts)
	paths := o.Paths
	if len(paths) == 0 {
		paths = []string{"/"}
	}
	f.probeMounts(paths, mounts, root)
	return f, nil
}

// HasCapability reports whether name (CAP_SYS_ADMIN) is in this process's effective set.
func (f *Features) HasCapability(name string) bool {
	for _, c := range f.Capabilities {
		if c == name {
			return true
		}
	}
	return false
}
