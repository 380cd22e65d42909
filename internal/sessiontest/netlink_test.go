package sessiontest

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/launcher/pin"
	"github.com/sharness/sharness/manifest"
)

// netlinkBomb fills the receive buffers of netlink sockets: an error is answered with the request. The kernel charges them to no
// group, so that the test itself has to stop: at 30 sockets of at most 8 MiB.
const netlinkBomb = `python3 -c '
import socket, struct, time
msg = struct.pack("<IHHII", 16 + 8100, 0x7f0, 5, 1, 0) + bytes(8100)
keep = []
for i in range(30):
    s = socket.socket(16, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0); s.setsockopt(1, 8, 1 << 30); keep.append(s)
    try:
        for n in range(3000): s.send(msg)
    except OSError: pass
    time.sleep(0.02)
time.sleep(20)'`

// manySockets are more than the supervisor reads about.
const manySockets = `python3 -c '
import resource, socket, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]; resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
keep = []
for i in range(15000):
    s = socket.socket(16, socket.SOCK_RAW, 0); s.bind((0, 0)); keep.append(s) # one without an address holds nothing, and is not listed
time.sleep(20)'`

func TestMemoryOfNetlinkSocketsCountsForACommand(t *testing.T) {
	s := newSite(t, func(m *manifest.Manifest) { m.Sandbox.Memory = 64 * manifest.MiB })
	x := s.serve()
	for name, script := range map[string]string{"memory": netlinkBomb, "many sockets": manySockets} {
		t.Run(name, func(t *testing.T) {
			x := x.on(t)
			var bystander reply
			var all sync.WaitGroup
			all.Go(func() {
				bystander = x.run("", `python3 -c '
import socket, time
s = socket.socket(16, socket.SOCK_RAW, 0); time.sleep(2)'; echo done`)
			})
			begin := time.Now()
			r := x.run("", script+"; echo not reached")
			t.Logf("ended after %s: %+v", time.Since(begin).Round(time.Millisecond), r)
			if !slices.Equal(r.LimitsHit, []string{"memory"}) || r.Signal != 9 || r.Stdout != "" {
				t.Errorf("got %+v, want it killed for its memory", r)
			}
			x.wantEvent("limit.hit", func(e event.Event) bool { return e.Type == event.LimitHit && e.Data["limit"] == "memory" })
			all.Wait()
			if bystander.Stdout != "done\n" || len(bystander.LimitsHit) > 0 {
				t.Errorf("a command beside it: %+v", bystander)
			}
		})
	}
}

func TestMemoryOfNetlinkSocketsCountsForTheSession(t *testing.T) {
	s := newSite(t, func(m *manifest.Manifest) { m.Session.Memory = 96 * manifest.MiB })
	x := s.serve()
	if r := x.run("", netlinkBomb); !slices.Equal(r.LimitsHit, []string{"session_memory"}) || r.Signal != 9 {
		t.Errorf("got %+v, want it killed for the memory of the session", r)
	}
}

// Where commands share a network nobody knows whose sockets they are.
func TestMemoryOfNetlinkSocketsEndsAllCommandsOfASharedNetwork(t *testing.T) {
	s := newSite(t, func(m *manifest.Manifest) {
		m.Sandbox.Memory, m.Sandbox.Network = 64*manifest.MiB, manifest.NetworkSession
	})
	x := s.serve()
	var all sync.WaitGroup
	for _, script := range []string{netlinkBomb, "sleep 20; echo not reached"} {
		all.Go(func() {
			if r := x.run("", script); !slices.Equal(r.LimitsHit, []string{"memory"}) || r.Signal != 9 {
				t.Errorf("%.20q: got %+v, want it killed for its memory", script, r)
			}
		})
	}
	all.Wait()
	if r := x.run("", "echo next"); r.Stdout != "next\n" {
		t.Errorf("the next command: %+v", r)
	}
}

func TestMemoryOfNetlinkSocketsCountsForTheOrchestrator(t *testing.T) {
	s := newSite(t, func(m *manifest.Manifest) {
		python, err := pin.Resolve("/usr/bin/python3", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range python.Exec {
			if !slices.ContainsFunc(m.Exec, func(have manifest.Exec) bool { return have.Path == e.Path }) {
				m.Exec = append(m.Exec, e)
			}
		}
		for _, l := range python.Libraries {
			if !slices.ContainsFunc(m.Libraries, func(have manifest.File) bool { return have.Path == l.Path }) {
				m.Libraries = append(m.Libraries, l)
			}
		}
		m.Limits.Memory = 64 * manifest.MiB
	})
	begin := time.Now()
	x, _ := s.enforce(netlinkBomb + "; echo not reached")
	t.Logf("ended after %s, said %.300q", time.Since(begin).Round(time.Millisecond), x.stderr)
	if !strings.Contains(x.stderr.String(), "the orchestrator met its memory limit") || x.cmd.ProcessState.ExitCode() != 137 {
		t.Errorf("got %v, %q; want it ended for its memory", x.cmd.ProcessState, x.stderr)
	}
	x.wantEvent("limit.hit", func(e event.Event) bool {
		return e.Type == event.LimitHit && strings.Contains(e.Detail, "orchestrator: memory")
	})
}
