package attempt

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// procFiles opens files of /proc and /sys for writing. Nothing is ever written.
func procFiles() []Attempt {
	const door = "file-proc"
	var a []Attempt
	for _, p := range []string{"/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/proc/sys/fs/binfmt_misc/register",
		"/proc/sys/vm/memfd_noexec", "/proc/sys/kernel/ns_last_pid", "/proc/sys/net/ipv4/tcp_fastopen", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/kernel/yama/ptrace_scope",
		"/proc/sys/dev/tty/legacy_tiocsti", "/proc/irq/default_smp_affinity", "/proc/mtrr", "/proc/asound",
		"/sys/kernel/uevent_helper", "/sys/kernel/mm/ksm/run", "/sys/power/state", "/sys/kernel/kexec_crash_size", "/sys/module/kernel/parameters/panic"} {
		control := Refused
		if strings.HasSuffix(p, "ns_last_pid") {
			control = Varies // mode 0666: the capability is asked for at write
		}
		a = append(a, Attempt{door + "/" + nameOf(p), door, "open " + p + " for writing", control, func(*Target) Outcome { return openWrite(p, 0) }})
	}
	return append(a,
		Attempt{door + "/all-sysctls", door, "open any sysctl for writing", Varies, func(*Target) Outcome { return writable("/proc/sys") }},
		Attempt{door + "/all-sys", door, "open anything in /sys for writing", Refused, func(*Target) Outcome { return writable("/sys") }},
		Attempt{door + "/memfd-noexec", door, "find memfd_noexec below 2", Varies, func(*Target) Outcome {
			raw, err := os.ReadFile("/proc/sys/vm/memfd_noexec")
			if err != nil {
				return judge("read", err)
			}
			if v := strings.TrimSpace(string(raw)); v != "2" {
				return opened("vm.memfd_noexec is %s", v)
			}
			return closed("vm.memfd_noexec is 2")
		}},
	)
}

// writable walks a tree and opens every file for writing, up to a bounded number of names.
func writable(root string) Outcome {
	const maxNames = 30000
	names, refused := 0, 0
	var open string
	filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if names++; names > maxNames {
			return fs.SkipAll
		}
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			refused++
			return nil
		}
		unix.Close(fd)
		open = path
		return fs.SkipAll
	})
	switch {
	case open != "":
		return opened("%s opens for writing", open)
	case refused == 0:
		return absent("nothing below %s", root)
	}
	return closed("none of %d files below %s opens for writing", refused, root)
}
