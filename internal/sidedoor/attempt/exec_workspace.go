package attempt

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// execWorkspace writes programs and scripts into every folder that some domain might leave writable.
func execWorkspace() []Attempt {
	const door = "exec-workspace"
	dirs := []struct {
		name    string
		dir     func(*Target) string
		control Control
	}{
		{"workspace", func(t *Target) string { return t.Workspace }, Opens},
		{"state", func(t *Target) string { return t.State }, Opens},
		{"tmp", func(*Target) string { return "/tmp" }, Varies}, // a host may mount these noexec
		{"var-tmp", func(*Target) string { return "/var/tmp" }, Varies},
		{"dev-shm", func(*Target) string { return "/dev/shm" }, Varies},
		{"dev-mqueue", func(*Target) string { return "/dev/mqueue" }, Varies},
		{"dev", func(*Target) string { return "/dev" }, Refused},
		{"run", func(*Target) string { return "/run" }, Refused},
		{"run-sharness", func(*Target) string { return "/run/sharness" }, NoServer},
		{"run-lock", func(*Target) string { return "/run/lock" }, Varies},
		{"run-user", func(*Target) string { return fmt.Sprintf("/run/user/%d", os.Getuid()) }, Varies},
		{"root", func(*Target) string { return "/" }, Refused},
		{"home", func(*Target) string { return "/home" }, Refused},
		{"opt", func(*Target) string { return "/opt" }, Refused},
		{"usr-bin", func(*Target) string { return "/usr/bin" }, Refused},
		{"cwd", func(*Target) string { return "/proc/self/cwd" }, Varies},
	}
	var a []Attempt
	for _, d := range dirs {
		for _, k := range kinds {
			a = append(a, Attempt{fmt.Sprintf("%s/%s-%s", door, d.name, k.name), door, "write " + k.what + " into " + strings.ReplaceAll(d.name, "-", "/") + " and execute it",
				d.control, func(t *Target) Outcome {
					dir := d.dir(t)
					if dir == "" {
						return impossible("no such folder is known")
					}
					return k.how(t, dir)
				}})
		}
	}
	return append(a,
		Attempt{door + "/two-scripts", door, "execute a script whose interpreter is a script", Opens, func(t *Target) Outcome {
			first, second := t.scratch("first"), t.scratch("second")
			if err := t.put(first, []byte("#!"+t.Self+" payload\n"), 0o755); err != nil {
				return judge("write", err)
			}
			if err := t.put(second, []byte("#!"+first+"\n"), 0o755); err != nil {
				return judge("write", err)
			}
			return execute(second)
		}},
		Attempt{door + "/env-script", door, "execute a script that asks env for its interpreter", Opens, func(t *Target) Outcome {
			return script(t, t.Workspace, "#!/usr/bin/env sh\nexit 219\n")
		}},
		Attempt{door + "/readable-only", door, "execute a file of mode 0600 through its descriptor", Refused, func(t *Target) Outcome {
			p := t.scratch("plain")
			if err := t.put(p, tinyELF(), 0o600); err != nil {
				return judge("write", err)
			}
			fd, err := unix.Open(p, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return judge("open", err)
			}
			defer unix.Close(fd)
			return execFD(t, fd)
		}},
		Attempt{door + "/renamed", door, "write data, rename it to a program's name, add the mode, execute it", Opens, func(t *Target) Outcome {
			p, to := t.scratch("data"), t.scratch("sharness-bash")
			if err := t.put(p, tinyELF(), 0o600); err != nil {
				return judge("write", err)
			}
			if err := unix.Rename(p, to); err != nil {
				return judge("rename", err)
			}
			if err := unix.Chmod(to, 0o755); err != nil {
				return judge("chmod", err)
			}
			return execute(to)
		}},
	)
}

var kinds = []struct {
	name, what string
	how        func(t *Target, dir string) Outcome
}{
	{"elf", "a program", func(t *Target, dir string) Outcome {
		p := t.scratchIn(dir, "elf")
		if err := t.put(p, tinyELF(), 0o755); err != nil {
			return written(dir, err)
		}
		return worst(execute(p), execute("/proc/self/root"+p))
	}},
	{"script", "a script of an unlisted interpreter", func(t *Target, dir string) Outcome {
		return script(t, dir, "#!/bin/sh\nexit 219\n")
	}},
	{"script-listed", "a script of a listed interpreter", func(t *Target, dir string) Outcome {
		return script(t, dir, "#!"+t.Self+" payload\n")
	}},
	{"o-tmpfile", "a nameless file (O_TMPFILE)", func(t *Target, dir string) Outcome {
		fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o755)
		if err != nil {
			return judge("open O_TMPFILE", err, unix.EOPNOTSUPP, unix.EISDIR, unix.EINVAL)
		}
		_, err = unix.Write(fd, tinyELF())
		ro, reopen := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		unix.Close(fd) // a file open for writing is ETXTBSY to execve
		if err != nil {
			return judge("write", err)
		}
		if reopen != nil {
			return judge("reopen", reopen)
		}
		defer unix.Close(ro)
		return execFD(t, ro)
	}},
}

func script(t *Target, dir, text string) Outcome {
	p := t.scratchIn(filepath.Clean(dir), "script")
	if err := t.put(p, []byte(text), 0o755); err != nil {
		return written(dir, err)
	}
	return execute(p)
}
