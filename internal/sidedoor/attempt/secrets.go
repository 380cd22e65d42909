package attempt

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func openRead(path string) Outcome {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return judge("open "+path, err)
}

func secrets() []Attempt {
	const door = "file-secret"
	bait := func(id, what string, control Control, path func(t *Target) string) Attempt {
		return Attempt{door + "/" + id, door, what, control, func(t *Target) Outcome {
			p := path(t)
			if p == "" {
				return impossible("no bait")
			}
			return openRead(p)
		}}
	}
	a := []Attempt{
		bait("private", "read a private file outside", Opens, func(t *Target) string { return t.Secret }),
		bait("world-readable", "read a file that everyone may read, outside of the manifest", Opens, func(t *Target) string { return t.SecretWorld }),
		{door + "/proc-self-root", door, "read the private file through /proc/self/root", Opens, func(t *Target) Outcome {
			if t.Secret == "" {
				return impossible("no bait")
			}
			return openRead("/proc/self/root" + t.Secret)
		}},
		{door + "/proc-victim-root", door, "read the private file through /proc/PID/root of a process outside", Opens, func(t *Target) Outcome {
			if t.Secret == "" || t.victim() == 0 {
				return impossible("no bait")
			}
			return openRead(fmt.Sprintf("/proc/%d/root%s", t.victim(), t.Secret))
		}},
		{door + "/stat", door, "see that the private file exists", Opens, func(t *Target) Outcome {
			if t.Secret == "" {
				return impossible("no bait")
			}
			var st unix.Stat_t
			return judge("stat", unix.Stat(t.Secret, &st))
		}},
		{door + "/handle", door, "open the private file by handle", Refused, func(t *Target) Outcome {
			h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, t.Workspace, 0)
			if err != nil {
				return judge("name_to_handle_at", err, unix.EOPNOTSUPP)
			}
			root, err := unix.Open(t.Workspace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return judge("open", err)
			}
			defer unix.Close(root)
			fd, err := unix.OpenByHandleAt(root, h, unix.O_RDONLY|unix.O_CLOEXEC)
			if err == nil {
				unix.Close(fd)
			}
			return judge("open_by_handle_at", err)
		}},
		{door + "/homes", door, "find anything in /root and /home beside the way to the workspace", Varies, homes},
		{door + "/sharness-binaries", door, "find sharness's own programs beside the client", Varies, func(*Target) Outcome {
			return worst(openRead("/usr/local/bin/sharness"), openRead("/usr/local/libexec/sharness/sharness-bashd"), openRead("/usr/bin/sharness"))
		}},
	}
	for _, p := range []string{"/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh/ssh_host_ed25519_key", "/root/.ssh/id_ed25519", "/root/.bash_history", "/root/.aws/credentials",
		"/dev/mem", "/dev/port", "/dev/kmsg", "/proc/kcore", "/proc/kmsg", "/dev/sda", "/dev/vda", "/dev/nvme0n1", "/dev/dm-0", "/dev/loop0", "/dev/loop-control",
		"/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/vhost-vsock", "/dev/vsock", "/dev/userfaultfd", "/dev/uinput", "/dev/input/event0", "/dev/dri/card0", "/dev/hpet",
		"/dev/cpu/0/msr", "/dev/mcelog", "/dev/btrfs-control", "/dev/mapper/control", "/dev/autofs", "/dev/console", "/dev/tty0", "/dev/vcs", "/dev/fb0", "/dev/snd/seq",
		"/dev/bus/usb/001/001", "/dev/tpm0", "/dev/nsm", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/kpageflags",
		"/proc/kpagecount", "/proc/vmallocinfo", "/proc/slabinfo", "/proc/scsi", "/proc/acpi",
		"/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/firmware", "/sys/fs/bpf", "/sys/fs/pstore", "/sys/class/dmi/id/product_uuid",
		"/var/log/syslog", "/var/log/journal", "/var/spool/cron", "/var/lib/docker", "/boot"} {
		a = append(a, Attempt{door + "/read-" + nameOf(p), door, "read " + p, Varies, func(*Target) Outcome { return readFile(p) }})
	}
	return a
}

// readFile reads for real: masked files of /proc open, and are empty.
func readFile(path string) Outcome {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return judge("open "+path, err, unix.EINVAL, unix.ENOMEDIUM)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return judge("stat "+path, err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		names, err := readDirNames(path)
		if err != nil {
			return judge("read "+path, err)
		}
		if len(names) == 0 {
			return absent("%s is empty", path)
		}
		return opened("%s holds %d names", path, len(names))
	}
	if st.Mode&unix.S_IFMT == unix.S_IFCHR {
		var null unix.Stat_t
		if unix.Stat("/dev/null", &null) == nil && null.Rdev == st.Rdev {
			return absent("%s is masked", path)
		}
		return opened("the device %s opens", path) // never read: it may have effects
	}
	n, err := unix.Read(fd, make([]byte, 64))
	if err != nil {
		return judge("read "+path, err)
	}
	if n == 0 {
		return absent("%s is empty", path)
	}
	return opened("%s can be read", path)
}

func homes(t *Target) Outcome {
	var extra []string
	for _, root := range []string{"/root", "/home"} {
		filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			for _, own := range []string{t.Workspace, t.State} {
				if own == "" {
					continue
				}
				if path == own {
					return fs.SkipDir
				}
				if strings.HasPrefix(own, path+"/") {
					return nil
				}
			}
			if err != nil || path == root {
				return nil
			}
			extra = append(extra, path)
			if len(extra) > 4 {
				return fs.SkipAll
			}
			return nil
		})
	}
	if len(extra) > 0 {
		return opened("%s", strings.Join(extra, " "))
	}
	return absent("nothing there")
}

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

func cgroups() []Attempt {
	const door = "cg-escape"
	a := []Attempt{
		{door + "/mkdir", door, "make a cgroup", Refused, func(t *Target) Outcome {
			var all []Outcome
			for _, dir := range cgroupDirs() {
				p := filepath.Join(dir, fmt.Sprintf("sharness-probe-%d", os.Getpid()))
				err := unix.Mkdir(p, 0o755)
				if err == nil {
					unix.Rmdir(p)
				}
				all = append(all, judge("mkdir "+p, err))
			}
			return worst(all...)
		}},
		{door + "/clone-into", door, "clone3 into another cgroup", Refused, func(t *Target) Outcome {
			fd, err := unix.Open("/sys/fs/cgroup", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return judge("open /sys/fs/cgroup", err)
			}
			defer unix.Close(fd)
			const cloneIntoCgroup = 1 << 33
			args := t.words(8, cloneIntoCgroup, 0, 0, 0, uint64(unix.SIGCHLD), 0, 0, 0, 0, 0, uint64(fd))
			_, err = t.forked(sys(unix.SYS_CLONE3, args, 88))
			return judgeForked("clone3", err, unix.EBADF, unix.EINVAL) // the root is no cgroup2 on a hybrid host
		}},
		{door + "/mount", door, "mount cgroup2", Refused, func(t *Target) Outcome {
			_, err := t.forked(sys(unix.SYS_MOUNT, t.str("none"), t.str("/proc/self/fdinfo"), t.str("cgroup2"), unix.MS_REMOUNT, 0))
			return reachedForked("mount", err) // it is no mount point: EINVAL is past the check
		}},
		{door + "/namespace", door, "see the host's cgroup path in /proc/self/cgroup", Varies, func(*Target) Outcome {
			raw, err := os.ReadFile("/proc/self/cgroup")
			if err != nil {
				return judge("read /proc/self/cgroup", err)
			}
			for line := range strings.Lines(string(raw)) {
				f := strings.SplitN(strings.TrimSpace(line), ":", 3)
				if len(f) == 3 && f[2] != "/" {
					return opened("%s", strings.TrimSpace(line))
				}
			}
			return closed("every path is /")
		}},
	}
	for _, f := range []string{"cgroup.procs", "tasks", "cgroup.threads", "cgroup.subtree_control", "pids.max", "memory.max", "memory.limit_in_bytes", "cgroup.kill", "cgroup.freeze", "release_agent", "notify_on_release"} {
		a = append(a, Attempt{door + "/" + f, door, "open " + f + " of any cgroup for writing", Refused, func(*Target) Outcome {
			var all []Outcome
			for _, dir := range cgroupDirs() {
				all = append(all, openWrite(filepath.Join(dir, f), 0))
			}
			return worst(all...)
		}})
	}
	return a
}

// cgroupDirs are the places where the own cgroup and its root would be, on v1, v2 and hybrid hosts.
func cgroupDirs() []string {
	dirs := []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory"}
	raw, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(raw)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		if _, err := strconv.Atoi(f[0]); err != nil {
			continue
		}
		controller := f[1]
		if controller == "" {
			dirs = append(dirs, filepath.Join("/sys/fs/cgroup", f[2]), filepath.Join("/sys/fs/cgroup/unified", f[2]))
			continue
		}
		dirs = append(dirs, filepath.Join("/sys/fs/cgroup", controller, f[2]))
	}
	return dirs
}
