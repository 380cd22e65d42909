package sessiontest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// commandsForLeaks is how many commands must leave nothing; SHARNESS_COMMANDS=10000 takes some minutes.
func commandsForLeaks(t *testing.T) int {
	t.Helper()
	text := os.Getenv("SHARNESS_COMMANDS")
	if text == "" {
		return 500
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("SHARNESS_COMMANDS: %v", err)
	}
	return n
}

func TestCommandsLeaveNothingInTheProcessesOfTheirSession(t *testing.T) {
	s := newSite(t, nil)
	x := s.serve()
	defer x.stop()
	run := func(count int) {
		var left atomic.Int64
		left.Store(int64(count))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for n := left.Add(-1); n >= 0; n = left.Add(-1) {
					script := []string{"true", "echo x >/tmp/x", "exec 3<>/dev/tcp/127.0.0.1/9", "sleep 100 & exit"}[n%4]
					_ = x.client(context.Background(), ".", "-c", script).Run() // one of them fails, as it should
				}
			})
		}
		wg.Wait()
	}
	run(200) // what grows at first and then stays: ids, pools, threads
	pids := map[string]int{"supervisor": x.cmd.Process.Pid}
	for _, name := range []string{"sharness-bashd", "sharness-box"} {
		pids[name] = x.find(name, func(uid int) bool { return name != "sharness-box" || uid == 0 })
	}
	begin := x.holds(pids)
	run(commandsForLeaks(t))
	var end map[string]int
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if end = x.holds(pids); !grown(begin, end) {
			break
		}
	}
	for _, name := range slices.Sorted(maps.Keys(end)) {
		t.Logf("%-40s %d, then %d", name, begin[name], end[name])
	}
	if grown(begin, end) {
		t.Error("more is held after the commands than before")
	}
}

// holds counts what each process has, and what the session has in the kernel.
func (x *session) holds(pids map[string]int) map[string]int {
	x.t.Helper()
	out := map[string]int{}
	for name, pid := range pids {
		u := used(x.t, pid)
		out[name+" descriptors"] = u.total - u.fds[groupFiles] - u.fds[netFiles]
		out[name+" descriptors of groups"], out[name+" descriptors of networks"] = u.fds[groupFiles], u.fds[netFiles]
		out[name+" KiB"] = u.rss
		mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
		if err != nil {
			x.t.Fatal(err)
		}
		out[name+" mounts"] = strings.Count(string(mounts), "\n")
	}
	statuses, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range statuses {
		data, _ := os.ReadFile(path) // it may have ended
		_, rest, _ := strings.Cut(string(data), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(pids["supervisor"]) {
			out["children in state "+f[0]]++
		}
	}
	delete(out, "children in state R")
	delete(out, "children in state S")
	for _, dir := range []string{"/sys/fs/cgroup/*/sharness/*/commands/command-*", "/sys/fs/cgroup/sharness/*/commands/command-*"} {
		groups, _ := filepath.Glob(dir)
		out["cgroups"] += len(groups)
	}
	return out
}

// grown allows for what was being closed, or waited for a command, when it was counted.
func grown(begin, end map[string]int) bool {
	const hierarchies = 3
	// What Go keeps of its heap for later varies by that much, whether after 500 commands or after 10,000.
	const kept = 8 << 10
	bounds := map[string]int{"cgroups": hierarchies * waiting, "supervisor descriptors of groups": perGroup * waiting, "supervisor descriptors of networks": 2 * waiting}
	for name, n := range end {
		more := 6
		if strings.HasSuffix(name, " KiB") {
			more = kept
		}
		if n > max(begin[name]+more, bounds[name]) {
			return true
		}
	}
	return false
}
