package attempt

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// loaded judges a run of the dynamic loader, which tells of a failed mmap in words only.
func loaded(what string, status int, out string, err error) Outcome {
	if err != nil {
		return judge(what, err)
	}
	o := Outcome{Detail: fmt.Sprintf("%s: status %d %s", what, status, oneLine(out))}
	switch {
	case status == PayloadStatus:
		o.Verdict = Open
	case strings.Contains(out, "no version information"), strings.Contains(out, "undefined symbol"), strings.Contains(out, "version `"):
		o.Verdict = Open // it was mapped, and only did not fit
	case strings.Contains(out, "Operation not permitted"):
		o.Verdict, o.Errno = Closed, unix.EPERM
	case strings.Contains(out, "Permission denied"):
		o.Verdict, o.Errno = Closed, unix.EACCES
	case strings.Contains(out, "failed to map segment"), strings.Contains(out, "cannot enable executable"):
		o.Verdict = Closed
	case strings.Contains(out, "cannot open shared object"), strings.Contains(out, "No such file"):
		o.Verdict, o.Errno = Absent, unix.ENOENT
	default:
		o.Verdict = Error
	}
	return o
}

// execLoader has the dynamic loader load what execve would not start.
func execLoader() []Attempt {
	const door = "exec-ldso"
	names := []struct {
		path    string
		control Control
	}{
		{"/lib64/ld-linux-x86-64.so.2", Opens},
		{"/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", Varies},
		{"/usr/lib64/ld-linux-x86-64.so.2", Varies},
		{"/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", Varies},
		{"/usr/bin/ld.so", Varies},
		{"/lib/ld-linux.so.2", Varies},
		{"/lib/ld-musl-x86_64.so.1", Varies},
		{"/proc/self/root/lib64/ld-linux-x86-64.so.2", Opens},
	}
	var a []Attempt
	for _, n := range names {
		a = append(a, Attempt{door + "/" + nameOf(n.path), door, "have " + n.path + " load a program of the workspace", n.control, func(t *Target) Outcome {
			return load(t, n.path, t.PayloadProgram)
		}})
	}
	const loader = "/lib64/ld-linux-x86-64.so.2"
	add := func(id, what string, how func(t *Target) Outcome) {
		a = append(a, Attempt{door + "/" + id, door, what, Opens, how})
	}
	add("unlisted", "have ld.so load an unlisted program of the system", func(t *Target) Outcome {
		if t.Unlisted == "" {
			return impossible("no bait")
		}
		status, out, err := run(loader, []string{loader, t.Unlisted, "--version"}, nil)
		if err == nil && status == 0 {
			return opened("%s ran", t.Unlisted)
		}
		return loaded("ld.so "+t.Unlisted, status, out, err)
	})
	add("memfd", "have ld.so load /proc/self/fd/N of a memfd", func(t *Target) Outcome { return loadMemfd(t, loader, unix.MFD_CLOEXEC) })
	add("memfd-noexec-seal", "the same with a memfd that was sealed noexec", func(t *Target) Outcome {
		return loadMemfd(t, loader, unix.MFD_NOEXEC_SEAL)
	})
	add("fd", "have ld.so load /proc/self/fd/N of a workspace file", func(t *Target) Outcome {
		f, err := os.Open(t.PayloadProgram)
		if err != nil {
			return judge("open payload", err)
		}
		defer f.Close()
		status, out, err := run(loader, []string{loader, "/proc/self/fd/3"}, nil, f.Fd())
		return loaded("ld.so /proc/self/fd/3", status, out, err)
	})
	for _, dir := range []string{"/tmp", "/dev/shm"} {
		add("from-"+nameOf(dir), "have ld.so load a copy in "+dir, func(t *Target) Outcome {
			raw, err := os.ReadFile(t.PayloadProgram)
			if err != nil {
				return judge("read payload", err)
			}
			p := t.scratchIn(dir, "payload")
			if err := t.put(p, raw, 0o644); err != nil {
				return judge("write", err)
			}
			return load(t, loader, p)
		})
	}
	add("option-preload", "ld.so --preload of a workspace object", func(t *Target) Outcome { return loadOption(t, loader, "--preload") })
	add("option-audit", "ld.so --audit of a workspace object", func(t *Target) Outcome { return loadOption(t, loader, "--audit") })
	return a
}

func load(t *Target, loader, program string) Outcome {
	if program == "" {
		return impossible("no bait")
	}
	status, out, err := run(loader, []string{loader, program}, nil)
	return loaded(loader, status, out, err)
}

// loadOption loads the probe itself when it is dynamic, for then that is listed, and the bait program otherwise.
func loadOption(t *Target, loader, option string) Outcome {
	if t.PayloadSO == "" {
		return impossible("no bait")
	}
	argv := []string{loader, option, t.PayloadSO, "/usr/bin/env", "--version"}
	if t.Dynamic {
		argv = []string{loader, option, t.PayloadSO, t.Self, "noop"}
	}
	status, out, err := run(loader, argv, nil)
	return loaded("ld.so "+option, status, out, err)
}

func loadMemfd(t *Target, loader string, flags int) Outcome {
	raw, err := os.ReadFile(t.PayloadProgram)
	if err != nil {
		return impossible("no bait: %v", err)
	}
	fd, failed := memfd(flags)
	if fd < 0 {
		return failed
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, raw); err != nil {
		return judge("write", err)
	}
	status, out, err := run(loader, []string{loader, "/proc/self/fd/3"}, nil, uintptr(fd))
	return loaded("ld.so /proc/self/fd/3", status, out, err)
}
