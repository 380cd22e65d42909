package attempt

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

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
			if t.Unlisted == "" {
				return impossible("no bait")
			}
			fd, err := unix.Open(t.Unlisted, unix.O_RDONLY|unix.O_CLOEXEC, 0)
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
