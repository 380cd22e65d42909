package attempt

import (
	"fmt"
	"io/fs"
	"path/filepath"
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
		{door + "/sysv-segment", door, "attach a shared memory segment of the host", Opens, func(t *Target) Outcome {
			if t.Segment == 0 {
				return impossible("no bait")
			}
			const readOnly = 0o10000
			_, err := t.forked(sys(unix.SYS_SHMAT, uintptr(t.Segment-1), 0, readOnly))
			return judgeForked("shmat", err, unix.EINVAL, unix.EIDRM) // no such id in this IPC namespace
		}},
		{door + "/mqueue", door, "open a message queue of the host", Opens, func(t *Target) Outcome {
			if t.Queue == "" {
				return impossible("no bait")
			}
			_, err := t.forked(sys(unix.SYS_MQ_OPEN, t.str(t.Queue), unix.O_RDONLY, 0, 0))
			return judgeForked("mq_open", err)
		}},
		{door + "/homes", door, "find anything in /root and /home beside the way to the workspace", Varies, homes},
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
