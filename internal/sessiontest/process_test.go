package sessiontest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
	"github.com/sharness/sharness/manifest"
)

// rounds is how often each process is killed, each time in a session of its own and at another moment.
const rounds = 5

// busy is an orchestrator that always has commands on their way and calls its endpoint; it counts what came back.
const busy = `n=0; c=0; while :; do
for i in 1 2 3; do /run/sharness/bin/sharness-bash -c 'for i in 1 2 3 4 5 6 7 8; do echo $i > f$i; done; sleep 0.0'$i && echo done >> done & done; wait
if exec 3<>/dev/tcp/127.0.0.1/$PORT && read -r -t 2 x <&3; then echo "$x" >> called; fi 2>/dev/null; exec 3>&-
done`

// underLoad starts a busy session and waits until its load is on.
func underLoad(t *testing.T) (s *site, x *session, id string, uid int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, "hello")
			c.Close()
		}
	}()
	port := listener.Addr().(*net.TCPAddr).Port
	s = newSite(t, func(m *manifest.Manifest) {
		m.Connect = []manifest.Endpoint{{Name: "127.0.0.1", Port: uint16(port)}}
	})
	s.user("git init -q .", "")
	x = s.sharness("enforce", "--", "bash", "-c", "PORT="+strconv.Itoa(port)+"; "+busy)
	x.start()
	id, uid = x.id()
	x.wantMore("done", 0)
	x.wantMore("called", 0)
	return s, x, id, uid
}

// lines counts those of a file of the workspace.
func (s *site) lines(rel string) int {
	data, _ := os.ReadFile(filepath.Join(s.workspace, rel))
	return strings.Count(string(data), "\n")
}

// wantMore waits until a file of the workspace has more lines than it had.
func (x *session) wantMore(rel string, than int) time.Duration {
	x.t.Helper()
	begin := time.Now()
	for x.lines(rel) <= than {
		select {
		case err := <-x.ended:
			x.t.Fatalf("the session ended: %v\n%s%s", err, x.stderr, lastOf(x.events()))
		case <-time.After(10 * time.Millisecond):
		}
		if within := kerneltest.Within(x.t, 10*time.Second); time.Since(begin) > within {
			x.t.Fatalf("nothing new in %s after %s\n%s%s", rel, within, x.stderr, lastOf(x.events()))
		}
	}
	return time.Since(begin)
}

// find returns the pid of a child of the supervisor, or below it, by its name and a test of its uid.
func (x *session) find(comm string, fits func(uid int) bool) int {
	x.t.Helper()
	for deadline := time.Now().Add(kerneltest.Within(x.t, 5*time.Second)); time.Now().Before(deadline); {
		statuses, _ := filepath.Glob("/proc/[0-9]*/status")
		rand.Shuffle(len(statuses), func(i, j int) { statuses[i], statuses[j] = statuses[j], statuses[i] })
		for _, path := range statuses {
			pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
			name, uid, parent, nested := status(pid)
			// One that root has in a namespace of its own is a sandbox that is being made, and has no part yet.
			if name == comm && fits(uid) && x.under(parent) && !(nested && uid == 0) {
				return pid
			}
		}
	}
	x.t.Fatalf("no process %s of this session", comm)
	return 0
}

// status says too whether the process is in a pid namespace below this one.
func status(pid int) (comm string, uid, parent int, nested bool) {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(data)) {
		fmt.Sscanf(line, "Name: %s", &comm)
		fmt.Sscanf(line, "Uid: %d", &uid)
		fmt.Sscanf(line, "PPid: %d", &parent)
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			nested = len(strings.Fields(ids)) > 1
		}
	}
	return comm, uid, parent, nested
}

// under says whether a process is the supervisor or has it among its ancestors.
func (x *session) under(pid int) bool {
	for range 8 {
		if pid == x.cmd.Process.Pid {
			return true
		}
		if pid <= 1 {
			return false
		}
		_, _, pid, _ = status(pid)
	}
	return false
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
		t.Fatalf("kill %d: %v", pid, err)
	}
}

func anyMoment() { time.Sleep(rand.N(300 * time.Millisecond)) }

// killEach kills a helper each time it is started, until it is not, and returns how often that was.
func (x *session) killEach(comm string) (deaths int) {
	x.t.Helper()
	last := 0
	for quiet := time.Now(); time.Since(quiet) < time.Second; time.Sleep(10 * time.Millisecond) {
		statuses, _ := filepath.Glob("/proc/[0-9]*/status")
		for _, path := range statuses {
			pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
			if name, _, parent, _ := status(pid); name == comm && parent == x.cmd.Process.Pid && pid != last {
				kill(x.t, pid)
				last, quiet = pid, time.Now()
				deaths++
			}
		}
		if deaths > 20 {
			x.t.Fatalf("%s is started again and again", comm)
		}
	}
	return deaths
}
