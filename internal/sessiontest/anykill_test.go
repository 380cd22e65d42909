package sessiontest

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sharness/sharness/event"
)

// kills is how many processes are killed in all; SHARNESS_KILLS=200 by hand.
func kills(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv("SHARNESS_KILLS"))
	if os.Getenv("SHARNESS_KILLS") == "" {
		n, err = 20, nil
	}
	if err != nil || n < 1 {
		t.Fatalf("SHARNESS_KILLS: %v", err)
	}
	return n
}

// victim is a process of a session that may be killed: not the supervisor, nor what the orchestrator is made of.
type victim struct {
	pid  int
	name string
	uid  int
}

// anyVictim finds one. A helper that dies five times in a minute is given up, and the session with it (docs/manual.md), so that
// each may die three times of a session.
func (x *session) anyVictim(agent int, died map[string]int) (victim, bool) {
	statuses, _ := filepath.Glob("/proc/[0-9]*/status")
	rand.Shuffle(len(statuses), func(i, j int) { statuses[i], statuses[j] = statuses[j], statuses[i] })
	// One kind of process is as likely as another, however many there are of it.
	byName := map[string]victim{}
	for _, path := range statuses {
		pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
		name, uid, parent, _ := status(pid)
		if uid == agent && name != "sharness-bash" || pid == x.cmd.Process.Pid || !x.under(parent) {
			continue
		}
		if helper(name) && died[name] >= 3 {
			continue
		}
		byName[name] = victim{pid, name, uid}
	}
	for _, v := range byName { // the order of a map is as good as any
		return v, true
	}
	return victim{}, false
}

func helper(name string) bool {
	switch name {
	case "sharness-bashd", "sharness-relay", "sharness-watch", "sharness-agent":
		return true
	}
	return false
}

func TestAnyProcessMayBeKilledAtAnyMoment(t *testing.T) {
	killed := map[string]int{}
	for left := kills(t); left > 0; {
		s, x, id, uid := underLoad(t)
		died := map[string]int{}
		for range min(left, 20) {
			time.Sleep(rand.N(80 * time.Millisecond))
			v, ok := x.anyVictim(uid, died)
			// Helpers may have died as often as they may by now, and no command may run in this moment.
			for deadline := time.Now().Add(5 * time.Second); !ok && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
				v, ok = x.anyVictim(uid, died)
			}
			if !ok {
				t.Fatal("the session has no process")
			}
			done := x.lines("done")
			kill(t, v.pid)
			died[v.name]++
			killed[v.name]++
			left--
			x.wantMore("done", done)
		}
		if n := died["sharness-bashd"]; n > 0 && died["sharness-agent"] == 0 {
			seen := 0
			for deadline := time.Now().Add(5 * time.Second); seen < n && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
				seen = 0
				for _, e := range x.events() {
					if e.Type == event.LayerApplied && again("sharness-bashd")(e) {
						seen += int(max(e.Count, 1))
					}
				}
			}
			if seen < n {
				t.Errorf("sharness-bashd was killed %d times, and %d events tell%s", n, seen, lastOf(x.events()))
			}
		}
		x.stop()
		if code := x.cmd.ProcessState.ExitCode(); code != 143 {
			t.Errorf("exit %d, want 143: the orchestrator's end by SIGTERM\n%s", code, x.stderr)
		}
		discardKept(id)
		s.wantNoTrace(id, uid)
	}
	t.Logf("killed %v", killed)
}
