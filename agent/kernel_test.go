package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
)

// policy of the tests: nothing is pinned, all layers hold.
var policy = Policy{Layers: []string{"landlock", "seccomp", "net"}, Workspace: "/work/space", Scratch: []string{"/tmp"},
	Links: map[string]string{"/bin": "/usr/bin"}}

// limit is the time in which the first event of a denial has to be out.
const limit = 100 * time.Millisecond

func newNet(cmd *exec.Cmd) { cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET }

func TestEveryRefusedCallIsReportedOnceAndAtOnce(t *testing.T) {
	kerneltest.RequireLandlock(t, 6)
	g := newGroup(t, "")
	var numbers []int
	for n := range attempts {
		numbers = append(numbers, n)
	}
	got := map[int]syscall.Errno{}
	r := traced(t, g, Options{Files: true}, policy, func() {
		kerneltest.Child{Name: "attempts", Input: numbers, Reply: &got, Setup: g.into(t, newNet)}.Run(t)
	})
	r.whole(t)
	events := r.denials()
	for _, n := range numbers {
		a := attempts[n]
		if got[n] != a.errno {
			t.Errorf("attempt %d, %s: got %v, want %v", n, a.name, got[n], a.errno)
			continue
		}
		found := 0
		for _, e := range events {
			asked := ""
			if e.Target != nil {
				asked = e.Target.Asked + " " + e.Target.Resolved
			}
			if e.Syscall == a.name && e.Door == a.door && string(e.Type) == a.kind && e.Errno == unix.ErrnoName(a.errno) && strings.Contains(asked, a.target) {
				found++
			}
		}
		if found != 1 && (a.target != "" || found == 0) {
			t.Errorf("attempt %d, %s through %s: %d events, want 1", n, a.name, a.door, found)
		}
	}
	if len(events) != len(attempts) {
		t.Errorf("%d events of denials, want %d:", len(events), len(attempts))
		for _, e := range events {
			t.Logf("%s %s %s %+v", e.Type, e.Syscall, e.Errno, e.Target)
		}
	}
	if worst := latency(events, 1); worst > limit {
		t.Errorf("the slowest of %d first events took %v, want at most %v", len(events), worst, limit)
	}
	t.Logf("%d events: half within %v, 99 in 100 within %v", len(events), latency(events, 0.5), latency(events, 0.99))
}

// threadChild makes its attempt on a thread that is not the first, and ends at once.
func threadChild(json.RawMessage) (any, error) {
	if err := enter(); err != nil {
		return nil, err
	}
	done, once := make(chan int), atomic.Bool{}
	for range 2 { // one of them may get the first thread, and keeps it
		go func() {
			runtime.LockOSThread()
			if tid := unix.Gettid(); tid != unix.Getpid() && once.CompareAndSwap(false, true) {
				execve("/bin/bash")
				done <- tid
			}
			select {}
		}()
	}
	return <-done, nil
}

func TestDenialOfAThreadNamesProcessAndThread(t *testing.T) {
	g := newGroup(t, "")
	var tid int
	r := traced(t, g, Options{}, policy, func() {
		kerneltest.Child{Name: "thread", Reply: &tid, Setup: g.into(t)}.Run(t)
	})
	r.whole(t)
	events := r.denials()
	if len(events) != 1 || tid < 0 || events[0].Process.TID != tid || events[0].Process.PID == tid {
		t.Fatalf("got %+v, want one event of thread %d", events, tid)
	}
	if events[0].Process.Exe == "" || events[0].Process.StartNS == 0 || events[0].Process.UID != nobody {
		t.Errorf("got process %+v, want its image, start and uid", events[0].Process)
	}
}

// Nothing is looked up when a record is read: by then the process may be gone, here all are.
func TestProcessThatHasEndedIsNamedAllTheSame(t *testing.T) {
	g := newGroup(t, "")
	file := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(file, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	tracer, err := Load(Options{Cgroups: []string{g.dir}})
	if err != nil {
		t.Fatal(err)
	}
	defer tracer.Close()
	const n = 20
	for i := range n {
		inGroup(t, g, fmt.Sprintf("%s/%s", strings.Repeat("/", i), file))
	}
	r := newRecorder(policy)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tracer.Run(ctx, r); err != nil {
		t.Fatal(err)
	}
	r.Finish(time.Now())
	r.balance(t)
	events := r.denials()
	if len(events) != n {
		t.Fatalf("got %d events, want %d", len(events), n)
	}
	shell := tool(t, "sh")
	for _, e := range events {
		if e.Process.Exe != shell || e.Process.StartNS == 0 || e.Process.Comm == "" || len(e.Ancestors) != 0 || e.Target.Resolved != file {
			t.Fatalf("got %+v %+v by %q, want the shell that ended", e.Process, e.Target, e.Ancestors)
		}
	}
}

func TestDenialInAChildCgroupIsSeen(t *testing.T) {
	g := newGroup(t, "")
	inner := newGroup(t, newGroup(t, g.dir).dir)
	outside := newGroup(t, "")
	r := traced(t, g, Options{}, policy, func() {
		kerneltest.Child{Name: "thread", Setup: inner.into(t)}.Run(t)
		kerneltest.Child{Name: "thread", Setup: outside.into(t)}.Run(t)
	})
	if events := r.denials(); len(events) != 1 {
		t.Errorf("got %d events, want the one from below and none from beside", len(events))
	}
}

func TestNamesThatAreNotUTF8ComeAsTheyAre(t *testing.T) {
	g := newGroup(t, "")
	dir := t.TempDir()
	name := filepath.Join(dir, "a\xff\xfe\n\x1b[31mb")
	if err := os.WriteFile(name, []byte("#!/bin/true\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := traced(t, g, Options{}, policy, func() {
		if err := exec.Command(name).Run(); !errors.Is(err, os.ErrPermission) {
			t.Errorf("outside: got %v, want it refused", err)
		}
		inGroup(t, g, name)
	})
	events := r.denials()
	if len(events) != 1 || events[0].Target.Asked != name || events[0].Door != "exec-workspace" {
		t.Fatalf("got %+v, want one event with the name as it is", events)
	}
}

// inGroup has a shell of the group, which ends with its exec, run a file.
func inGroup(t *testing.T, g group, path string, args ...string) {
	t.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"-c", `exec "$0" "$@"`, path}, args...)...)
	g.into(t)(cmd)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v\n%s", err, out)
	}
}

// unreadChild passes a path from a page that it never touched, first to an exec that the domain refuses, then to one
// that its filter does.
func unreadChild(input json.RawMessage) (any, error) {
	name, err := decodeInput[string](input)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(name, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	if err := enter(); err != nil {
		return nil, err
	}
	page := func() uintptr {
		p, err := unix.MmapPtr(fd, 0, nil, 4096, unix.PROT_READ, unix.MAP_PRIVATE)
		if err != nil {
			panic(err)
		}
		return uintptr(p)
	}
	first := raw(unix.SYS_EXECVE, page(), uintptr(unsafe.Pointer(&argv[0])), 0)
	if err := refuse(map[uintptr]syscall.Errno{unix.SYS_EXECVE: unix.EPERM}); err != nil {
		return nil, err
	}
	return []syscall.Errno{first, raw(unix.SYS_EXECVE, page(), uintptr(unsafe.Pointer(&argv[0])), 0)}, nil
}

func TestPathOfAPageThatWasNeverTouched(t *testing.T) {
	g := newGroup(t, "")
	name := filepath.Join(t.TempDir(), "page")
	if err := os.WriteFile(name, append([]byte("/bin/bash"), make([]byte, 4096)...), 0o644); err != nil {
		t.Fatal(err)
	}
	var got []syscall.Errno
	r := traced(t, g, Options{}, policy, func() {
		kerneltest.Child{Name: "unread", Input: name, Reply: &got, Setup: g.into(t)}.Run(t)
	})
	if len(got) != 2 || got[0] != unix.EACCES || got[1] != unix.EPERM {
		t.Fatalf("got %v, want EACCES, then EPERM", got)
	}
	events := r.denials()
	if len(events) != 2 {
		t.Fatalf("got %d events, want 2", len(events))
	}
	if tg := events[0].Target; tg.Asked != "/bin/bash" || tg.Resolved != "/usr/bin/bash" || tg.Source != sourceUser {
		t.Errorf("refused by the domain: got %+v, want the path, which the kernel had read", tg)
	}
	// The kernel never looked at the path, and the tracer does not make it: empty would be a lie.
	if tg := events[1].Target; tg.Source != sourceUnreadable && tg.Asked != "/bin/bash" {
		t.Errorf("refused by the filter: got %+v, want it marked", tg)
	}
	if events[1].Cause != causeUnknown || events[0].Cause != causeLandlock {
		t.Errorf("got causes %s and %s", events[0].Cause, events[1].Cause)
	}
}

// raceChild has a second thread write over the path while the first passes it.
func raceChild(json.RawMessage) (any, error) {
	if err := enter(); err != nil {
		return nil, err
	}
	path := []byte("/usr/bin/aaaa\x00")
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for c := byte('a'); !stop.Load(); c = 'a' + (c-'a'+1)%26 {
			for i := range 4 {
				path[9+i] = c
			}
		}
	}()
	copy(path[9:], "bash")
	for range 200 {
		copy(path[9:], "bash")
		raw(unix.SYS_EXECVE, uintptr(unsafe.Pointer(&path[0])), uintptr(unsafe.Pointer(&argv[0])), 0)
	}
	stop.Store(true)
	<-done
	return nil, nil
}

func TestPathThatIsRewrittenMeanwhileKeepsClassAndErrno(t *testing.T) {
	g := newGroup(t, "")
	r := traced(t, g, Options{}, policy, func() {
		kerneltest.Child{Name: "race", Setup: g.into(t)}.Run(t)
	})
	events := r.denials()
	if len(events) == 0 {
		t.Fatal("no event")
	}
	for _, e := range events {
		if string(e.Type) != "exec.denied" || e.Door != "exec-direct" || e.Errno != "EACCES" || e.Target.Source != sourceUser {
			t.Fatalf("got %+v %+v, want door and errno right and the target marked", e, e.Target)
		}
	}
}

// killedChild calls what its filter kills for.
func killedChild(json.RawMessage) (any, error) {
	if err := enter(); err != nil {
		return nil, err
	}
	prog := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_KEYCTL, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_KILL_PROCESS}, {Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}
	f := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if e := raw(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&f))); e != 0 {
		return nil, e
	}
	return nil, raw(unix.SYS_KEYCTL, 0, 0, 0)
}

func TestProcessThatItsOwnFilterKillsIsReportedAsThat(t *testing.T) {
	g := newGroup(t, "")
	r := traced(t, g, Options{}, policy, func() {
		_, err := kerneltest.Child{Name: "killed", Setup: g.into(t)}.Start(t)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGSYS {
			t.Fatalf("got %v, want it killed by SIGSYS", err)
		}
	})
	events := r.denials()
	if len(events) != 1 || events[0].Syscall != "keyctl" || events[0].Cause != causeUnknown || events[0].Door != "" {
		t.Errorf("got %+v, want the call it was killed for, and that no layer of the session did it", events)
	}
	ended := false
	for _, l := range r.lives {
		ended = ended || l.Ended && syscall.WaitStatus(l.Code).Signal() == unix.SIGSYS
	}
	if !ended {
		t.Error("its end was not seen, or not how it ended")
	}
}

// treeChild is what a child of a child was refused; the namespace has pids of its own.
func treeChild(input json.RawMessage) (any, error) {
	file, err := decodeInput[string](input)
	if err != nil {
		return nil, err
	}
	out, err := exec.Command("/bin/sh", "-c", `/bin/sh -c '"$0"; exit 0' "$0"; exit 0`, file).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.Getpid(), nil
}

func TestAncestorsAndPidsInTheNamespace(t *testing.T) {
	g := newGroup(t, "")
	file := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(file, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	var pid int
	r := traced(t, g, Options{}, policy, func() {
		kerneltest.Child{Name: "tree", Input: file, Reply: &pid, Setup: g.into(t, func(cmd *exec.Cmd) { cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID })}.Run(t)
	})
	r.whole(t)
	if pid != 1 {
		t.Fatalf("the child is pid %d of its namespace", pid)
	}
	events := r.denials()
	if len(events) == 0 {
		t.Fatal("no event")
	}
	e := events[0]
	if e.Process.NSPID == 0 || e.Process.NSPID == e.Process.PID || e.Target.Asked != file {
		t.Errorf("got %+v %+v, want both pids", e.Process, e.Target)
	}
	if n := len(e.Ancestors); n < 2 || e.Ancestors[n-1] != filepath.Base(self(t)) || !strings.HasSuffix(e.Ancestors[0], "sh") {
		t.Errorf("got ancestors %q, want the shells up to this test", e.Ancestors)
	}
	begun, ended := 0, 0
	for _, l := range r.lives {
		if l.Ended {
			ended++
		} else {
			begun++
		}
	}
	if ended == 0 || ended != begun+1 { // the first was begun by a process outside
		t.Errorf("%d begins and %d ends", begun, ended)
	}
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExecAndItsMappingsAreIdentified(t *testing.T) {
	g := newGroup(t, "")
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec /usr/bin/env -i true\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := traced(t, g, Options{Maps: true}, policy, func() { inGroup(t, g, script) })
	r.whole(t)
	var st unix.Stat_t
	env := tool(t, "env")
	if err := unix.Stat(env, &st); err != nil {
		t.Fatal(err)
	}
	var scripted, exact, libc bool
	for _, e := range r.raw {
		switch {
		case e.Kind == Exec && e.Asked.Text == script:
			scripted = e.Base.Text == "/bin/sh" && strings.HasSuffix(e.Exe.Text, "sh")
		case e.Kind == Exec && e.Exe.Text == env:
			exact = e.Image.Ino == st.Ino && e.Image.Size == uint64(st.Size) && e.Image.Changed == st.Ctim && e.Image.Mode == st.Mode && e.Image.Links == uint32(st.Nlink)
		case e.Kind == Map && strings.Contains(e.Base.Text, "libc.so"):
			libc = libc || e.Image != nil && e.Image.Ino != 0
		}
	}
	if !scripted || !exact || !libc {
		t.Errorf("script and interpreter %v, image with inode, size and time %v, library %v", scripted, exact, libc)
	}
}

// TestWhatIsTriedIsRecordedOnce: for learning, what was not found comes with what runs, whoever asks how often; a question of
// kill is no signal.
func TestWhatIsTriedIsRecordedOnce(t *testing.T) {
	g := newGroup(t, "")
	missing := filepath.Join(t.TempDir(), "missing")
	const shell = `for i in 1 2 3; do test -e "$0"; read x <"$0"; echo x >"$0/new"; done 2>/dev/null
sleep 60 & kill -0 $!; kill -TERM $!; kill -KILL $!; wait; "$0"; true`
	run := func(o Options) *recorder {
		return traced(t, g, o, policy, func() { inGroup(t, g, "/bin/dash", "-c", shell, missing) })
	}
	r := run(Options{Maps: true, Tried: true})
	r.whole(t)
	tried, sent := map[string]int{}, map[int]int{}
	for _, e := range r.raw {
		if e.Kind != Tried {
			continue
		}
		if n := e.Sent(); e.Errno == 0 {
			sent[n]++
		} else if want, target, ok := e.Wanted(); ok && strings.HasPrefix(target, missing) {
			tried[string(want)+" "+e.Errno.Error()+" "+strings.TrimPrefix(target, missing)]++
		}
	}
	for _, want := range []string{"read no such file or directory ", "write no such file or directory /new", "exec no such file or directory "} {
		if n := tried[want]; n < 1 || n > 2 { // test looks, and read opens
			t.Errorf("%q: %d records, want one for each kind of call", want, n)
		}
	}
	if sent[int(unix.SIGTERM)] != 1 || sent[int(unix.SIGKILL)] != 1 || sent[0] != 1 {
		t.Errorf("signals by number: %v, want TERM, KILL and a question, once each", sent)
	}
	if len(r.denials()) != 0 {
		t.Errorf("reported as denials: %+v", r.denials())
	}
	for _, e := range run(Options{Maps: true}).raw {
		if e.Kind == Tried {
			t.Errorf("%+v: recorded without being asked for", e)
		}
	}
}

func TestSmallRingLosesAndSaysSo(t *testing.T) {
	g := newGroup(t, "")
	r := traced(t, g, Options{Maps: true, Ring: MinRing}, policy, func() {
		inGroup(t, g, "/bin/dash", "-c", "for i in 1 2 3 4 5 6 7 8 9 0; do /bin/true; done")
	})
	if r.last.Runs.Lost == 0 {
		t.Errorf("%+v: nothing was lost of more than %d bytes", r.last.Runs, MinRing)
	}
	lost := uint64(0)
	for _, e := range r.events {
		if e.Type == "events.lost" && e.Cause == "ring runs" {
			lost += e.Count
		}
	}
	if lost != r.last.Runs.Lost {
		t.Errorf("%d lost, %d reported", r.last.Runs.Lost, lost)
	}
	for _, bad := range []uint32{1, MinRing - 1, MinRing + 1, 3 << 12, MaxRing << 1} {
		if tracer, err := Load(Options{Cgroups: []string{g.dir}, Ring: bad}); err == nil || !strings.Contains(err.Error(), "want a power of two") {
			t.Errorf("a ring of %d bytes: %v, want it refused", bad, err)
			if err == nil {
				tracer.Close()
			}
		}
	}
}
