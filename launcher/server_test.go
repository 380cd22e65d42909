package launcher

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// servedBy is a server whose bashd is the test.
func servedBy(t *testing.T) (sv *server, ours, bashd *wire.RecordConn, events *os.File) {
	t.Helper()
	send, events, err := sink.Pair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { send.Close(); events.Close() })
	listen, err := listenSocket(filepath.Join(t.TempDir(), "bash.sock"), os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	sv = &server{s: &Session{Manifest: (&manifest.Manifest{}).WithDefaults()}, events: sink.NewSender(send, "test"), listen: listen, admit: func(peer) error { return nil },
		open: map[uint64]*wire.RecordConn{}, sent: map[uint64]int{}, running: map[uint64]*runningCommand{}, hinted: map[wire.Hint]time.Time{}}
	sv.changed.L = &sv.mu
	a, b, err := socketpair(unix.SOCK_SEQPACKET)
	if err != nil {
		t.Fatal(err)
	}
	if ours, err = wire.NewRecordConn(a, wire.Patience); err != nil {
		t.Fatal(err)
	}
	if bashd, err = wire.NewRecordConn(b, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close(); bashd.Close() })
	sv.serveBy(ours)
	return sv, ours, bashd, events
}

func (sv *server) dial(t *testing.T) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: sv.listen.Name(), Net: "unix"})
	for errors.Is(err, unix.EAGAIN) { // the backlog is full, and net does not wait
		time.Sleep(time.Millisecond)
		c, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: sv.listen.Name(), Net: "unix"})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestServerWaitsForNoBashd(t *testing.T) {
	sv, _, bashd, _ := servedBy(t)
	sv.busy.Go(sv.accept)
	for range maxOpen {
		sv.dial(t)
	}
	late := sv.dial(t)
	begun := time.Now()
	late.SetReadDeadline(begun.Add(5 * time.Second))
	f, err := wire.ReadFrame(late)
	if err != nil || f.Type != wire.Error || !strings.Contains(string(f.Payload), "busy") {
		t.Errorf("one too many: got %d %q, %v", f.Type, f.Payload, err)
	}
	took := time.Since(begun)
	if took < roomTime/2 || took > 2*roomTime {
		t.Errorf("one too many waited %v, want about %v", took, roomTime)
	}
	// What bashd has done with makes room, for one that waits too.
	waits := sv.dial(t)
	for range 2 {
		r, fds, err := bashd.Recv()
		if err != nil || r.Type != wire.RecConn {
			t.Fatalf("got %+v, %v", r, err)
		}
		wire.CloseAll(fds)
		sv.mu.Lock()
		rc := sv.open[r.ID]
		sv.mu.Unlock()
		begun = time.Now()
		if err := sv.handle(rc, wire.Record{Type: wire.RecDone, ID: r.ID}, nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 100*time.Millisecond {
			t.Errorf("a record of bashd's waited %v", took)
		}
	}
	waits.SetReadDeadline(time.Now().Add(2 * roomTime))
	if f, err := wire.ReadFrame(waits); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("with room: got %d %q, %v; want it with bashd", f.Type, f.Payload, err)
	}
	begun = time.Now()
	if err := sv.close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("close took %v", took)
	}
}

// A bashd that dies closes its connections in some order. One that was on its way to it then must not be lost with it: no
// command of it has run.
func TestConnectionThatADyingServerNeverTookGoesToTheNext(t *testing.T) {
	sv, ours, dying, _ := servedBy(t)
	sv.busy.Go(sv.accept)
	ended := make(chan error)
	go func() { ended <- sv.control(ours) }()
	taken, never := sv.dial(t), sv.dial(t)
	r, fds, err := dying.Recv()
	if err != nil || r.Type != wire.RecConn {
		t.Fatalf("got %+v, %v", r, err)
	}
	wire.CloseAll(fds)
	if err := dying.Send(wire.Record{Type: wire.RecTaken, ID: r.ID}); err != nil {
		t.Fatal(err)
	}
	for sentTo(sv) != 1 {
		time.Sleep(time.Millisecond)
	}
	dying.Close()
	if err := <-ended; !errors.Is(err, errHungUp) {
		t.Errorf("control: %v", err)
	}
	a, b, err := socketpair(unix.SOCK_SEQPACKET)
	if err != nil {
		t.Fatal(err)
	}
	second, err := wire.NewRecordConn(a, wire.Patience)
	if err != nil {
		t.Fatal(err)
	}
	next, err := wire.NewRecordConn(b, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	go func() { ended <- sv.control(second) }()
	sv.serveBy(second)
	r, fds, err = next.Recv()
	if err != nil || r.Type != wire.RecConn {
		t.Fatalf("the next got %+v, %v; want the connection", r, err)
	}
	if err := next.Send(wire.Record{Type: wire.RecTaken, ID: r.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := never.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	var one [1]byte
	if _, err := unix.Read(fds[0], one[:]); err != nil || one[0] != 'x' {
		t.Errorf("the next read %q, %v; want what the client wrote", one, err)
	}
	wire.CloseAll(fds)
	for name, c := range map[string]*net.UnixConn{"taken": taken, "served": never} {
		c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Read(one[:]); !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("client that was %s: %v, want the end", name, err)
		}
	}
	next.Close()
	<-ended
	if err := sv.close(); err != nil {
		t.Error(err)
	}
}

// sentTo is how many connections are on their way to a bashd.
func sentTo(sv *server) int {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	return len(sv.sent)
}

func TestHintGoesOnceToACommandAndOnceASecond(t *testing.T) {
	sv, ours, bashd, _ := servedBy(t)
	for id := range uint64(3) {
		sv.open[id] = ours
		sv.running[id] = &runningCommand{hints: map[wire.Hint]bool{}}
	}
	sv.running[0].dom = &domain{}
	sv.running[1].dom, sv.running[1].ended = &domain{}, true
	for range 10000 {
		sv.hint(wire.HintGit)
	}
	sv.mu.Lock()
	sv.hinted[wire.HintGit] = time.Now().Add(-hintPause)
	sv.running[2].dom = &domain{}
	sv.mu.Unlock()
	sv.hint(wire.HintGit)
	ours.Send(wire.Record{Type: wire.RecEnded})
	var got []uint64
	for {
		r, _, err := bashd.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if r.Type == wire.RecEnded {
			break
		}
		got = append(got, r.ID)
	}
	// The second had ended, the third ran only when the pause was over.
	if len(got) != 2 || got[0] != 0 || got[1] != 2 {
		t.Errorf("hints went to %v, want 0 and 2", got)
	}
}

// A sandbox whose pid 1 does not take its signals must not hold up others.
func TestSignalsOfACommandThatTakesNoneDoNotWait(t *testing.T) {
	sv, ours, _, _ := servedBy(t)
	sv.open[1] = ours
	sv.running[1] = &runningCommand{signals: make(chan int, maxSignals)}
	begun := time.Now()
	for range 10000 {
		if err := sv.handle(ours, wire.Record{Type: wire.RecSignal, ID: 1, A: uint64(unix.SIGTERM)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("took %v", took)
	}
}

// sleeper is a process that a helperProcess may stand for.
func sleeper(t *testing.T) *helperProcess {
	t.Helper()
	pid, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "1000"}, &syscall.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	p := &helperProcess{pid: pid, ended: make(chan struct{})}
	go p.reap()
	t.Cleanup(func() { p.signal(unix.SIGKILL); <-p.ended })
	return p
}

func TestBashdThatBreaksTheProtocolIsKilledAndTheRuleNamed(t *testing.T) {
	for rule, breaks := range map[string]func(*wire.RecordConn){
		"record 19 names connection 77, which bashd does not hold": func(b *wire.RecordConn) { b.Send(wire.Record{Type: wire.RecDone, ID: 77}) },
		"it closed its control socket":                             func(b *wire.RecordConn) { b.Close() },
	} {
		sv, ours, bashd, events := servedBy(t)
		p := sleeper(t)
		go sv.attend(ours, p)
		breaks(bashd)
		if !p.ends(5 * time.Second) {
			t.Fatalf("%s: lives on", rule)
		}
		buf := make([]byte, event.MaxBytes)
		n, err := events.Read(buf)
		if err != nil || !bytes.Contains(buf[:n], []byte(rule)) {
			t.Errorf("got event %q, %v; want %q", buf[:n], err, rule)
		}
	}
}

func TestHelperThatHasEndedIsNotSignalled(t *testing.T) {
	gone, other := sleeper(t), sleeper(t)
	gone.signal(unix.SIGKILL)
	<-gone.ended
	gone.pid = other.pid // as if the number had been given away again
	gone.signal(unix.SIGKILL)
	if other.ends(100 * time.Millisecond) {
		t.Error("another process was killed")
	}
}
