package launcher

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
)

// testGroup makes a group that ends with the test. It stands beside cgroupRoot: below it a session that starts meanwhile
// removes what has no supervisor.
func testGroup(t *testing.T, name string, lim cgroupLimits) *cgroup {
	t.Helper()
	kerneltest.RequireRoot(t)
	cg, err := newCgroup(fmt.Sprintf("%s-test-%d/%s", cgroupRoot, os.Getpid(), name), lim)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(cg.kill(), cg.delete()); err != nil {
			t.Error(err)
		}
		for _, dir := range cg.dirs {
			_ = unix.Rmdir(filepath.Dir(dir)) // with the last one
		}
	})
	return cg
}

// runIn runs a program that is born in the group.
func runIn(cg *cgroup, argv ...string) (string, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var out strings.Builder
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := startIn(cg, cmd); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return out.String(), err
}

// startIn wants a locked thread.
func startIn(cg *cgroup, cmd *exec.Cmd) error {
	return cg.with(func(fd int) error {
		if cg.v2 != nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
		}
		return cmd.Start()
	})
}

// queue fills the buffers of connections that nobody reads, 4 MiB asked for each, until none takes more or 512 MiB lie
// there, and says how much it was.
const queue = `
import socket, sys
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(200)
total, block, keep = 0, b"x" * (1 << 20), []
for i in range(64):
    c = socket.socket(); c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20); c.connect(s.getsockname())
    p, _ = s.accept(); p.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20); c.setblocking(False); keep += [c, p]
    for _ in range(100):
        try: total += c.send(block)
        except BlockingIOError: pass
print(total >> 20)
`

func TestTCPBuffersAreBounded(t *testing.T) {
	kerneltest.RequireProgram(t, "/usr/bin/python3")
	const limit = 64 // MiB
	queued := func(name string, cg *cgroup) int {
		t.Helper()
		out, err := runIn(cg, "/usr/bin/python3", "-c", queue)
		if err != nil {
			if _, oom := cg.hits(); oom {
				return limit // the memory limit is met by then: v2 counts all alike
			}
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		n, err := strconv.Atoi(strings.TrimSpace(out))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return n
	}
	free := queued("without a limit", testGroup(t, "free", cgroupLimits{pids: 64}))
	got := queued("limited", testGroup(t, "limited", cgroupLimits{pids: 64, memory: limit << 20}))
	t.Logf("%d MiB without a limit, %d MiB with one of %d MiB", free, got, limit)
	if free <= 2*limit {
		t.Errorf("without a limit %d MiB were queued, so the test says nothing", free)
	}
	if got > limit {
		t.Errorf("with a limit of %d MiB %d MiB were queued in TCP buffers", limit, got)
	}
}

// usage is what a group is charged for. Unlike memory.stat it is no older than the question.
func usage(t *testing.T, cg *cgroup) int {
	t.Helper()
	path := filepath.Join(cg.dirs[0], "memory.current")
	if cg.v2 == nil {
		path = filepath.Join(cg.dirs[1], "memory.usage_in_bytes")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Each group has written a file that stays, and the file system has committed it. Some pages are in use by it again.
func TestReclaimLeavesNothingThatKeepsAGroup(t *testing.T) {
	const groups, size = 40, 64 << 10
	dir, err := os.MkdirTemp("/var/lib", "sharness-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	all := make([]*cgroup, groups)
	charged := 0
	for i := range all {
		all[i] = testGroup(t, strconv.Itoa(i), cgroupLimits{pids: 64, memory: 256 << 20})
		if out, err := runIn(all[i], "/bin/sh", "-c", fmt.Sprintf("head -c %d /dev/zero >%s/%d", size, dir, i)); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if usage(t, all[i]) >= size {
			charged++
		}
	}
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		t.Fatal(err)
	}
	left := 0
	start := time.Now()
	for _, cg := range all {
		cg.reclaim()
	}
	took := time.Since(start) / groups
	for _, cg := range all {
		if usage(t, cg) >= size {
			left++
		}
	}
	t.Logf("%d of %d groups were charged for files, %d are still; %v each", charged, groups, left, took)
	if charged < groups/2 || left > groups/4 {
		t.Errorf("%d of %d groups were charged for files and %d are still", charged, groups, left)
	}
}

func TestRetiredGroupsGoWhenTooManyWaitAndAtTheEnd(t *testing.T) {
	var r retired
	var dirs []string
	for i := range maxRetired + 6 {
		cg := testGroup(t, strconv.Itoa(i), cgroupLimits{pids: 64, memory: 64 << 20})
		cg.retired = &r
		if err := cg.delete(); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, cg.dirs[0])
	}
	there := func() (n int) {
		for _, dir := range dirs {
			if _, err := os.Stat(dir); err == nil {
				n++
			}
		}
		return n
	}
	for deadline := time.Now().Add(retireAge); there() > maxRetired && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if got := there(); got > maxRetired {
		t.Errorf("%d groups wait, want at most %d", got, maxRetired)
	}
	if err := r.finish(); err != nil {
		t.Fatal(err)
	}
	if got := there(); got > 0 {
		t.Errorf("%d groups are left after the end", got)
	}
}

func TestWriteThatDoesNotEndIsInterrupted(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	start := time.Now()
	writeWithin(int(w.Fd()), make([]byte, 1<<21), 20*time.Millisecond) // more than a pipe holds
	if took := time.Since(start); took < 20*time.Millisecond || took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}
