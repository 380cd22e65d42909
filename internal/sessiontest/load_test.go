package sessiontest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// use is what a process holds.
type use struct {
	fds     map[string]int // by what they are
	total   int
	threads int
	kids    []string
	rss     int // KiB
}

func used(t testing.TB, pid int) use {
	t.Helper()
	u := use{fds: map[string]int{}}
	dir := fmt.Sprintf("/proc/%d", pid)
	fds, err := os.ReadDir(dir + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, err := os.Readlink(filepath.Join(dir, "fd", fd.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		kind, _, _ := strings.Cut(to, ":[")
		switch {
		case strings.HasPrefix(to, "/sys/fs/cgroup/") && strings.Contains(to, "/commands/"):
			kind = groupFiles
		case strings.Contains(to, "/net/"):
			kind = netFiles
		}
		u.fds[kind]++
		u.total++
	}
	tasks, err := os.ReadDir(dir + "/task")
	if err != nil {
		t.Fatal(err)
	}
	u.threads = len(tasks)
	for _, task := range tasks {
		kids, _ := os.ReadFile(filepath.Join(dir, "task", task.Name(), "children"))
		u.kids = append(u.kids, strings.Fields(string(kids))...)
	}
	status, _ := os.ReadFile(dir + "/status")
	for line := range strings.Lines(string(status)) {
		fmt.Sscanf(line, "VmRSS: %d", &u.rss)
	}
	return u
}

// Kinds of descriptors: files of groups and of network namespaces that wait for the next command.
const (
	groupFiles = "group"
	netFiles   = "net files"
)

// waiting is how many of either may be there until nothing has run for a while: as many as commands ran at once, and of the
// sandboxes that wait.
const waiting = 64 + 3

// perGroup is how many files of a group are open.
const perGroup = 12

// steady is used once the supervisor makes nothing more for the next commands: sandboxes that wait.
func (x *session) steady() use {
	x.t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; {
		before := used(x.t, x.cmd.Process.Pid)
		time.Sleep(200 * time.Millisecond)
		now := used(x.t, x.cmd.Process.Pid)
		if len(now.more(before)) == 0 && len(before.more(now)) == 0 {
			return now
		}
		if time.Now().After(deadline) {
			x.t.Fatalf("the supervisor does not come to rest: %v, then %v", before, now)
		}
	}
}

// wantNoMore compares the supervisor with what it held before. What is made once per uid slot and kept (a user namespace)
// may grow to the number of slots, and groups and network namespaces that nothing happened in wait for the next command;
// nothing else may. The teardown of a killed command takes a moment.
func (x *session) wantNoMore(before use) (after use) {
	x.t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		after = used(x.t, x.cmd.Process.Pid)
		more := after.more(before)
		if len(more) == 0 {
			return after
		}
		if time.Now().After(deadline) {
			x.t.Errorf("held: %s", strings.Join(more, "; "))
			return after
		}
	}
}

func (u use) more(before use) []string {
	var more []string
	for _, kind := range slices.Sorted(maps.Keys(u.fds)) {
		if n := u.fds[kind] - before.fds[kind]; n > 0 && !slices.Contains([]string{"user", "net", netFiles, groupFiles}, kind) {
			more = append(more, fmt.Sprintf("%d descriptors of %q above the %d before", n, kind, before.fds[kind]))
		}
	}
	if u.fds["user"] > slots+1 {
		more = append(more, fmt.Sprintf("%d user namespaces, want at most one per slot", u.fds["user"]))
	}
	for kind, most := range map[string]int{"net": waiting, netFiles: 2 * waiting, groupFiles: perGroup * waiting} {
		if n := u.fds[kind]; n > most {
			more = append(more, fmt.Sprintf("%d descriptors of %q, want at most %d", n, kind, most))
		}
	}
	if len(u.kids) > len(before.kids) {
		more = append(more, fmt.Sprintf("%d children, %d before", len(u.kids), len(before.kids)))
	}
	return more
}

func TestServerHoldsNothingOfTwoHundredCommands(t *testing.T) {
	s := newSite(t, nil)
	x := s.serve()
	id, uid := x.id()
	x.run("", "true")
	before := x.steady()
	begin := time.Now()
	for i := range 200 {
		if r := x.run("", fmt.Sprintf("echo %d; sleep 0.01 & exit %d", i, i%256)); r.ExitCode != i%256 || r.Stdout != fmt.Sprintf("%d\n", i) {
			t.Fatalf("command %d: %+v", i, r)
		}
	}
	took := time.Since(begin)
	after := x.wantNoMore(before)
	t.Logf("200 commands in %s, %s each; descriptors %d to %d %v; threads %d to %d; RSS %d to %d KiB", took.Round(time.Millisecond),
		(took / 200).Round(time.Microsecond), before.total, after.total, after.fds, before.threads, after.threads, before.rss, after.rss)
	if after.threads > before.threads+8 {
		t.Errorf("threads: %d before, %d after", before.threads, after.threads)
	}
	if left := commands(uid); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	// Groups that have yet to give back their memory: 64 may wait, and those on their way out beside them.
	const retired, hierarchies = 128, 3
	if all, busy := commandGroups(t, id); len(busy) > 0 || len(all) > retired*hierarchies {
		t.Errorf("left: %d groups, of which %v have processes", len(all), busy)
	}
	if left := s.mounts(); len(left) > 0 {
		t.Errorf("mounts: %v", left)
	}
	x.stop()
	s.wantNoTrace(id, uid)
}

func TestFiftyCommandsOfAnOrchestratorRunAtOnce(t *testing.T) {
	s := newSite(t, nil)
	begin := time.Now()
	x, out := s.enforce(`for i in {1..50}; do /run/sharness/bin/sharness-bash -c "echo in $i > f$i; sleep 1; cat f$i; exit $i" > o$i 2>e$i & p[i]=$!; done
for i in {1..50}; do wait ${p[i]}; echo $i $?; done`)
	took := time.Since(begin)
	for i := 1; i <= 50; i++ {
		if !strings.Contains("\n"+out, fmt.Sprintf("\n%d %d\n", i, i)) {
			e, _ := os.ReadFile(filepath.Join(s.workspace, fmt.Sprintf("e%d", i)))
			t.Errorf("command %d did not end with its status: %q", i, e)
		}
		got, err := os.ReadFile(filepath.Join(s.workspace, fmt.Sprintf("o%d", i)))
		if want := fmt.Sprintf("in %d\n", i); err != nil || string(got) != want {
			t.Errorf("command %d said %q, %v; want %q", i, got, err, want)
		}
	}
	t.Logf("50 commands of 1 s at once in %s", took.Round(time.Millisecond))
	id, uid := x.id()
	s.wantNoTrace(id, uid)
	wantUsers(t, s.workspace)
}

// TestServerHoldsNothingOfRefusedAndKilledCommands goes the ways that end early: a folder that does not exist, a client
// that is killed at any moment of its life.
func TestServerHoldsNothingOfRefusedAndKilledCommands(t *testing.T) {
	s := newSite(t, nil)
	x := s.serve()
	id, uid := x.id()
	x.run("", "true")
	before := x.steady()
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			cmd := x.client(t.Context(), "", "-c", "sleep 100")
			if i%4 == 0 {
				cmd.Dir = "/nonexistent-in-the-view"
				cmd.Dir = s.base
			}
			if err := cmd.Start(); err != nil {
				t.Error(err)
				return
			}
			if i%4 != 0 {
				time.Sleep(time.Duration(i*7) * time.Millisecond)
				_ = unix.Kill(cmd.Process.Pid, unix.SIGKILL)
			}
			cmd.Wait()
		})
		if i%8 == 7 {
			all.Wait()
		}
	}
	all.Wait()
	for deadline := time.Now().Add(5 * time.Second); len(commands(uid)) > 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if r := x.run("", "echo well"); r.Stdout != "well\n" {
		t.Errorf("the next command: %+v", r)
	}
	after := x.wantNoMore(before)
	t.Logf("descriptors %d to %d %v; threads %d to %d", before.total, after.total, after.fds, before.threads, after.threads)
	x.stop()
	s.wantNoTrace(id, uid)
}
