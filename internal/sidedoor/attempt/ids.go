package attempt

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// setIDBits leaves set-uid and set-gid files in the workspace: on disk they belong to the user.
func setIDBits() []Attempt {
	const door = "file-suid"
	var a []Attempt
	for _, m := range []struct {
		name string
		mode uintptr
	}{{"suid", 0o4755}, {"sgid", 0o2755}, {"both", 0o6755}} {
		file := func(id string, calls func(t *Target, path uintptr, fd uintptr) []call) {
			a = append(a, Attempt{fmt.Sprintf("%s/%s-%s", door, id, m.name), door, fmt.Sprintf("%s of a workspace file with mode %o", id, m.mode), Opens, func(t *Target) Outcome {
				p := t.scratch("mode")
				f, err := os.OpenFile(p, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
				if err != nil {
					return judge("create", err)
				}
				defer f.Close()
				_, err = t.forked(calls(t, t.str(p), f.Fd())...)
				if id == "fchmodat2" && err == unix.ENOSYS && noChmod2(t, t.str(p)) {
					return impossible("this kernel has no fchmodat2, and answers ENOSYS for mode 0600 too")
				}
				o := judgeForked(id, err)
				var st unix.Stat_t
				if o.Verdict == Open && unix.Stat(p, &st) == nil && st.Mode&0o6000 == 0 {
					return closed("the bits were dropped silently")
				}
				return o
			}})
		}
		one := func(c call) []call { return []call{c} }
		file("chmod", func(_ *Target, p, _ uintptr) []call { return one(sys(unix.SYS_CHMOD, p, m.mode)) })
		file("fchmod", func(_ *Target, _, fd uintptr) []call { return one(sys(unix.SYS_FCHMOD, fd, m.mode)) })
		file("fchmodat", func(_ *Target, p, _ uintptr) []call { return one(sys(unix.SYS_FCHMODAT, atFDCWD, p, m.mode)) })
		file("fchmodat2", func(_ *Target, p, _ uintptr) []call { return one(sys(unix.SYS_FCHMODAT2, atFDCWD, p, m.mode, 0)) })
		// The kernel cuts a mode to 16 bits: a filter must not be led astray by what is above.
		file("chmod-high", func(_ *Target, p, _ uintptr) []call { return one(sys(unix.SYS_CHMOD, p, 0xabcd<<32|m.mode)) })

		create := func(id string, calls func(t *Target, path uintptr) []call) {
			a = append(a, Attempt{fmt.Sprintf("%s/%s-%s", door, id, m.name), door, fmt.Sprintf("%s in the workspace with mode %o", id, m.mode), Opens, func(t *Target) Outcome {
				p := t.scratch("made")
				_, err := t.forked(append([]call{sys(unix.SYS_UMASK, 0)}, calls(t, t.str(p))...)...)
				o := judgeForked(id, err)
				var st unix.Stat_t
				if o.Verdict == Open && unix.Stat(p, &st) == nil && st.Mode&0o6000 == 0 {
					return closed("the bits were dropped silently")
				}
				return o
			}})
		}
		create("open", func(_ *Target, p uintptr) []call {
			return one(sys(unix.SYS_OPEN, p, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, m.mode))
		})
		create("openat", func(_ *Target, p uintptr) []call {
			return one(sys(unix.SYS_OPENAT, atFDCWD, p, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, m.mode))
		})
		create("openat2", func(t *Target, p uintptr) []call {
			return one(sys(unix.SYS_OPENAT2, atFDCWD, p, t.words(8, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, uint64(m.mode), 0), 24))
		})
		create("creat", func(_ *Target, p uintptr) []call { return one(sys(unix.SYS_CREAT, p, m.mode)) })
		create("mknod", func(_ *Target, p uintptr) []call { return one(sys(unix.SYS_MKNOD, p, unix.S_IFREG|m.mode, 0)) })
		create("mknodat", func(_ *Target, p uintptr) []call {
			return one(sys(unix.SYS_MKNODAT, atFDCWD, p, unix.S_IFREG|m.mode, 0))
		})
		create("tmpfile", func(t *Target, p uintptr) []call {
			return []call{
				sys(unix.SYS_OPENAT, atFDCWD, t.str(t.Workspace), unix.O_TMPFILE|unix.O_RDWR, m.mode),
				sys(unix.SYS_DUP2, previous, 99),
				sys(unix.SYS_LINKAT, atFDCWD, t.str("/proc/self/fd/99"), atFDCWD, p, unix.AT_SYMLINK_FOLLOW)}
		})
	}
	// mkdir takes 01777 alone, so that a folder's set-gid bit comes by chmod.
	return append(a, Attempt{door + "/dir-sgid", door, "chmod 02755 of a workspace folder", Opens, func(t *Target) Outcome {
		p := t.scratch("dir")
		if err := os.Mkdir(p, 0o755); err != nil {
			return judge("mkdir", err)
		}
		_, err := t.forked(sys(unix.SYS_CHMOD, t.str(p), 0o2755))
		return judgeForked("chmod", err)
	}})
}

// setIDs tries to become somebody, and looks for anything left to become it with.
func setIDs() []Attempt {
	const door = "setid"
	call1 := func(id, what string, control Control, calls func(t *Target) []call) Attempt {
		return Attempt{door + "/" + id, door, what, control, func(t *Target) Outcome {
			_, err := t.forked(calls(t)...)
			return judgeForked(what, err)
		}}
	}
	n := func(nr uintptr, args ...uintptr) func(*Target) []call {
		return func(*Target) []call { return []call{sys(nr, args...)} }
	}
	a := []Attempt{
		call1("setuid", "setuid(0)", Refused, n(unix.SYS_SETUID, 0)),
		call1("setgid", "setgid(0)", Refused, n(unix.SYS_SETGID, 0)),
		call1("setresuid", "setresuid(0, 0, 0)", Refused, n(unix.SYS_SETRESUID, 0, 0, 0)),
		call1("setgroups", "setgroups([0])", Refused, func(t *Target) []call { return []call{sys(unix.SYS_SETGROUPS, 1, t.words(4, 0))} }),
		call1("capset", "capset(all)", Refused, func(t *Target) []call {
			all := uint64(0xffffffff)
			return []call{sys(unix.SYS_CAPSET, t.words(4, unix.LINUX_CAPABILITY_VERSION_3, 0), t.words(4, all, all, all, 0x1ff, 0x1ff, 0x1ff))}
		}),
		call1("ambient", "raise an ambient capability", Refused, n(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SYS_ADMIN, 0, 0)),
		call1("securebits", "change securebits", Refused, n(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, 1, 0, 0, 0)),
		{door + "/status", door, "find a capability, a group or a missing no_new_privs in /proc/self/status", Opens, idStatus},
	}
	for _, p := range []string{"/usr/bin/sudo", "/bin/su", "/usr/bin/pkexec", "/usr/bin/run0", "/bin/mount", "/usr/bin/passwd", "/usr/bin/newgrp", "/usr/bin/chsh",
		"/usr/bin/newuidmap", "/usr/bin/at", "/usr/bin/crontab", "/bin/ping", "/usr/bin/fusermount3", "/usr/lib/dbus-1.0/dbus-daemon-launch-helper"} {
		a = append(a, Attempt{door + "/" + nameOf(p), door, "execute " + p, Varies, func(*Target) Outcome { return execute(p, p, "--version") }})
	}
	return a
}

func idStatus(*Target) Outcome {
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return judge("read /proc/self/status", err)
	}
	var bad []string
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch name {
		case "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb":
			if strings.Trim(value, "0") != "" {
				bad = append(bad, name+" "+value)
			}
		case "NoNewPrivs":
			if value != "1" {
				bad = append(bad, "NoNewPrivs "+value)
			}
		case "Groups":
			if value != "" && value != fmt.Sprint(os.Getgid()) {
				bad = append(bad, "Groups "+value)
			}
		case "Seccomp":
			if value != "2" {
				bad = append(bad, "Seccomp "+value)
			}
		}
	}
	if len(bad) > 0 {
		return opened("%s", strings.Join(bad, ", "))
	}
	return closed("no capability, no group, no_new_privs, filtered")
}
