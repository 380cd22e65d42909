package sink

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sharness/sharness/event"
	"golang.org/x/sys/unix"
)

// rig is a collector with its producers, fed by a test.
type rig struct {
	t       *testing.T
	config  Config
	senders []*Sender
	raw     []*os.File
	done    chan error
	beat    time.Duration // between heartbeats; 0: as in life
	stop    context.CancelFunc
}

// newRig makes a collector; the first producer is the supervisor.
func newRig(t *testing.T, producers []string, sinks ...Opened) *rig {
	t.Helper()
	r := &rig{t: t, config: Config{Session: "claude-test", Control: -1}, done: make(chan error, 1)}
	for i, name := range producers {
		send, receive, err := Pair()
		if err != nil {
			t.Fatal(err)
		}
		r.raw = append(r.raw, send)
		r.senders = append(r.senders, NewSender(send, name))
		r.config.Sources = append(r.config.Sources, Source{FD: dup(t, receive), Name: name, Trusted: i == 0})
	}
	for _, s := range sinks {
		r.config.Sinks = append(r.config.Sinks, Target{FD: dup(t, s.File), Kind: s.Spec.Kind, Name: s.Spec.String()})
	}
	return r
}

// dup gives the collector a descriptor of its own, as fork does, and closes ours.
func dup(t *testing.T, f *os.File) int {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return fd
}

func (r *rig) run() {
	r.t.Helper()
	c, err := New(r.config, event.FoldOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	if r.beat > 0 {
		c.beat = r.beat
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	r.t.Cleanup(stop)
	go func() { r.done <- c.Run(ctx) }()
}

// end closes every producer and waits for the collector.
func (r *rig) end() {
	r.t.Helper()
	r.hangUp()
	r.wait()
}

func (r *rig) hangUp() {
	for _, s := range r.senders {
		_ = s.Close()
	}
}

func (r *rig) wait() {
	r.t.Helper()
	if err := r.ended(); err != nil {
		r.t.Fatal(err)
	}
}

// ended is what Run has returned.
func (r *rig) ended() error {
	r.t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(20 * time.Second):
		r.t.Fatal("the collector did not end")
		return nil
	}
}

func openFile(t *testing.T, path string) Opened {
	t.Helper()
	o, err := Open(Spec{Kind: File, Path: path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func readLog(t *testing.T, path string) []*event.Event {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []*event.Event
	for line := range bytes.Lines(b) {
		e, err := event.Parse(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		out = append(out, e)
	}
	return out
}

func denied(path string) event.Event {
	return event.Event{Type: event.ExecDenied, Door: "exec-direct", Target: &event.Target{Asked: path}}
}

func TestLogHasEveryEventInOrderAndEndsWithTheCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	r := newRig(t, []string{"supervisor", "bashd"}, openFile(t, path))
	r.run()
	r.senders[0].Send(event.Event{Type: event.SessionStart})
	code := 3
	r.senders[0].Send(event.Event{Type: event.SessionEnd, Data: map[string]any{"exit": code, "produced": "a lie"}})
	for i := range 30 {
		r.senders[1].Send(denied(fmt.Sprint("/bin/", i%3)))
	}
	r.end()
	events := readLog(t, path)
	for i, e := range events {
		if e.Seq != uint64(i+1) || e.Session != "claude-test" || e.Time.IsZero() {
			t.Errorf("line %d: got seq %d session %q time %v", i+1, e.Seq, e.Session, e.Time)
		}
	}
	last := events[len(events)-1]
	if last.Type != event.SessionEnd || last.Data["exit"] != float64(code) {
		t.Fatalf("last line: got %+v, want the supervisor's session.end", last)
	}
	if last.Data["produced"] != 31.0 || last.Data["emitted"] != 4.0 || last.Data["folded"] != 27.0 || last.Data["dropped"] != 0.0 {
		t.Errorf("counts: got %v, want 31 = 4 + 27 + 0", last.Data)
	}
	var occurrences uint64
	for _, e := range events {
		if e.Type == event.ExecDenied {
			occurrences += max(e.Count, 1)
		}
	}
	if occurrences != 30 {
		t.Errorf("got %d occurrences in the log, want 30", occurrences)
	}
}

func TestLogSaysWhenTheSupervisorWasLost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	r := newRig(t, []string{"supervisor"}, openFile(t, path))
	r.run()
	r.end()
	events := readLog(t, path)
	if len(events) != 1 || events[0].Type != event.SessionEnd || events[0].Cause != "lost" {
		t.Errorf("got %+v, want one session.end that says so", events)
	}
}

func TestHeartbeatShowsAQuietLogToBeAlive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	r := newRig(t, []string{"supervisor"}, openFile(t, path))
	r.beat = time.Millisecond
	r.run()
	waitFor(t, func() bool { st, err := os.Stat(path); return err == nil && st.Size() > 0 })
	r.end()
	if e := readLog(t, path)[0]; e.Type != event.Heartbeat || e.Data["produced"] != 0.0 || e.Data["malformed"] != 0.0 {
		t.Errorf("got %+v, want a heartbeat with the counts", e)
	}
}

func TestStopReadsWhatIsQueued(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	r := newRig(t, []string{"supervisor", "bashd"}, openFile(t, path))
	r.senders[1].Send(denied("/bin/sh"))
	r.run()
	r.stop() // with all producers alive
	r.wait()
	if events := readLog(t, path); len(events) != 2 || events[0].Type != event.ExecDenied {
		t.Errorf("got %+v, want the denial and the end", events)
	}
}

func TestProducersCannotSpeakForTheSupervisor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	r := newRig(t, []string{"supervisor", "bashd"}, openFile(t, path))
	r.run()
	for _, typ := range []event.Type{event.SessionStart, event.SessionEnd, event.LayerApplied, event.IntegrityChanged} {
		r.senders[1].Send(event.Event{Type: typ})
	}
	r.senders[1].Send(event.Event{Type: event.ExecDenied, Session: "another", Seq: 999})
	for _, junk := range []string{"junk", `{"schema":1,"type":"exec.denied","more":1}`, strings.Repeat("x", event.MaxBytes+100)} {
		if err := unix.Sendto(int(r.raw[1].Fd()), []byte(junk), 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	r.end()
	var kept, lost uint64
	for _, e := range readLog(t, path) {
		switch e.Type {
		case event.SessionStart, event.LayerApplied, event.IntegrityChanged:
			t.Errorf("got %s from a producer that may not say so", e.Type)
		case event.ExecDenied:
			kept++
			if e.Session != "claude-test" || e.Seq == 999 {
				t.Errorf("got session %q seq %d as the producer claimed", e.Session, e.Seq)
			}
		case event.EventsLost:
			lost += e.Count
			if e.Cause != "malformed" {
				t.Errorf("cause: got %q, want malformed", e.Cause)
			}
		}
	}
	if kept != 1 || lost != 7 {
		t.Errorf("got %d kept and %d counted as malformed, want 1 and 7", kept, lost)
	}
}

func TestEmptyDatagramIsNotTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	r := newRig(t, []string{"supervisor"}, openFile(t, path))
	r.run()
	if err := unix.Sendto(int(r.raw[0].Fd()), nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	r.senders[0].Send(denied("/bin/sh"))
	waitFor(t, func() bool { st, err := os.Stat(path); return err == nil && st.Size() > 0 })
	r.end()
	if events := readLog(t, path); events[0].Type != event.ExecDenied {
		t.Errorf("got %+v, want the denial after the empty datagram", events[0])
	}
}

func TestSenderNeverWaitsAndReportsItsLosses(t *testing.T) {
	send, receive, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	s := NewSender(send, "bashd")
	sent := uint64(0)
	for s.Lost() < 100 { // nobody reads: a sender that waited would hang here
		s.Send(denied("/bin/sh"))
		if sent++; sent > 1e6 {
			t.Fatal("a million events without a reader, and none lost")
		}
	}
	src, err := newSource(Source{FD: dup(t, receive), Name: "bashd"})
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan *event.Event)
	go func() { defer close(out); _ = src.read(out) }()
	var got, lost uint64
	for e := range out {
		if e.Type == event.EventsLost {
			lost += e.Count
			continue
		}
		if got++; got == 1 {
			_ = s.Close()
		}
	}
	if got+lost != sent {
		t.Errorf("got %d and %d reported lost, want %d together", got, lost, sent)
	}
}

// One that gathers waits between its looks, and misses nothing: neither what comes meanwhile nor what comes after a longer pause.
func TestSourceThatGathersHandsEveryEventOn(t *testing.T) {
	send, receive, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	s := NewSender(send, "bashd")
	src, err := newSource(Source{FD: dup(t, receive), Name: "bashd", Gather: true})
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan *event.Event)
	go func() { defer close(out); _ = src.read(out) }()
	const n = 30
	go func() {
		for i := range n {
			s.Send(event.Event{Type: event.CommandStart, Command: &event.Command{ID: uint64(i)}})
			time.Sleep(gather / 4 * time.Duration(i%10))
		}
		_ = s.Close()
	}()
	next := uint64(0)
	for e := range out {
		if e.Command == nil || e.Command.ID != next {
			t.Fatalf("got %+v, want command %d", e, next)
		}
		next++
	}
	if next != n {
		t.Errorf("got %d events, want %d", next, n)
	}
}

func TestNilSenderSendsNothing(t *testing.T) {
	var s *Sender
	s.Send(denied("/bin/sh"))
	if s.Lost() != 0 || s.Close() != nil {
		t.Error("a nil sender lost something")
	}
}

func TestSlowSinkCostsOnlyItsOwnLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close() // never read before the end
	r := newRig(t, []string{"supervisor"}, openFile(t, path), Opened{Spec{Kind: Terminal}, write})
	r.run()
	const n = 5000 // more than the pipe and the queue hold
	code := 0
	for i := range n {
		r.senders[0].Send(event.Event{Type: event.LayerApplied, Layer: strings.Repeat("x", 100), Command: &event.Command{ID: uint64(i), ExitCode: &code}})
	}
	r.hangUp()
	if err := r.ended(); err == nil || !strings.Contains(err.Error(), "events: - takes too long; the last lines may be missing") {
		t.Errorf("got %v, want the slow sink named", err)
	}
	events := readLog(t, path)
	last := events[len(events)-1]
	lost, _ := last.Data["sink_lost"].(map[string]any)
	if lost["-"] == nil || lost["-"].(float64) == 0 {
		t.Errorf("got %v, want the losses of the slow sink", last.Data)
	}
	// The file has its own bounded queue too: lines are either there or counted.
	fileLost, _ := lost[path].(float64)
	sent := float64(n) - float64(r.senders[0].Lost())
	if got := float64(len(events)-1) + fileLost; got < sent {
		t.Errorf("got %v lines and losses in the file, want at least %v", got, sent)
	}
}

func TestRotatedFileIsReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	r := newRig(t, []string{"supervisor"}, openFile(t, path))
	ours, theirs, err := Pair() // any seqpacket pair serves as the control socket
	if err != nil {
		t.Fatal(err)
	}
	r.config.Control = dup(t, theirs)
	r.run()
	r.senders[0].Send(event.Event{Type: event.SessionStart})
	waitFor(t, func() bool { st, err := os.Stat(path); return err == nil && st.Size() > 0 })
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	fresh := openFile(t, path)
	defer fresh.File.Close()
	if err := Replace(ours, 0, fresh.File); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ { // the control socket is another channel: which event is the first in the new file is open
		r.senders[0].Send(event.Event{Type: event.LayerApplied, Layer: fmt.Sprint(i)})
		if st, err := os.Stat(path); err != nil || st.Size() > 0 {
			break
		}
		time.Sleep(time.Millisecond)
		if i > 10000 {
			t.Fatal("nothing was written to the new file")
		}
	}
	r.end()
	events := append(readLog(t, path+".1"), readLog(t, path)...)
	for i, e := range events {
		if e.Seq != uint64(i+1) {
			t.Fatalf("line %d of both files: got seq %d", i+1, e.Seq)
		}
	}
	ours.Close()
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain")
		}
	}
}

func TestTornLineDoesNotSpoilTheNext(t *testing.T) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	read := os.NewFile(uintptr(p[0]), "read")
	defer read.Close()
	w := &writer{kind: File, name: "pipe", file: os.NewFile(uintptr(p[1]), "write")}
	size, err := unix.FcntlInt(uintptr(p[1]), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		t.Fatal(err)
	}
	// A write of more than PIPE_BUF bytes to a pipe with less room goes in part.
	if err := w.whole(p[1], bytes.Repeat([]byte("a"), size+1)); err == nil || !w.torn {
		t.Fatalf("got %v torn %v, want a torn line", err, w.torn)
	}
	drained := make([]byte, size)
	if _, err := read.Read(drained); err != nil {
		t.Fatal(err)
	}
	if err := w.whole(p[1], []byte("next\n")); err != nil {
		t.Fatal(err)
	}
	n, err := read.Read(drained)
	if err != nil || string(drained[:n]) != "\nnext\n" {
		t.Errorf("got %q, %v, want the next line to begin on its own", drained[:n], err)
	}
}

func TestFullDiskIsAnErrorNotAHang(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := &writer{kind: File, name: "full", file: f}
	if err := w.write(item{line: []byte("{}")}); err == nil {
		t.Error("got no error, want ENOSPC")
	}
}

func TestConfigRefuses(t *testing.T) {
	good := Config{Sources: []Source{{FD: 4}}, Sinks: []Target{{FD: 6, Kind: File}}, Control: -1}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"no source":   func(c *Config) { c.Sources = nil },
		"same twice":  func(c *Config) { c.Sinks = []Target{{FD: 4, Kind: File}} },
		"stdin":       func(c *Config) { c.Sources = []Source{{FD: 0}} },
		"config's fd": func(c *Config) { c.Sources = []Source{{FD: 5}} },
		"kind":        func(c *Config) { c.Sinks = []Target{{FD: 6, Kind: "carrier pigeon"}} },
	} {
		c := good
		change(&c)
		if err := c.check(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestArrangeNumbersWhatExecGives(t *testing.T) {
	f := func() *os.File { return os.Stdin }
	c, files, err := Arrange("s", []Feed{{Name: "supervisor", File: f(), Trusted: true}, {Name: "bashd", File: f(), Gather: true}},
		[]Opened{{Spec{Kind: File, Path: "/l"}, f()}, {Spec{Kind: Terminal}, f()}}, f())
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var again Config
	if err := json.Unmarshal(b, &again); err != nil {
		t.Fatal(err)
	}
	want := "[4 8 6 7 3]"
	if got := fmt.Sprint(again.FDs()); got != want || len(files) != 6 || files[2] != nil {
		t.Errorf("got descriptors %s, %d files, want %s, 6, with room for the configuration", got, len(files), want)
	}
	if s := again.Sources; !s[0].Trusted || s[0].Gather || s[1].Trusted || !s[1].Gather {
		t.Errorf("got %+v: the first is trusted, the second gathers", s)
	}
	if err := again.check(); err != nil {
		t.Error(err)
	}
}

func TestParseSpec(t *testing.T) {
	for text, want := range map[string]Spec{
		"-": {Kind: Terminal}, "journald": {Kind: Journald}, "syslog": {Kind: Syslog},
		"/var/log/x": {File, "/var/log/x"}, "x/../y": {File, "/home/me/y"}, "./-": {File, "/home/me/-"},
	} {
		if got, err := ParseSpec(text, "/home/me"); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	if _, err := ParseSpec("", "/"); err == nil {
		t.Error("an empty name was accepted")
	}
}

func TestSupervisorHearsOfTheFirstRefusedExecOnly(t *testing.T) {
	r := newRig(t, []string{"supervisor"})
	ours, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	r.config.Control = dup(t, theirs)
	theirs.Close()
	r.run()
	for _, e := range []event.Event{{Type: event.ExecDenied, Phase: "probe"}, {Type: event.LayerApplied}, {Type: event.ExecDenied}, {Type: event.ExecDenied}} {
		r.senders[0].Send(e)
	}
	r.end()
	heard, buf := []byte{}, make([]byte, 1)
	for n := 1; n == 1; {
		if n, _, _ = unix.Recvfrom(int(ours.Fd()), buf, unix.MSG_DONTWAIT); n == 1 {
			heard = append(heard, buf...)
		}
	}
	if len(heard) != 1 || heard[0] != sawRefusedExec {
		t.Errorf("heard %v, want one refusal and no request for files", heard)
	}
}
