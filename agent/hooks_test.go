package agent

import (
	"encoding/json"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
)

func init() { children["verdicts"] = verdictsChild }

// verdictsChild is refused the same twice: by Landlock's scope, and by the ids of the process alone; and an open by the mode
// of a file, where Landlock is not asked any more.
func verdictsChild(input json.RawMessage) (any, error) {
	outside, err := decodeInput[int](input)
	if err != nil {
		return nil, err
	}
	if err := enter(); err != nil {
		return nil, err
	}
	return []syscall.Errno{
		raw(unix.SYS_CONNECT, socket(unix.SOCK_STREAM), uintptr(inet(9, 127, 0, 0, 1)), 16),
		raw(unix.SYS_KILL, uintptr(outside), 0),
		execve("/usr/bin/env"),
	}, nil
}

// A hook says that a security module refused, and only then: not for a signal that the ids forbid, which the kernel looks at
// before it asks a module. Where no hook can be attached the tracer knows why, and infers.
func TestCauseIsTheKernelsWhereHooksAreAttached(t *testing.T) {
	kerneltest.RequireLandlock(t, 6)
	g := newGroup(t, "")
	var got []syscall.Errno
	r := traced(t, g, Options{Hooks: true}, policy, func() {
		kerneltest.Child{Name: "verdicts", Input: 1, Reply: &got, Setup: g.into(t)}.Run(t)
	})
	if len(got) != 3 || got[0] != unix.EACCES || got[1] != unix.EPERM || got[2] != unix.EACCES {
		t.Fatalf("got %v, want each refused", got)
	}
	tracer, err := Load(Options{Cgroups: []string{g.dir}, Hooks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer tracer.Close()
	n, reason := tracer.Hooks()
	if n == 0 && reason == nil {
		t.Error("no hook, and no reason")
	}
	t.Logf("%d hooks, %v", n, reason)
	want := map[string]string{"connect": "inferred", "kill": "inferred", "execve": "inferred"}
	if n > 0 {
		want["connect"], want["execve"] = "kernel", "kernel"
	}
	events := r.denials()
	if len(events) != len(want) {
		t.Fatalf("got %d events, want %d", len(events), len(want))
	}
	for _, e := range events {
		if e.CauseSource != want[e.Syscall] || e.Cause != causeLandlock {
			t.Errorf("%s: got %s, %s, want landlock, %s", e.Syscall, e.Cause, e.CauseSource, want[e.Syscall])
		}
	}
}
