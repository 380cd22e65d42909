package resolve

import (
	"fmt"

	"github.com/sharness/sharness/launcher/host"
)

// requirements is what no --allow-open replaces: without it a session cannot be built, whatever it would be worth.
func requirements(f *host.Features) []Requirement {
	out := []Requirement{}
	add := func(name string, n *Need) {
		if n != nil {
			out = append(out, Requirement{Name: name, Need: *n})
		}
	}
	if f.UID != 0 {
		add("root", &Need{Why: fmt.Sprintf("running as uid %d", f.UID), Fix: "sudo sharness …"})
		return out // everything below is unknown, not missing
	}
	for _, c := range []string{"CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_KILL", "CAP_NET_ADMIN"} {
		if !f.HasCapability(c) {
			add(c, &Need{Why: "root here is without " + c, Fix: "in a container, run it with this capability"})
		}
	}
	add("memfd_create", needTrial("memfd_create", f.MemfdCreate, "needs Linux 3.17 or newer"))
	add("openat2", needTrial("openat2", f.Openat2, "needs Linux 5.6 or newer"))
	add("pidfd", needTrial("pidfd_open", f.Pidfd, "needs Linux 5.3 or newer"))
	for _, name := range []string{"ipc", "uts", "cgroup"} {
		add(name+" namespace", needNamespace(f, name))
	}
	for _, m := range f.Idmap {
		if m.State == host.Yes {
			continue
		}
		if f.MaxUserNS != nil && *f.MaxUserNS == 0 {
			add("idmap", &Need{Why: "user.max_user_namespaces is 0: even root cannot map ids", Fix: "sysctl user.max_user_namespaces=1000"})
			break
		}
		add("idmap", &Need{
			Why: fmt.Sprintf("%s lies on %s, which cannot be mounted with other ids (%s)", m.Path, orElse(m.Fstype, "an unknown filesystem"), m.Cause),
			Fix: "put the workspace on ext4, xfs, btrfs (or tmpfs from Linux 6.3)",
		})
	}
	return out
}
