package attempt

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// meta changes what Landlock does not guard, to the value it has already. Its targets belong to the probing user: on
// other files the kernel refuses without our help.
func meta() []Attempt {
	const door = "file-meta"
	each := func(id, what string, how func(path string, st *unix.Stat_t) error) Attempt {
		return Attempt{door + "/" + id, door, what, Opens, func(t *Target) Outcome {
			paths := append([]string{}, t.ReadOnly...)
			for _, p := range []string{filepath.Join(t.Workspace, ".git/config"), filepath.Join(t.Workspace, ".git/hooks")} {
				if _, err := os.Stat(p); err == nil {
					paths = append(paths, p)
				}
			}
			if len(paths) == 0 {
				return impossible("no file that is only to be read")
			}
			var all []Outcome
			for _, p := range paths {
				var st unix.Stat_t
				if err := unix.Stat(p, &st); err != nil {
					all = append(all, judge("stat "+p, err))
					continue
				}
				all = append(all, judge(id+" "+p, how(p, &st), unix.EISDIR))
			}
			return worst(all...)
		}}
	}
	return []Attempt{
		each("chmod", "chmod of a file that is only to be read", func(p string, st *unix.Stat_t) error { return unix.Chmod(p, st.Mode&0o777) }),
		each("fchmod", "fchmod through a descriptor open for reading", func(p string, st *unix.Stat_t) error {
			fd, err := unix.Open(p, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Fchmod(fd, st.Mode&0o777)
		}),
		each("chown", "chown to its owner", func(p string, st *unix.Stat_t) error { return unix.Chown(p, int(st.Uid), int(st.Gid)) }),
		each("utimes", "set its times, to what they are", func(p string, st *unix.Stat_t) error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{st.Atim, st.Mtim}, 0)
		}),
		each("xattr", "set an extended attribute", func(p string, _ *unix.Stat_t) error {
			err := unix.Setxattr(p, "user.sharness-probe", []byte("x"), 0)
			if err == nil {
				unix.Removexattr(p, "user.sharness-probe")
			}
			return err
		}),
		each("truncate", "truncate it by path, to the length it has", func(p string, st *unix.Stat_t) error { return unix.Truncate(p, st.Size) }),
	}
}

func leases() []Attempt {
	const door = "file-lease"
	file := func(id, what string, flag int, calls func(fd uintptr) []call) Attempt {
		return Attempt{door + "/" + id, door, what, Opens, func(t *Target) Outcome {
			p := t.scratch("lease")
			if err := t.put(p, []byte("x"), 0o600); err != nil {
				return judge("write", err)
			}
			fd, err := unix.Open(p, flag|unix.O_CLOEXEC, 0)
			if err != nil {
				return judge("open", err)
			}
			defer unix.Close(fd)
			_, err = t.forked(calls(uintptr(fd))...)
			return judgeForked(what, err)
		}}
	}
	return []Attempt{
		file("read", "F_SETLEASE F_RDLCK on a workspace file", unix.O_RDONLY, func(fd uintptr) []call { return []call{sys(unix.SYS_FCNTL, fd, unix.F_SETLEASE, unix.F_RDLCK)} }),
		file("write", "F_SETLEASE F_WRLCK on a workspace file", unix.O_RDWR, func(fd uintptr) []call { return []call{sys(unix.SYS_FCNTL, fd, unix.F_SETLEASE, unix.F_WRLCK)} }),
		file("high-bits", "F_SETLEASE with bits above 32 set", unix.O_RDONLY, func(fd uintptr) []call {
			return []call{sys(unix.SYS_FCNTL, fd, 1<<32|unix.F_SETLEASE, unix.F_RDLCK)}
		}),
		{door + "/notify", door, "F_NOTIFY on the workspace", Opens, func(t *Target) Outcome {
			fd, err := unix.Open(t.Workspace, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return judge("open", err)
			}
			defer unix.Close(fd)
			// DN_CREATE; the child ends and the watch with it, before anything could be created.
			_, err = t.forked(sys(unix.SYS_FCNTL, uintptr(fd), unix.F_NOTIFY, 4))
			return judgeForked("F_NOTIFY", err)
		}},
	}
}
