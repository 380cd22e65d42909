package attempt

import (
	"fmt"
	"os"
	"path/filepath"
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
		status, out, err := run(loader, []string{loader, "/usr/bin/env", "--version"}, nil)
		if err == nil && status == 0 {
			return opened("/usr/bin/env ran")
		}
		return loaded("ld.so /usr/bin/env", status, out, err)
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
	fd, err := unix.MemfdCreate("sharness-probe", flags)
	if err != nil {
		return judge("memfd_create", err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, raw); err != nil {
		return judge("write", err)
	}
	status, out, err := run(loader, []string{loader, "/proc/self/fd/3"}, nil, uintptr(fd))
	return loaded("ld.so /proc/self/fd/3", status, out, err)
}

// execMemfd executes from memory, with every flag and both ways of naming the descriptor.
func execMemfd() []Attempt {
	const door = "exec-memfd"
	flags := []struct {
		name    string
		flags   int
		control Control
	}{
		{"plain", 0, Opens},
		{"cloexec", unix.MFD_CLOEXEC, Opens},
		{"allow-sealing", unix.MFD_ALLOW_SEALING, Opens},
		{"exec", unix.MFD_EXEC, Opens},
		{"exec-sealing", unix.MFD_EXEC | unix.MFD_ALLOW_SEALING, Opens},
		{"noexec-seal", unix.MFD_NOEXEC_SEAL, Refused},
	}
	var a []Attempt
	for _, f := range flags {
		a = append(a, Attempt{door + "/" + f.name, door, "memfd_create (" + f.name + ") and execute it", f.control, func(t *Target) Outcome {
			fd, err := unix.MemfdCreate("sharness-probe", f.flags)
			if err != nil {
				return judge("memfd_create", err)
			}
			if _, err := unix.Write(fd, tinyELF()); err != nil {
				unix.Close(fd)
				return judge("write", err)
			}
			unix.Fchmod(fd, 0o755)
			o := execFD(t, fd)
			unix.Close(fd)
			return o
		}})
	}
	return append(a,
		Attempt{door + "/map", door, "map a memfd executable", Opens, func(t *Target) Outcome {
			fd, err := unix.MemfdCreate("sharness-probe", 0)
			if err != nil {
				return judge("memfd_create", err)
			}
			defer unix.Close(fd)
			return mapExec(t, fd)
		}},
		Attempt{door + "/secret", door, "memfd_secret", Varies, func(t *Target) Outcome { // secretmem.enable
			_, err := t.forked(sys(unix.SYS_MEMFD_SECRET, 0))
			return judgeForked("memfd_secret", err)
		}},
	)
}

// mapExec maps a descriptor executable in every way there is.
func mapExec(t *Target, fd int) Outcome {
	const rx, ro = unix.PROT_READ | unix.PROT_EXEC, unix.PROT_READ
	page := uintptr(os.Getpagesize())
	unix.Ftruncate(fd, int64(page)) // a file that is only readable has its length already
	m := func(prot, flags uintptr) call { return sys(unix.SYS_MMAP, 0, page, prot, flags, uintptr(fd), 0) }
	var tries []Outcome
	for _, flags := range []uintptr{unix.MAP_PRIVATE, unix.MAP_SHARED} {
		_, err := t.forked(m(rx, flags))
		tries = append(tries, judgeForked("mmap PROT_EXEC", err))
		_, err = t.forked(m(ro, flags), sys(unix.SYS_MPROTECT, previous, page, rx))
		tries = append(tries, judgeForked("mprotect PROT_EXEC", err))
		_, err = t.forked(m(ro, flags), sys(unix.SYS_PKEY_MPROTECT, previous, page, rx, minus(1)))
		tries = append(tries, judgeForked("pkey_mprotect PROT_EXEC", err))
	}
	// personality(READ_IMPLIES_EXEC) turns PROT_READ into PROT_EXEC where the mount allows it, silently not where it does
	// not: the second mprotect would be the proof, and is the attempt above.
	return worst(tries...)
}

// execInject maps an object of the workspace into a program that is listed: this one.
func execInject() []Attempt {
	const door = "exec-inject"
	var a []Attempt
	for _, v := range []string{"LD_PRELOAD", "LD_AUDIT"} {
		a = append(a, Attempt{door + "/" + strings.ToLower(v), door, v + " of a workspace object into a listed program", Opens, func(t *Target) Outcome {
			return inject(t, v+"="+t.PayloadSO)
		}})
	}
	a = append(a, Attempt{door + "/ld_library_path", door, "LD_LIBRARY_PATH with a libc.so.6 of one's own", Opens, func(t *Target) Outcome {
		raw, err := os.ReadFile(t.PayloadSO)
		if err != nil {
			return impossible("no bait: %v", err)
		}
		dir := t.scratch("lib")
		if err := os.Mkdir(dir, 0o755); err != nil {
			return judge("mkdir", err)
		}
		if err := t.put(filepath.Join(dir, "libc.so.6"), raw, 0o644); err != nil {
			return judge("write", err)
		}
		return inject(t, "LD_LIBRARY_PATH="+dir)
	}})
	dirs := []struct {
		name string
		dir  func(*Target) string
	}{
		{"workspace", func(t *Target) string { return t.Workspace }},
		{"state", func(t *Target) string { return t.State }},
		{"tmp", func(*Target) string { return "/tmp" }},
		{"dev-shm", func(*Target) string { return "/dev/shm" }},
	}
	for _, d := range dirs {
		control := Opens
		if d.name == "tmp" || d.name == "dev-shm" {
			control = Varies
		}
		a = append(a, Attempt{door + "/map-" + d.name, door, "mmap and mprotect to PROT_EXEC of a file in " + d.name, control, func(t *Target) Outcome {
			p := t.scratchIn(d.dir(t), "map")
			if err := t.put(p, tinyELF(), 0o755); err != nil {
				return judge("write", err)
			}
			fd, err := unix.Open(p, unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				return judge("open", err)
			}
			defer unix.Close(fd)
			return mapExec(t, fd)
		}})
	}
	return append(a,
		Attempt{door + "/map-unlisted", door, "map an unlisted program of the system executable", Opens, func(t *Target) Outcome {
			fd, err := unix.Open("/usr/bin/env", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return judge("open", err)
			}
			defer unix.Close(fd)
			return mapExec(t, fd)
		}},
		Attempt{door + "/uselib", door, "uselib of a workspace object", Refused, func(t *Target) Outcome {
			if t.PayloadSO == "" {
				return impossible("no bait")
			}
			_, err := t.forked(sys(unix.SYS_USELIB, t.str(t.PayloadSO)))
			return judgeForked("uselib", err)
		}},
		Attempt{door + "/ld-so-preload", door, "write /etc/ld.so.preload", Refused, func(t *Target) Outcome {
			return openWrite("/etc/ld.so.preload", unix.O_CREAT|unix.O_EXCL)
		}},
		Attempt{door + "/ld-so-cache", door, "write /etc/ld.so.cache", Refused, func(t *Target) Outcome { return openWrite("/etc/ld.so.cache", 0) }},
	)
}

func inject(t *Target, env string) Outcome {
	if t.PayloadSO == "" {
		return impossible("no bait")
	}
	if !t.Dynamic {
		return impossible("this build has no dynamic loader")
	}
	status, out, err := run(t.Self, []string{t.Self, "noop"}, []string{env})
	if err == nil && status == 0 && out == "" {
		return closed("%s was ignored", env)
	}
	return loaded(env, status, out, err)
}
