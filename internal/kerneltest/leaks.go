package kerneltest

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// firstUID is where the ids of sessions, commands and helpers begin.
const firstUID = 1900000000

// overflow is no id.
const overflow = 1<<32 - 1

// teardown is how long the kernel's own deferred cleaning may take before what is left counts as left behind.
const teardown = 3 * time.Second

// NoLeaks remembers what a session can leave on a machine (cgroups, mounts, sessions in /run, processes, users) and
// fails the test when there is more at its end. Tests of several packages run at once and must not be blamed for one
// another: only what is new and stays counts.
func NoLeaks(t testing.TB) {
	t.Helper()
	before := traces(t)
	t.Cleanup(func() {
		var left []string
		for deadline := time.Now().Add(Within(t, teardown)); ; time.Sleep(20 * time.Millisecond) {
			left = slices.DeleteFunc(traces(t), func(s string) bool { return slices.Contains(before, s) })
			if len(left) == 0 {
				return
			}
			if time.Now().After(deadline) {
				break
			}
		}
		t.Errorf("left behind:\n\t%s", strings.Join(left, "\n\t"))
	})
}

func traces(t testing.TB) []string {
	t.Helper()
	return slices.Concat(cgroups(t), mounts(t), sessions(t), processes(t), users(t))
}

// cgroups named after us, in whichever hierarchy.
func cgroups(t testing.TB) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return skipGone(err)
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), "sharness") {
			found = append(found, "cgroup "+path)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("look for cgroups: %v", err)
	}
	return found
}

// skipGone: another test may remove what this one is walking over.
func skipGone(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// mounts by target, source and type. The mount ids differ from one reading to the next when others mount.
func mounts(t testing.TB) []string {
	t.Helper()
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		t.Fatalf("look for mounts: %v", err)
	}
	defer f.Close()
	var found []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		found = append(found, "mount "+lines.Text())
	}
	if err := lines.Err(); err != nil {
		t.Fatalf("look for mounts: %v", err)
	}
	return found
}

func sessions(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir("/run/sharness")
	if err != nil && !os.IsNotExist(err) {
		t.Fatalf("look for sessions: %v", err)
	}
	var found []string
	for _, e := range entries {
		found = append(found, "session /run/sharness/"+e.Name())
	}
	return found
}

// processes with one of our ids, zombies included: those would be a reaper that does not reap. The owner of the folder
// in /proc would not do: it is root for a process that is not dumpable.
func processes(t testing.TB) []string {
	t.Helper()
	statuses, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatalf("look for processes: %v", err)
	}
	var found []string
	for _, path := range statuses {
		status, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		var name string
		var uid uint32
		for line := range strings.Lines(string(status)) {
			fmt.Sscanf(line, "Name: %s", &name)
			fmt.Sscanf(line, "Uid: %d", &uid)
		}
		if uid >= firstUID && uid != overflow {
			found = append(found, fmt.Sprintf("process %s, uid %d, %q", filepath.Dir(path), uid, name))
		}
	}
	return found
}

func users(t testing.TB) []string {
	t.Helper()
	var found []string
	for _, path := range []string{"/etc/passwd", "/etc/group", "/etc/subuid", "/etc/subgid"} {
		content, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			t.Fatalf("look for users: %v", err)
		}
		for line := range strings.Lines(string(content)) {
			found = append(found, path+" "+strings.TrimSpace(line))
		}
	}
	return found
}
