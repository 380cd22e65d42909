package attempt

import (
	"golang.org/x/sys/unix"
)

// execSwap changes a pinned file under its name. EXDEV, EBUSY and ETXTBSY are refusals here: the name is a mount point
// or the image is running.
func execSwap() []Attempt {
	const door = "exec-swap"
	also := []unix.Errno{unix.EBUSY, unix.ETXTBSY}
	targets := []struct {
		name    string
		path    func(*Target) string
		control Control
	}{
		{"owned", func(t *Target) string { return t.Owned }, Opens}, // shows that the attempts work
		{"self", func(t *Target) string { return t.Self }, Refused},
		{"loader", func(t *Target) string { return t.Loader }, Refused},
		{"client", func(*Target) string { return client }, NoServer},
	}
	var a []Attempt
	for _, x := range targets {
		add := func(id, what string, how func(t *Target, path string) Outcome) {
			a = append(a, Attempt{door + "/" + x.name + "-" + id, door, what + " (" + x.name + ")", x.control, func(t *Target) Outcome {
				path := x.path(t)
				if path == "" {
					return impossible("no such file here")
				}
				return how(t, path)
			}})
		}
		add("write", "open a pinned file for writing", func(t *Target, path string) Outcome {
			fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				unix.Close(fd)
			}
			return judge("open for writing", err, also...)
		})
		add("exchange", "rename another file over a pinned one", func(t *Target, path string) Outcome {
			mine := t.scratch("swap")
			if err := t.put(mine, tinyELF(), 0o755); err != nil {
				return judge("write", err)
			}
			// Exchanged, so that it can be put back.
			err := unix.Renameat2(unix.AT_FDCWD, mine, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)
			if err == nil {
				unix.Renameat2(unix.AT_FDCWD, mine, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)
			}
			return judge("renameat2 EXCHANGE", err, also...)
		})
		add("move", "move a pinned file away", func(t *Target, path string) Outcome {
			err := unix.Rename(path, path+".moved")
			if err == nil {
				unix.Rename(path+".moved", path)
			}
			return judge("rename", err, also...)
		})
		add("truncate", "truncate a pinned file by path, to the length it has", func(t *Target, path string) Outcome {
			var st unix.Stat_t
			if err := unix.Stat(path, &st); err != nil {
				return judge("stat", err)
			}
			return judge("truncate", unix.Truncate(path, st.Size), also...)
		})
		add("chmod", "change the mode of a pinned file to what it is", func(t *Target, path string) Outcome {
			var st unix.Stat_t
			if err := unix.Stat(path, &st); err != nil {
				return judge("stat", err)
			}
			return judge("chmod", unix.Chmod(path, st.Mode&0o777), also...)
		})
	}
	return append(a,
		Attempt{door + "/proc-self-exe", door, "open /proc/self/exe for writing", Refused, func(t *Target) Outcome {
			fd, err := unix.Open("/proc/self/exe", unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				unix.Close(fd)
			}
			return judge("open for writing", err, also...)
		}},
	)
}
