package attempt

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

func fifos() []Attempt {
	const door = "file-fifo"
	return []Attempt{
		{door + "/mkfifo", door, "make a FIFO in the workspace", Opens, func(t *Target) Outcome { return judge("mkfifo", unix.Mkfifo(t.scratch("fifo"), 0o600)) }},
		{door + "/mknod", door, "make a FIFO with mknod", Opens, func(t *Target) Outcome {
			return judge("mknod", unix.Mknod(t.scratch("fifo"), unix.S_IFIFO|0o600, 0))
		}},
		{door + "/mknod-socket", door, "make a socket file with mknod", Opens, func(t *Target) Outcome {
			return judge("mknod", unix.Mknod(t.scratch("sock"), unix.S_IFSOCK|0o600, 0))
		}},
		{door + "/bind", door, "bind a unix socket in the workspace", Opens, func(t *Target) Outcome { return bindUnix(t.scratch("s")) }},
		{door + "/bind-below", door, "bind one in a folder below", Opens, func(t *Target) Outcome {
			dir := t.scratch("d")
			if err := os.Mkdir(dir, 0o755); err != nil {
				return judge("mkdir", err)
			}
			return bindUnix(filepath.Join(dir, "s"))
		}},
		{door + "/move-in", door, "make a FIFO in /tmp and move it into the workspace", Varies, func(t *Target) Outcome {
			from := t.scratchIn("/tmp", "fifo")
			if err := unix.Mkfifo(from, 0o600); err != nil {
				return judge("mkfifo", err)
			}
			return judge("rename", unix.Rename(from, t.scratch("fifo")))
		}},
		{door + "/device", door, "make a device", Refused, func(t *Target) Outcome {
			return judge("mknod", unix.Mknod(t.scratch("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
		}},
		{door + "/whiteout", door, "make an overlay whiteout", Varies, func(t *Target) Outcome {
			return judge("mknod", unix.Mknod(t.scratch("whiteout"), unix.S_IFCHR|0o600, 0))
		}},
	}
}

func links() []Attempt {
	const door = "file-link"
	through := func(id, what string, control Control, target func(t *Target) string) Attempt {
		return Attempt{door + "/" + id, door, what, control, func(t *Target) Outcome {
			to := target(t)
			if to == "" {
				return impossible("no bait")
			}
			link := t.scratch("link")
			if err := os.Symlink(to, link); err != nil {
				return judge("symlink", err)
			}
			fd, err := unix.Open(link, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				unix.Close(fd)
			}
			return judge("open", err)
		}}
	}
	return []Attempt{
		through("symlink-secret", "read a secret through a symbolic link in the workspace", Opens, func(t *Target) string { return t.Secret }),
		through("symlink-world", "read a file outside of the manifest through a symbolic link", Opens, func(t *Target) string { return t.SecretWorld }),
		through("symlink-relative", "read a secret through a relative symbolic link", Opens, func(t *Target) string {
			if t.Secret == "" {
				return ""
			}
			return strings.Repeat("../", 32) + t.Secret[1:]
		}),
		through("symlink-proc", "read a secret through a link to /proc/self/root", Opens, func(t *Target) string {
			if t.Secret == "" {
				return ""
			}
			return "/proc/self/root" + t.Secret
		}),
		through("symlink-proc-1", "read a secret through a link to /proc/1/root", Refused, func(t *Target) string {
			if t.Secret == "" {
				return ""
			}
			return "/proc/1/root" + t.Secret
		}),
		{door + "/hardlink", door, "hard link of an outside file into the workspace", Opens, func(t *Target) Outcome {
			if t.Owned == "" {
				return impossible("no bait")
			}
			return judge("link", unix.Link(t.Owned, t.scratch("hard")))
		}},
		{door + "/hardlink-proc-fd", door, "hard link of /etc/passwd's descriptor into the workspace", Refused, func(t *Target) Outcome {
			fd, err := unix.Open("/etc/passwd", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return judge("open", err)
			}
			defer unix.Close(fd)
			return judge("linkat", unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, t.scratch("hard"), unix.AT_SYMLINK_FOLLOW))
		}},
		{door + "/dotdot", door, "climb out of the workspace by its descriptor", Opens, func(t *Target) Outcome {
			if t.Secret == "" {
				return impossible("no bait")
			}
			fd, err := unix.Open(t.Workspace, unix.O_PATH|unix.O_CLOEXEC, 0)
			if err != nil {
				return judge("open", err)
			}
			defer unix.Close(fd)
			up, err := unix.Openat(fd, strings.Repeat("../", 32)+t.Secret[1:], unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				unix.Close(up)
			}
			return judge("openat", err)
		}},
	}
}
