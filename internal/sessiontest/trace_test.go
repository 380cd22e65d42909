package sessiontest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/kerneltest"
)

// id is the session's, from its runtime folder's name; uid is the orchestrator's.
func (x *session) id() (id string, uid int) {
	x.t.Helper()
	x.wantEvent("session.start", func(e event.Event) bool {
		if e.Type != event.SessionStart {
			return false
		}
		n, ok := e.Data["uid"].(float64)
		id, uid = e.Session, int(n)
		return ok
	})
	return id, uid
}

// Where the ids of a manifest's processes lie (design: ids); the tests say it again so that a change is noticed.
const (
	firstAgent  = 1900000000
	firstSlot   = 1900100000
	firstHelper = 1900200000
	slots       = 256
	helperIDs   = 3
)

// ours says whether a uid belongs to the manifest whose orchestrator has that uid.
func ours(uid, agent int) bool {
	n := agent - firstAgent
	return uid == agent || uid >= firstSlot+n*slots && uid < firstSlot+(n+1)*slots || uid >= firstHelper+n*helperIDs && uid < firstHelper+(n+1)*helperIDs
}

// processes are those of one manifest, and those that a process of ours started with the user's ids. A zombie counts
// unless it waits for the machine's init, which may take its time.
func processes(agent int) []string {
	statuses, _ := filepath.Glob("/proc/[0-9]*/status")
	var found []string
	for _, path := range statuses {
		status, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		var comm, state string
		var uid, parent int
		for line := range strings.Lines(string(status)) {
			fmt.Sscanf(line, "Name: %s", &comm)
			fmt.Sscanf(line, "State: %s", &state)
			fmt.Sscanf(line, "PPid: %d", &parent)
			fmt.Sscanf(line, "Uid: %d", &uid)
		}
		if state == "Z" && parent == 1 {
			continue
		}
		if ours(uid, agent) || uid == userID && comm == "sharness-watch" {
			found = append(found, fmt.Sprintf("%s uid %d %s", filepath.Dir(path), uid, comm))
		}
	}
	return found
}

// groups are the folders of a session in every cgroup hierarchy.
func groups(t testing.TB, id string) []string {
	t.Helper()
	var found []string
	for _, h := range []string{"", "pids", "memory", "cpu", "blkio", "unified"} {
		root := filepath.Join("/sys/fs/cgroup", h, "sharness", id)
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if os.IsNotExist(err) {
				return nil
			}
			if err == nil && d.IsDir() {
				found = append(found, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// commandGroups are the groups of a session's commands, and those of them that have a process other than those that wait
// for a command. An empty one stays for a few seconds, so that its memory is given back first.
func commandGroups(t testing.TB, id string) (all, busy []string) {
	t.Helper()
	for _, g := range groups(t, id) {
		if !strings.Contains(g, "/command-") {
			continue
		}
		all = append(all, g)
		members, _ := os.ReadFile(filepath.Join(g, "cgroup.procs")) // it may be gone
		if slices.ContainsFunc(strings.Fields(string(members)), func(pid string) bool {
			comm, err := os.ReadFile("/proc/" + pid + "/comm")
			return err == nil && string(comm) != "sharness-box\n"
		}) {
			busy = append(busy, g)
		}
	}
	return all, busy
}

// mounts are those of the host's namespace that name the site.
func (s *site) mounts() []string {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		s.t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, s.base) || strings.Contains(line, "/run/sharness") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// answers says whether something listens on a socket.
func answers(path string) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: path}) == nil
}

// living is what of a dead session still acts: processes, mounts, a socket that answers.
func (s *site) living(id string, agent int) []string {
	left := slices.Concat(processes(agent), s.mounts())
	if socket := filepath.Join("/run/sharness", id, "bash.sock"); answers(socket) {
		left = append(left, "socket "+socket)
	}
	return left
}

// wantGone waits for the end of everything that acts, and says how long that took.
func (s *site) wantGone(id string, agent int, within time.Duration) time.Duration {
	s.t.Helper()
	within = kerneltest.Within(s.t, within)
	begin := time.Now()
	for {
		left := s.living(id, agent)
		took := time.Since(begin)
		if len(left) == 0 {
			return took
		}
		if took > within {
			s.t.Errorf("alive after %s:\n\t%s", within, strings.Join(left, "\n\t"))
			return took
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// wantNoTrace checks that a session has left nothing, neither acting nor lying around.
func (s *site) wantNoTrace(id string, agent int) {
	s.t.Helper()
	left := slices.Concat(s.living(id, agent), groups(s.t, id))
	for _, path := range []string{filepath.Join("/run/sharness", id), filepath.Join("/var/lib/sharness/quarantine", id)} {
		if _, err := os.Lstat(path); err == nil {
			left = append(left, path)
		}
	}
	if len(left) > 0 {
		s.t.Errorf("left behind by %s:\n\t%s", id, strings.Join(left, "\n\t"))
	}
}
