package agent

import (
	"context"
	"encoding/json"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
)

// floodChild is refused the same exec over and over, and another one in the middle.
func floodChild(input json.RawMessage) (any, error) {
	n, err := decodeInput[int](input)
	if err != nil {
		return nil, err
	}
	if err := enter(); err != nil {
		return nil, err
	}
	same, other := cstring("/bin/bash"), cstring("/usr/bin/env")
	for i := range n {
		raw(unix.SYS_EXECVE, uintptr(unsafe.Pointer(same)), uintptr(unsafe.Pointer(&argv[0])), 0)
		if i == n/2 {
			raw(unix.SYS_EXECVE, uintptr(unsafe.Pointer(other)), uintptr(unsafe.Pointer(&argv[0])), 0)
			raw(unix.SYS_UNSHARE, unix.CLONE_NEWNS)
		}
	}
	return nil, nil
}

const flood = 50_000

func TestFloodAddsUpAndHidesNothing(t *testing.T) {
	g := newGroup(t, "")
	r := traced(t, g, Options{}, policy, func() {
		kerneltest.Child{Name: "flood", Input: flood, Setup: g.into(t)}.Run(t)
	})
	d := r.last.Denied()
	if d.Produced != flood+2 {
		t.Errorf("produced %d, want %d", d.Produced, flood+2)
	}
	if d.Lost != 0 {
		t.Errorf("%d were lost, want repetitions to be shed before that", d.Lost)
	}
	var sum uint64
	var other, ns []seen
	for _, e := range r.denials() {
		switch {
		case e.Type == "ns.denied":
			ns = append(ns, e)
		case e.Target.Asked == "/usr/bin/env":
			other = append(other, e)
		default:
			sum += max(e.Count, 1)
		}
	}
	if unsaid := d.Shed - r.repeats; sum+unsaid != flood {
		t.Errorf("events stand for %d and %d are said to be lost, want %d", sum, unsaid, flood)
	}
	if len(other) != 1 || len(ns) != 1 {
		t.Fatalf("%d and %d events of the calls in the middle, want one each", len(other), len(ns))
	}
	for _, e := range append(other, ns...) {
		if late := e.at.Sub(e.Time); late > limit {
			t.Errorf("%s in the middle came after %v, want at most %v", e.Syscall, late, limit)
		}
	}
	t.Logf("%+v; in the middle: %v, %v", d, other[0].at.Sub(other[0].Time), ns[0].at.Sub(ns[0].Time))
}

// distinctChild is refused as many different execs.
func distinctChild(input json.RawMessage) (any, error) {
	n, err := decodeInput[int](input)
	if err != nil {
		return nil, err
	}
	if err := enter(); err != nil {
		return nil, err
	}
	for i := range n {
		path := "/usr/bin" // the number stands in how the same file is spelled
		for bit := range 16 {
			path += []string{"/./", "////"}[i>>bit&1]
		}
		raw(unix.SYS_EXECVE, uintptr(unsafe.Pointer(cstring(path+"bash"))), uintptr(unsafe.Pointer(&argv[0])), 0)
	}
	raw(unix.SYS_UNSHARE, unix.CLONE_NEWNS)
	return nil, nil
}

func TestLossesOfASlowReaderAreCountedExactly(t *testing.T) {
	g := newGroup(t, "")
	tracer, err := Load(Options{Cgroups: []string{g.dir}})
	if err != nil {
		t.Fatal(err)
	}
	defer tracer.Close()
	// Nobody reads while it runs.
	kerneltest.Child{Name: "distinct", Input: 3000, Setup: g.into(t)}.Run(t)
	r := newRecorder(policy)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := tracer.Run(ctx, r); err != nil {
		t.Fatal(err)
	}
	r.Finish(time.Now())
	r.balance(t)
	d := r.last.Denied()
	if d.Lost == 0 {
		t.Errorf("nothing was lost of %+v, and this test is about losses", d)
	}
	var said uint64
	for _, e := range r.events {
		if e.Type == "events.lost" && e.Cause == "ring exec" {
			said += e.Count
		}
	}
	if said != d.Lost {
		t.Errorf("%d lost, %d reported", d.Lost, said)
	}
	// Another class has a ring of its own.
	if c := r.last.Denials["process"]; c.Lost != 0 || c.Produced != 1 {
		t.Errorf("process: %+v, want its one denial kept", c)
	}
}

// meaning is a pair of calls that one number makes into different attempts.
type meaning struct {
	name         string
	flood, other [6]uintptr
	nr           uintptr
	is           func(seen) bool // the event of other
}

func meanings() []meaning {
	cwd := uintptr(1<<64 + unix.AT_FDCWD)
	return []meaning{
		{"a socket's protocol", [6]uintptr{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, [6]uintptr{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, unix.SYS_SOCKET,
			func(e seen) bool { return e.Syscall == "socket" && e.Door == "net-mptcp" }},
		{"an option", [6]uintptr{0, unix.IPPROTO_TCP, unix.TCP_ULP}, [6]uintptr{0, unix.IPPROTO_TCP, unix.TCP_FASTOPEN}, unix.SYS_SETSOCKOPT,
			func(e seen) bool { return e.Syscall == "setsockopt" && e.Door == "net-tfo" }},
		{"an old name", [6]uintptr{cwd, ptr("/etc/motd"), cwd, ptr("/etc/other"), 0}, [6]uintptr{cwd, ptr("/etc/hostname"), cwd, ptr("/etc/other"), 0}, unix.SYS_RENAMEAT2,
			func(e seen) bool { return e.Syscall == "renameat2" && e.Target.Old == "/etc/hostname" }},
	}
}

// meaningsChild makes one call of each pair over and over, and the other once in the middle.
func meaningsChild(json.RawMessage) (any, error) {
	if err := enter(); err != nil {
		return nil, err
	}
	if err := refuse(map[uintptr]syscall.Errno{unix.SYS_SOCKET: unix.EPERM, unix.SYS_SETSOCKOPT: unix.EPERM}); err != nil {
		return nil, err
	}
	for _, m := range meanings() {
		for i := range flood {
			_ = raw(m.nr, m.flood[:]...)
			if i == flood/2 {
				_ = raw(m.nr, m.other[:]...)
			}
		}
	}
	return nil, nil
}

func TestFloodHidesNoCallThatMeansSomethingElse(t *testing.T) {
	g := newGroup(t, "")
	r := traced(t, g, Options{Files: true}, policy, func() {
		kerneltest.Child{Name: "meanings", Setup: g.into(t)}.Run(t)
	})
	if d := r.last.Denied(); d.Shed == 0 {
		t.Errorf("nothing was shed of %+v, and this test is about what is not", d)
	}
	for _, m := range meanings() {
		if !slices.ContainsFunc(r.denials(), m.is) {
			t.Errorf("%s: the other call has no event", m.name)
		}
	}
}
