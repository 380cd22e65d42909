package prove

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sharness/sharness/launcher"
)

// teardown is how long the kernel may take to let go of what ended.
const teardown = 3 * time.Second

// look lists what on this host could be ours: names, mounts, groups and processes.
func look() (map[string]bool, error) {
	found := map[string]bool{}
	for _, pattern := range []string{"/run/sharness/*", "/run/sharness/locks/*", "/var/lib/sharness/*", "/var/lib/sharness/quarantine/*", "/var/lib/sharness/protected/*",
		"/var/lib/sharness-prove-*", "/tmp/.sharness-*", "/tmp/sharness-*", "/var/tmp/.sharness-*", "/var/tmp/sharness-*", "/dev/shm/.sharness-*", "/dev/shm/sharness-*",
		"/dev/mqueue/sharness-*", "/run/.sharness-*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, p := range paths {
			found[p] = true
		}
	}
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, "/sharness") {
			found[path] = true
		}
		return nil // other groups come and go
	})
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, "sharness-prove-") {
			found["mount "+strings.TrimSpace(line)] = true
		}
	}
	return found, processes(found)
}

// processes adds those of the ids that only prove uses.
func processes(found map[string]bool) error {
	paths, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		return err
	}
	for _, p := range paths {
		status, err := os.ReadFile(p)
		if err != nil {
			continue // it has ended
		}
		for _, uid := range []int{launcher.ProofUID, launcher.BaitUID} {
			if bytes.Contains(status, fmt.Appendf(nil, "\nUid:\t%d\t", uid)) {
				found["process "+filepath.Dir(p)] = true
			}
		}
	}
	return nil
}

// leftBehind is what was not there before. Sessions of others come and go meanwhile; what is none of ours is not named.
func leftBehind(before map[string]bool) ([]string, error) {
	for deadline := time.Now().Add(teardown); ; time.Sleep(20 * time.Millisecond) {
		now, err := look()
		if err != nil {
			return nil, err
		}
		left := []string{}
		for what := range now {
			if !before[what] && ours(what) {
				left = append(left, what)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			slices.Sort(left)
			return left, nil
		}
	}
}

// ours leaves out what other sessions of this host make at the same time.
func ours(what string) bool {
	return strings.Contains(what, "prove") || strings.Contains(what, "sharness-probe") || strings.HasPrefix(what, "process ")
}
