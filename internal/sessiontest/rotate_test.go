package sessiontest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sharness/sharness/event"
)

// helperPid is the process of a helper of this session.
func (x *session) helperPid(name string) int {
	x.t.Helper()
	children, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", x.cmd.Process.Pid))
	if err != nil {
		x.t.Fatal(err)
	}
	for _, path := range children {
		pids, err := os.ReadFile(path)
		if err != nil {
			continue // a thread that ended
		}
		for _, pid := range strings.Fields(string(pids)) {
			comm, err := os.ReadFile("/proc/" + pid + "/comm")
			if err == nil && strings.TrimSpace(string(comm)) == name {
				var n int
				fmt.Sscan(pid, &n)
				return n
			}
		}
	}
	x.t.Fatalf("no %s", name)
	return 0
}

// logLines are the events of one file, as they stand there.
func logLines(t *testing.T, path string) (all []*event.Event) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		e, err := event.Parse(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			t.Errorf("%s: %v in %.200q", path, err, line)
			continue
		}
		all = append(all, e)
	}
	return all
}

// As logrotate does it: rename, then SIGHUP. What comes after that stands in a new file of the user's, and between the two
// no line is missing. A log that cannot be opened again goes on where it is, and says so.
func TestLogIsOpenedAgainOnHangUp(t *testing.T) {
	s := newSite(t, nil)
	x := s.sharness("enforce", "--", "bash", "-c", `until [[ -e go ]]; do sharness-bash -c 'sleep 0.02'; done`)
	x.start()
	x.wantEvent("a command", func(e event.Event) bool { return e.Type == event.CommandEnd })
	agent := x.helperPid("sharness-agent")
	first := x.log + ".1"
	rotate := func() {
		if err := syscall.Kill(agent, syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(x.log, first); err != nil {
		t.Fatal(err)
	}
	rotate()
	x.wantEvent("a command in the new file", func(e event.Event) bool { return e.Type == event.CommandEnd })
	st, err := os.Stat(x.log)
	if err != nil {
		t.Fatal(err)
	}
	if got := st.Sys().(*syscall.Stat_t); got.Uid != userID || st.Mode().Perm()&^0o640 != 0 {
		t.Errorf("the new file: uid %d, mode %s, want the user's and at most 0640", got.Uid, st.Mode())
	}

	closed := filepath.Join(s.base, "out")
	if err := os.Chown(closed, 0, 0); err != nil {
		t.Fatal(err)
	}
	second := x.log + ".2"
	if err := os.Rename(x.log, second); err != nil {
		t.Fatal(err)
	}
	x.log = second
	rotate()
	x.wantEvent("that it goes on", func(e event.Event) bool {
		return e.Type == event.LayerOpen && strings.Contains(e.Detail, "goes on as it was") && strings.Contains(e.Detail, "permission denied")
	})
	s.write("go", "")
	x.wait(20 * time.Second)

	all := append(logLines(t, first), logLines(t, second)...)
	for i, e := range all {
		if e.Seq != uint64(i+1) {
			t.Fatalf("line %d of both files has the number %d", i+1, e.Seq)
		}
	}
	if last := all[len(all)-1]; last.Type != event.SessionEnd || last.Data["sink_lost"] != nil {
		t.Errorf("got %+v at the end, want nothing lost", last)
	}
}
