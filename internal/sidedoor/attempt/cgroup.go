package attempt

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func cgroups() []Attempt {
	const door = "cg-escape"
	a := []Attempt{
		{door + "/mkdir", door, "make a cgroup", Refused, func(t *Target) Outcome {
			var all []Outcome
			for _, dir := range cgroupDirs() {
				p := filepath.Join(dir, fmt.Sprintf("sharness-probe-%d", os.Getpid()))
				err := unix.Mkdir(p, 0o755)
				if err == nil {
					unix.Rmdir(p)
				}
				all = append(all, judge("mkdir "+p, err))
			}
			return worst(all...)
		}},
		{door + "/clone-into", door, "clone3 into another cgroup", Refused, func(t *Target) Outcome {
			fd, err := unix.Open("/sys/fs/cgroup", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return judge("open /sys/fs/cgroup", err)
			}
			defer unix.Close(fd)
			const cloneIntoCgroup = 1 << 33
			args := t.words(8, cloneIntoCgroup, 0, 0, 0, uint64(unix.SIGCHLD), 0, 0, 0, 0, 0, uint64(fd))
			_, err = t.forked(sys(unix.SYS_CLONE3, args, 88))
			return judgeForked("clone3", err, unix.EBADF, unix.EINVAL) // the root is no cgroup2 on a hybrid host
		}},
		{door + "/mount", door, "mount cgroup2", Refused, func(t *Target) Outcome {
			_, err := t.forked(sys(unix.SYS_MOUNT, t.str("none"), t.str("/proc/self/fdinfo"), t.str("cgroup2"), unix.MS_REMOUNT, 0))
			return reachedForked("mount", err) // it is no mount point: EINVAL is past the check
		}},
		{door + "/namespace", door, "see the host's cgroup path in /proc/self/cgroup", Varies, func(*Target) Outcome {
			raw, err := os.ReadFile("/proc/self/cgroup")
			if err != nil {
				return judge("read /proc/self/cgroup", err)
			}
			for line := range strings.Lines(string(raw)) {
				f := strings.SplitN(strings.TrimSpace(line), ":", 3)
				if len(f) == 3 && f[2] != "/" {
					return opened("%s", strings.TrimSpace(line))
				}
			}
			return closed("every path is /")
		}},
	}
	for _, f := range []string{"cgroup.procs", "tasks", "cgroup.threads", "cgroup.subtree_control", "pids.max", "memory.max", "memory.limit_in_bytes", "cgroup.kill", "cgroup.freeze", "release_agent", "notify_on_release"} {
		a = append(a, Attempt{door + "/" + f, door, "open " + f + " of any cgroup for writing", Refused, func(*Target) Outcome {
			var all []Outcome
			for _, dir := range cgroupDirs() {
				all = append(all, openWrite(filepath.Join(dir, f), 0))
			}
			return worst(all...)
		}})
	}
	return a
}

// cgroupDirs are the places where the own cgroup and its root would be, on v1, v2 and hybrid hosts.
func cgroupDirs() []string {
	dirs := []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory"}
	raw, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(raw)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		if _, err := strconv.Atoi(f[0]); err != nil {
			continue
		}
		controller := f[1]
		if controller == "" {
			dirs = append(dirs, filepath.Join("/sys/fs/cgroup", f[2]), filepath.Join("/sys/fs/cgroup/unified", f[2]))
			continue
		}
		dirs = append(dirs, filepath.Join("/sys/fs/cgroup", controller, f[2]))
	}
	return dirs
}
