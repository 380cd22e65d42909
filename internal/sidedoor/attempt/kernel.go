package attempt

import "golang.org/x/sys/unix"

// kernelCalls makes system calls that no agent needs, with arguments that the kernel dislikes only after it has looked
// at permission. Refused ones are those that ask for a capability first; root without sharness would reach them.
func kernelCalls() []Attempt {
	const door = "kernel"
	bad := ^uintptr(0) // descriptor -1, or an address nobody has
	type row struct {
		name    string
		control Control
		nr      uintptr
		args    func(t *Target) []uintptr
	}
	n := func(args ...uintptr) func(*Target) []uintptr { return func(*Target) []uintptr { return args } }
	nowhere := func(before ...uintptr) func(*Target) []uintptr {
		return func(t *Target) []uintptr { return append(before, t.str("/nonexistent/sharness-probe"), 0) }
	}
	zeroed := func(before ...uintptr) func(*Target) []uintptr {
		return func(t *Target) []uintptr { return append(before, t.bytes(make([]byte, 256))) }
	}
	rows := []row{
		{"io_uring_setup", Varies, unix.SYS_IO_URING_SETUP, zeroed(1)}, // kernel.io_uring_disabled
		{"io_uring_enter", Varies, unix.SYS_IO_URING_ENTER, n(bad, 1, 0, 0, 0, 0)},
		{"io_uring_register", Varies, unix.SYS_IO_URING_REGISTER, n(bad, 0, 0, 0)},
		{"bpf", Varies, unix.SYS_BPF, n(0xffff, 0, 0)},
		{"bpf-map", Varies, unix.SYS_BPF, func(t *Target) []uintptr { return []uintptr{0, t.words(4, 2, 4, 4, 1), 16} }},
		{"perf_event_open", Varies, unix.SYS_PERF_EVENT_OPEN, n(bad, 0, bad, bad, 0)},
		{"userfaultfd", Varies, unix.SYS_USERFAULTFD, n(1)}, // UFFD_USER_MODE_ONLY
		{"keyctl", Opens, unix.SYS_KEYCTL, n(unix.KEYCTL_GET_KEYRING_ID, minus(3), 0)},
		{"keyctl-session-to-parent", Varies, unix.SYS_KEYCTL, n(unix.KEYCTL_SESSION_TO_PARENT)},
		{"add_key", Opens, unix.SYS_ADD_KEY, func(t *Target) []uintptr {
			return []uintptr{t.str("user"), t.str("sharness-probe"), t.bytes([]byte("x")), 1, minus(2)} // process keyring: ends with the child
		}},
		{"request_key", Opens, unix.SYS_REQUEST_KEY, func(t *Target) []uintptr { return []uintptr{t.str("user"), t.str("sharness-probe"), 0, 0} }},
		{"open_by_handle_at", Refused, unix.SYS_OPEN_BY_HANDLE_AT, func(t *Target) []uintptr { return []uintptr{atFDCWD, t.words(4, 8, 1, 0, 0), 0} }},
		{"mount", Refused, unix.SYS_MOUNT, func(t *Target) []uintptr {
			return []uintptr{t.str("none"), t.str("/"), t.str("sharness-none"), 0, 0}
		}},
		{"umount2", Refused, unix.SYS_UMOUNT2, func(t *Target) []uintptr { return []uintptr{t.str("/proc/self/fdinfo"), 0} }}, // no mount point
		{"pivot_root", Refused, unix.SYS_PIVOT_ROOT, nowhere(bad)},
		{"chroot", Refused, unix.SYS_CHROOT, func(t *Target) []uintptr { return []uintptr{t.str("/")} }},
		{"open_tree", Opens, unix.SYS_OPEN_TREE, func(t *Target) []uintptr { return []uintptr{atFDCWD, t.str("/"), 0} }},
		{"open_tree-clone", Refused, unix.SYS_OPEN_TREE, func(t *Target) []uintptr { return []uintptr{atFDCWD, t.str("/"), 1} }},
		{"open_tree_attr", Varies, 467, func(t *Target) []uintptr { return []uintptr{atFDCWD, t.str("/"), 1, 0, 0} }},
		{"move_mount", Refused, unix.SYS_MOVE_MOUNT, func(t *Target) []uintptr { return []uintptr{bad, t.str(""), bad, t.str(""), 0} }},
		{"fsopen", Refused, unix.SYS_FSOPEN, func(t *Target) []uintptr { return []uintptr{t.str("tmpfs"), 0} }},
		{"fsconfig", Varies, unix.SYS_FSCONFIG, n(bad, 0, 0, 0, 0)},
		{"fsmount", Refused, unix.SYS_FSMOUNT, n(bad, 0, 0)},
		{"fspick", Refused, unix.SYS_FSPICK, func(t *Target) []uintptr { return []uintptr{atFDCWD, t.str("/"), 0} }},
		{"mount_setattr", Refused, unix.SYS_MOUNT_SETATTR, func(t *Target) []uintptr {
			return []uintptr{atFDCWD, t.str("/nonexistent/sharness-probe"), 0, t.words(8, 8, 0, 0, 0), 32}
		}},
		{"init_module", Refused, unix.SYS_INIT_MODULE, func(t *Target) []uintptr { return []uintptr{bad, 0, t.str("")} }},
		{"finit_module", Refused, unix.SYS_FINIT_MODULE, func(t *Target) []uintptr { return []uintptr{bad, t.str(""), 0} }},
		{"delete_module", Refused, unix.SYS_DELETE_MODULE, func(t *Target) []uintptr { return []uintptr{t.str("sharness_probe_nonexistent"), unix.O_NONBLOCK} }},
		{"kexec_load", Refused, unix.SYS_KEXEC_LOAD, n(0, 0, 0, 0xdead)},
		{"kexec_file_load", Refused, unix.SYS_KEXEC_FILE_LOAD, n(bad, bad, 0, 0, 0xdead)},
		{"reboot", Refused, unix.SYS_REBOOT, n(0xbad, 0xbad, 0, 0)},
		{"swapon", Refused, unix.SYS_SWAPON, nowhere()},
		{"swapoff", Refused, unix.SYS_SWAPOFF, nowhere()},
		{"acct", Refused, unix.SYS_ACCT, nowhere()},
		{"quotactl", Varies, unix.SYS_QUOTACTL, nowhere(0x800007 << 8)}, // Q_GETQUOTA of nothing: ENOENT or a check
		{"quotactl_fd", Varies, unix.SYS_QUOTACTL_FD, n(bad, 0, 0, 0)},
		{"settimeofday", Refused, unix.SYS_SETTIMEOFDAY, n(0, 0)}, // sets nothing
		{"clock_settime", Varies, unix.SYS_CLOCK_SETTIME, n(0, bad)},
		{"adjtimex", Refused, unix.SYS_ADJTIMEX, func(t *Target) []uintptr { return []uintptr{t.words(8, 0x4000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)} }}, // ADJ_TICK out of range
		{"personality-rie", Opens, unix.SYS_PERSONALITY, n(0x0400000)},
		{"personality-no-aslr", Opens, unix.SYS_PERSONALITY, n(0x0040000)},
		{"iopl", Refused, unix.SYS_IOPL, n(3)},
		{"ioperm", Refused, unix.SYS_IOPERM, n(0x80, 1, 1)},
		{"syslog", Varies, unix.SYS_SYSLOG, n(10, 0, 0)}, // SYSLOG_ACTION_SIZE_BUFFER
		{"vhangup", Refused, unix.SYS_VHANGUP, nil},
		{"sethostname", Refused, unix.SYS_SETHOSTNAME, n(bad, 65)},
		{"setdomainname", Refused, unix.SYS_SETDOMAINNAME, n(bad, 65)},
		{"fanotify_init", Varies, unix.SYS_FANOTIFY_INIT, n(0x200, 0)}, // FAN_REPORT_FID, allowed to users since 5.13
		{"lookup_dcookie", Varies, unix.SYS_LOOKUP_DCOOKIE, n(0, 0, 0)},
		{"uselib", Varies, unix.SYS_USELIB, nowhere()},
		{"sysfs", Varies, unix.SYS_SYSFS, n(3)},
		{"ustat", Varies, unix.SYS_USTAT, n(0, bad)},
		{"nfsservctl", Varies, unix.SYS_NFSSERVCTL, nil},
		{"migrate_pages", Varies, unix.SYS_MIGRATE_PAGES, n(0, 0, 0, 0)},
		{"unknown-number", Varies, 0x3ff, nil},
	}
	var a []Attempt
	for _, r := range rows {
		a = append(a, Attempt{door + "/" + r.name, door, r.name, r.control, func(t *Target) Outcome {
			var args []uintptr
			if r.args != nil {
				args = r.args(t)
			}
			if r.nr == unix.SYS_VHANGUP && unix.Geteuid() == 0 {
				return impossible("vhangup by root would hang up the terminal")
			}
			_, err := t.forked(sys(r.nr, args...))
			return reachedForked(r.name, err)
		}})
	}
	return append(a, moduleLoaders(door)...)
}

// moduleLoaders asks a socket for bridges and VLANs. A kernel that has them as modules runs modprobe first, as root and
// outside, and the answer is that of the module, or that there is none.
func moduleLoaders(door string) []Attempt {
	var a []Attempt
	for _, r := range []struct {
		name, what string
		request    uintptr
	}{
		{"module-bridge", "SIOCGIFBR, for which the kernel loads a module", unix.SIOCGIFBR},
		{"module-vlan", "SIOCGIFVLAN, for which the kernel loads a module", 0x8982},
	} {
		a = append(a, Attempt{door + "/" + r.name, door, r.what, Opens, func(t *Target) Outcome {
			return withSocket(unix.AF_INET, unix.SOCK_DGRAM, 0, func(fd int) Outcome {
				var nothing [256]byte // no such question
				nothing[0] = 0xff
				return reached(r.what, ioctlPointer(fd, r.request, &nothing))
			})
		}})
	}
	return append(a, Attempt{door + "/module-hash", door, "TCP_MD5SIG, for which the kernel may load a module", Varies, func(t *Target) Outcome {
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) Outcome {
			return judgeLoaded(unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, "")) // shorter than a key
		})
	}})
}

// judgeLoaded: ENOPROTOOPT is of a kernel without such keys.
func judgeLoaded(err error) Outcome {
	if err == unix.ENOPROTOOPT {
		return impossible("this kernel has no keys of TCP (CONFIG_TCP_MD5SIG)")
	}
	return reached("TCP_MD5SIG", err)
}
