package sessiontest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sharness/sharness/internal/lean"
)

// Our own processes let their timers wait (internal/lean); what a session runs finds the host's.
func TestTimerSlackIsTheHostsForProgramsAndOursForUs(t *testing.T) {
	host, err := os.ReadFile("/proc/self/timerslack_ns")
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, nil)
	x := s.serve()
	const read = "read x </proc/self/timerslack_ns; echo $x; sh -c 'read x </proc/self/timerslack_ns; echo $x'"
	if r := x.run("", read); r.Stdout != strings.Repeat(string(host), 2) {
		t.Errorf("a command: %q, %q; want the host's %q twice", r.Stdout, r.Stderr, host)
	}
	for _, pid := range []int{x.cmd.Process.Pid, x.find("sharness-bashd", anyUID(0))} {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*", pid))
		if err != nil {
			t.Fatal(err)
		}
		slack := map[string]int{}
		for _, thread := range threads {
			if data, err := os.ReadFile(filepath.Join("/proc", filepath.Base(thread), "timerslack_ns")); err == nil {
				slack[strings.TrimSpace(string(data))]++
			}
		}
		// The supervisor has one thread that starts programs.
		if ours := slack[fmt.Sprint(lean.Slack)]; ours < 2 || len(threads)-ours > 1 {
			t.Errorf("process %d: threads by slack %v, want all but at most one with %d", pid, slack, lean.Slack)
		}
	}
	x.stop()
	if _, out := s.enforce("read x </proc/self/timerslack_ns; echo $x"); out != string(host) {
		t.Errorf("the orchestrator: %q, want the host's %q", out, host)
	}
}
