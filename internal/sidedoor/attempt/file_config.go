package attempt

import (
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
		if t.Unwatched || t.HostPIDNS == 0 || !t.privatePID() {
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
