package attempt

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// openWrite opens for writing and writes nothing; with O_CREAT|O_EXCL what was made is removed.
func openWrite(path string, flags int) Outcome {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|flags, 0o600)
	if err == unix.EEXIST {
		fd, err = unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	} else if err == nil && flags&unix.O_CREAT != 0 {
		unix.Unlink(path)
	}
	if err == nil {
		unix.Close(fd)
	}
	return judge("open "+path+" for writing", err, unix.ETXTBSY, unix.EISDIR)
}

// plant writes a file that host tools would trust. Where the file may be made, the launcher's watcher has to take it
// away; that it does so within takenAway is what closes the door.
func plant(t *Target, path string) Outcome {
	const takenAway = 3 * time.Second
	if _, err := os.Lstat(path); err == nil {
		return openWrite(path, 0)
	}
	made := path
	for dir := filepath.Dir(path); len(dir) > len(t.Workspace); dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); err == nil {
			break
		}
		made = dir
	}
	t.later(func() { os.RemoveAll(made) })
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return judge("mkdir", err)
	}
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
	if err == unix.ENOENT {
		return closed("%s was taken away at once", filepath.Dir(path)) // between mkdir and open
	}
	if err != nil {
		return judge("create "+path, err)
	}
	unix.Write(fd, []byte("planted by sharness-probe\n"))
	unix.Close(fd)
	start := time.Now()
	for time.Since(start) < takenAway {
		if _, err := os.Lstat(path); err != nil {
			return closed("%s was taken away after %v", path, time.Since(start).Round(time.Millisecond))
		}
		if t.HostPIDNS == 0 || !t.privatePID() {
			break // nobody is there to take it away
		}
		time.Sleep(5 * time.Millisecond)
	}
	return opened("%s was made and stays", path)
}

func config() []Attempt {
	const door = "file-config"
	var a []Attempt
	for _, p := range []string{"/etc/hosts", "/etc/passwd", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/ld.so.conf", "/etc/profile", "/etc/gitconfig",
		"/etc/ssl/certs/ca-certificates.crt", "/usr/bin/env", "/usr/lib/os-release", "/run/sharness", "/run/sharness/bin", client} {
		control := Refused
		if strings.HasPrefix(p, "/run/sharness") {
			control = NoServer
		}
		a = append(a, Attempt{door + "/write-" + nameOf(p), door, "write " + p, control, func(*Target) Outcome {
			var st unix.Stat_t
			if unix.Stat(p, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
				return openWrite(filepath.Join(p, ".sharness-probe"), unix.O_CREAT|unix.O_EXCL)
			}
			return openWrite(p, 0)
		}})
	}
	for _, p := range []string{"/etc/sharness", "/var/lib/sharness/uids", "/var/log/sharness", "/usr/local/libexec/sharness", "/usr/libexec/sharness", "/root/.claude"} {
		a = append(a, Attempt{door + "/see-" + nameOf(p), door, "look into " + p, Varies, func(*Target) Outcome {
			_, err := readDirNames(p)
			if err == nil {
				return openWrite(filepath.Join(p, ".sharness-probe"), unix.O_CREAT|unix.O_EXCL)
			}
			return judge("open "+p, err)
		}})
	}
	for _, p := range []string{"/etc/cron.d/sharness-probe", "/etc/profile.d/sharness-probe.sh", "/etc/systemd/system/sharness-probe.service", "/etc/sudoers.d/sharness-probe",
		"/etc/apt/apt.conf.d/sharness-probe", "/etc/claude-code/managed-settings.json", "/usr/local/bin/sharness-probe-planted"} {
		a = append(a, Attempt{door + "/create-" + nameOf(p), door, "create " + p, Refused, func(*Target) Outcome { return openWrite(p, unix.O_CREAT|unix.O_EXCL) }})
	}
	a = append(a,
		Attempt{door + "/owned", door, "write a file of one's own outside of the workspace", Opens, func(t *Target) Outcome {
			if t.Owned == "" {
				return impossible("no bait")
			}
			return openWrite(t.Owned, 0)
		}},
		Attempt{door + "/proc-self-root", door, "write it through /proc/self/root", Opens, func(t *Target) Outcome {
			if t.Owned == "" {
				return impossible("no bait")
			}
			return openWrite("/proc/self/root"+t.Owned, 0)
		}},
		Attempt{door + "/above-workspace", door, "create a file beside the workspace", Varies, func(t *Target) Outcome {
			return openWrite(filepath.Join(filepath.Dir(t.Workspace), ".sharness-probe-beside"), unix.O_CREAT|unix.O_EXCL)
		}},
		Attempt{door + "/move-workspace", door, "rename the workspace's own folder", Varies, func(t *Target) Outcome {
			err := unix.Rename(t.Workspace, t.Workspace+".moved")
			if err == nil {
				unix.Rename(t.Workspace+".moved", t.Workspace)
			}
			return judge("rename", err, unix.EBUSY)
		}},
	)
	for _, n := range []string{".claude/settings.json", ".claude/settings.local.json", ".mcp.json", ".codex/config.toml", ".gemini/settings.json", "opencode.json",
		".cursor/mcp.json", ".vscode/tasks.json", ".vscode/settings.json", ".idea/workspace.xml", ".envrc", ".bashrc", ".bash_profile", ".profile", ".zshrc"} {
		a = append(a, Attempt{door + "/plant-" + nameOf("/"+n), door, "plant " + n + " in the workspace", Opens, func(t *Target) Outcome {
			return plant(t, filepath.Join(t.Workspace, n))
		}})
	}
	return a
}

// git attacks what git and editors on the host run later. Whatever opens is put back.
func git() []Attempt {
	const door = "file-git"
	var a []Attempt
	inGit := func(id, what string, how func(t *Target, dir string) Outcome) {
		a = append(a, Attempt{door + "/" + id, door, what, Opens, func(t *Target) Outcome {
			dir := filepath.Join(t.Workspace, ".git")
			if _, err := os.Stat(dir); err != nil {
				return impossible("the workspace is no repository: %v", err)
			}
			return how(t, dir)
		}})
	}
	for _, n := range []string{"hooks/post-checkout", "hooks/pre-commit", "config", "config.worktree", "commondir"} {
		inGit("write-"+nameOf(n), "write .git/"+n, func(t *Target, dir string) Outcome { return plant(t, filepath.Join(dir, n)) })
	}
	// Only those that exist are protected: a new worktree is a new repository, which is reported.
	for _, n := range []string{"modules/*/config", "modules/*/hooks/post-checkout", "modules/*/commondir", "worktrees/*/gitdir", "worktrees/*/commondir", "worktrees/*/config.worktree"} {
		inGit("write-"+strings.ReplaceAll(nameOf(n), "*", "any"), "write .git/"+n, func(t *Target, dir string) Outcome {
			kind, rest, _ := strings.Cut(n, "/*/")
			found, err := filepath.Glob(filepath.Join(dir, kind, "*"))
			if err != nil || len(found) == 0 {
				return impossible("the repository has no %s", kind)
			}
			var all []Outcome
			for _, f := range found {
				all = append(all, plant(t, filepath.Join(f, rest)))
			}
			return worst(all...)
		})
	}
	move := func(from, to string) Outcome {
		err := unix.Rename(from, to)
		if err == nil {
			unix.Rename(to, from)
		}
		return judge("rename "+from, err, unix.EBUSY)
	}
	inGit("rename-over-config", "rename another file over .git/config", func(t *Target, dir string) Outcome {
		mine := t.scratch("config")
		if err := t.put(mine, []byte("[core]\n"), 0o644); err != nil {
			return judge("write", err)
		}
		config := filepath.Join(dir, "config")
		err := unix.Renameat2(unix.AT_FDCWD, mine, unix.AT_FDCWD, config, unix.RENAME_EXCHANGE)
		if err == nil {
			unix.Renameat2(unix.AT_FDCWD, mine, unix.AT_FDCWD, config, unix.RENAME_EXCHANGE)
		}
		return judge("renameat2 EXCHANGE", err, unix.EBUSY)
	})
	inGit("lock-then-rename", "make .git/config.lock and rename it, as git does", func(t *Target, dir string) Outcome {
		lock, config := filepath.Join(dir, "config.lock"), filepath.Join(dir, "config")
		before, err := os.ReadFile(config)
		if err != nil {
			return judge("read .git/config", err)
		}
		if err := t.put(lock, before, 0o644); err != nil {
			return judge("create config.lock", err)
		}
		return judge("rename", unix.Rename(lock, config), unix.EBUSY)
	})
	inGit("move-git", "rename .git", func(t *Target, dir string) Outcome { return move(dir, t.scratch("git")) })
	inGit("move-hooks", "rename .git/hooks", func(_ *Target, dir string) Outcome {
		return move(filepath.Join(dir, "hooks"), filepath.Join(dir, "hooks.moved"))
	})
	inGit("move-config", "rename .git/config", func(_ *Target, dir string) Outcome {
		return move(filepath.Join(dir, "config"), filepath.Join(dir, "config.moved"))
	})
	inGit("symlink", "write a hook through a symbolic link", func(t *Target, dir string) Outcome {
		link := t.scratch("hooks")
		if err := os.Symlink(filepath.Join(dir, "hooks"), link); err != nil {
			return judge("symlink", err)
		}
		return openWrite(filepath.Join(link, "post-merge"), unix.O_CREAT|unix.O_EXCL)
	})
	inGit("hardlink", "write .git/config through a hard link", func(t *Target, dir string) Outcome {
		link := t.scratch("hard")
		if err := unix.Link(filepath.Join(dir, "config"), link); err != nil {
			return judge("link", err)
		}
		return openWrite(link, 0)
	})
	inGit("proc-self-root", "write a hook through /proc/self/root", func(_ *Target, dir string) Outcome {
		return openWrite("/proc/self/root"+filepath.Join(dir, "hooks/post-rewrite"), unix.O_CREAT|unix.O_EXCL)
	})
	inGit("truncate", "truncate .git/config by path, to the length it has", func(_ *Target, dir string) Outcome {
		var st unix.Stat_t
		config := filepath.Join(dir, "config")
		if err := unix.Stat(config, &st); err != nil {
			return judge("stat", err)
		}
		return judge("truncate", unix.Truncate(config, st.Size))
	})
	inGit("plant-gitmodules", "plant .gitmodules", func(t *Target, _ string) Outcome { return plant(t, filepath.Join(t.Workspace, ".gitmodules")) })
	return a
}

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

// cores changes RLIMIT_CORE. Lowering it opens the door as well as raising it: a piped handler runs at 0 and not at 1.
func cores() []Attempt {
	const door = "core-helper"
	inf := ^uint64(0)
	row := func(id, what string, control Control, calls func(t *Target) []call) Attempt {
		return Attempt{door + "/" + id, door, what, control, func(t *Target) Outcome {
			_, err := t.forked(calls(t)...)
			return judgeForked(what, err)
		}}
	}
	return []Attempt{
		{door + "/limit", door, "find RLIMIT_CORE at anything but 1", Varies, func(*Target) Outcome {
			var r unix.Rlimit
			if err := unix.Getrlimit(unix.RLIMIT_CORE, &r); err != nil {
				return judge("getrlimit", err)
			}
			if r.Cur == 1 && r.Max == 1 {
				return closed("RLIMIT_CORE is 1/1")
			}
			return opened("RLIMIT_CORE is %d/%d", r.Cur, r.Max)
		}},
		row("raise", "prlimit64 RLIMIT_CORE to no limit", Varies, func(t *Target) []call {
			return []call{sys(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, t.words(8, inf, inf), 0)}
		}),
		row("raise-old", "setrlimit RLIMIT_CORE to no limit", Varies, func(t *Target) []call {
			return []call{sys(unix.SYS_SETRLIMIT, unix.RLIMIT_CORE, t.words(8, inf, inf))}
		}),
		row("zero", "prlimit64 RLIMIT_CORE to 0, at which piped handlers run", Opens, func(t *Target) []call {
			return []call{sys(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, t.words(8, 0, 0), 0)}
		}),
		row("zero-old", "setrlimit RLIMIT_CORE to 0", Opens, func(t *Target) []call {
			return []call{sys(unix.SYS_SETRLIMIT, unix.RLIMIT_CORE, t.words(8, 0, 0))}
		}),
		row("zero-own-pid", "prlimit64 by one's own pid", Opens, func(t *Target) []call {
			return []call{sys(unix.SYS_GETPID), sys(unix.SYS_PRLIMIT64, previous, unix.RLIMIT_CORE, t.words(8, 0, 0), 0)}
		}),
		row("high-bits", "setrlimit with bits above 32 set in the resource", Opens, func(t *Target) []call {
			return []call{sys(unix.SYS_SETRLIMIT, 1<<32|unix.RLIMIT_CORE, t.words(8, 0, 0))}
		}),
	}
}
