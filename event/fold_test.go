package event

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 11, 29, 18, 0, 0, 0, time.UTC)

func denial(path string) *Event {
	return &Event{Schema: Schema, Time: start, Type: ExecDenied, Door: "exec-direct", Errno: "EACCES",
		Process: &Process{PID: 1, Exe: "/usr/bin/claude"}, Target: &Target{Asked: path}}
}

func checkSum(t *testing.T, c Counts) {
	t.Helper()
	if c.Produced != c.Emitted+c.Folded+c.Dropped {
		t.Errorf("counts do not add up: %+v", c)
	}
}

func TestFolderLetsTheFirstThroughAndCountsTheRest(t *testing.T) {
	f := NewFolder(FoldOptions{})
	if f.Add(denial("/bin/sh"), start) == nil {
		t.Fatal("the first denial was held back")
	}
	for i := range 41 {
		e := denial("/bin/sh")
		e.Process.PID = i // who asked differs, what was asked does not
		if f.Add(e, start.Add(time.Second)) != nil {
			t.Fatal("a repetition was let through")
		}
	}
	if f.Add(denial("/bin/bash"), start) == nil {
		t.Error("another target counted as a repetition")
	}
	if out := f.Tick(start.Add(9 * time.Second)); len(out) != 0 {
		t.Errorf("before the interval: got %d events, want none", len(out))
	}
	out := f.Tick(start.Add(10 * time.Second))
	if len(out) != 1 || out[0].Count != 41 || out[0].Data["folded_since"] == nil {
		t.Fatalf("got %+v, want one summary of 41", out)
	}
	want := Counts{Produced: 43, Emitted: 2, Folded: 41}
	if f.Counts() != want {
		t.Errorf("counts: got %+v, want %+v", f.Counts(), want)
	}
}

func TestFolderWaitsLongerForAKeyThatGoesOn(t *testing.T) {
	f := NewFolder(FoldOptions{Interval: time.Second, MaxInterval: 4 * time.Second})
	lines, now := 0, start
	for range 60 {
		for range 2 {
			if f.Add(denial("/bin/sh"), now) != nil {
				lines++
			}
		}
		now = now.Add(time.Second)
		lines += len(f.Tick(now))
	}
	if lines < 10 || lines > 20 {
		t.Errorf("got %d lines for a minute of one key, want about one in four seconds", lines)
	}
	checkSum(t, f.Counts())
}

func TestFolderForgetsAQuietKey(t *testing.T) {
	f := NewFolder(FoldOptions{})
	f.Add(denial("/bin/sh"), start)
	f.Tick(start.Add(time.Minute))
	if f.Add(denial("/bin/sh"), start.Add(time.Minute)) == nil {
		t.Error("a denial a minute later was held back")
	}
}

func TestBudgetOfOneClassLeavesTheOthersAlone(t *testing.T) {
	f := NewFolder(FoldOptions{Burst: 10, PerSecond: 1})
	for i := range 1000 {
		f.Add(denial(fmt.Sprint("/tmp/", i)), start)
	}
	if got := f.Counts(); got.Emitted != 10 || got.Dropped != 990 {
		t.Errorf("got %+v, want 10 emitted and 990 dropped", got)
	}
	if f.Add(&Event{Type: NetDenied, Time: start}, start) == nil {
		t.Error("the network's first denial was dropped for the flood of another class")
	}
	for range 100 {
		if f.Add(&Event{Type: LayerApplied, Time: start}, start) == nil {
			t.Fatal("an event of the session itself was dropped")
		}
	}
	out := f.Tick(start)
	if len(out) != 1 || out[0].Type != EventsLost || out[0].Count != 990 || out[0].Data["exec"] != uint64(990) {
		t.Errorf("got %+v, want the loss reported once", out)
	}
	if out := f.Tick(start); len(out) != 0 {
		t.Errorf("got %+v, want the loss reported once only", out)
	}
	if f.Add(denial("/bin/sh"), start.Add(2*time.Second)) == nil {
		t.Error("the budget did not come back")
	}
	checkSum(t, f.Counts())
}

// A name of 4 KiB of control characters is 24 KiB of JSON, and stands in an event three times.
func TestLongTextsOfAnEventCountAsManyLines(t *testing.T) {
	written := func(name string) (lines, size int) {
		f, now := NewFolder(FoldOptions{}), time.Unix(1000, 0)
		for i := range 600 * 50 { // fifty a second, for ten minutes
			e := denial(fmt.Sprint(i) + name)
			e.Target.Resolved = e.Target.Asked
			if out := f.Add(e, now.Add(time.Duration(i)*20*time.Millisecond)); out != nil {
				line, err := Encode(out)
				if err != nil {
					t.Fatal(err)
				}
				lines, size = lines+1, size+len(line)
			}
		}
		checkSum(t, f.Counts())
		return lines, size
	}
	for _, name := range []string{"", strings.Repeat("x", 4000), strings.Repeat("\x01", 4000), strings.Repeat("\u202e", 1300), strings.Repeat("\"", 4000)} {
		lines, size := written(name)
		if size > 5<<20 || lines < 60 {
			t.Errorf("%.9q…: %d lines of %d bytes in ten minutes", name, lines, size)
		}
	}
}

func TestTextsInTheDataOfAnEventCountToo(t *testing.T) {
	long := strings.Repeat("\x01", 1000) // six bytes each, as it is written
	for name, e := range map[string]Event{
		"text":      {Data: map[string]any{"cwd": long}},
		"list":      {Data: map[string]any{"argv": []string{long}}},
		"read list": {Data: map[string]any{"argv": []any{long}}},
		"program":   {Process: &Process{Exe: long}},
		"ancestor":  {Ancestors: []string{long}},
	} {
		f, n := NewFolder(FoldOptions{Burst: 60}), 0
		for i := range 60 {
			one := e
			one.Time, one.Type, one.Command = start, CommandStart, &Command{ID: uint64(i)}
			if f.Add(&one, start) != nil {
				n++
			}
		}
		if n > 11 {
			t.Errorf("%s: %d lines of 6 KB for a budget of 60 KB", name, n)
		}
	}
}

func TestWhatAnAgentCanProvokeHasABudget(t *testing.T) {
	for typ, class := range classes {
		if class == ClassControl {
			continue
		}
		f := NewFolder(FoldOptions{Burst: 10, PerSecond: 1})
		written := 0
		for i := range 1000 {
			if f.Add(&Event{Type: typ, Time: start, Detail: fmt.Sprint(i), Process: &Process{Comm: fmt.Sprint(i)}}, start) != nil {
				written++
			}
		}
		if written != 10 {
			t.Errorf("%s (%s): got %d lines of a flood, want the 10 of its budget", typ, class, written)
		}
	}
}

// A process that renames itself makes as many different denials as it wants, at no cost.
func TestFloodHidesNoFirstDenialOfAnotherKind(t *testing.T) {
	f := NewFolder(FoldOptions{})
	flood := func() {
		for i := range 1000 {
			f.Add(&Event{Type: SignalDenied, Time: start, Door: "sig", Syscall: "kill", Errno: "EPERM", Process: &Process{Comm: fmt.Sprint(i)}}, start)
		}
	}
	flood()
	kinds := []Event{
		{Type: SyscallDenied, Door: "kernel-bpf", Syscall: "bpf", Errno: "EPERM"},
		{Type: SyscallDenied, Door: "kernel-bpf", Syscall: "bpf", Errno: "EACCES"},
		{Type: SyscallDenied, Door: "kernel-perf", Syscall: "perf_event_open", Errno: "EACCES"},
		{Type: NSDenied, Door: "ns", Syscall: "mount", Errno: "EPERM"},
		{Type: SyscallDenied, Door: "exec-abi", Syscall: "call 1000"},
	}
	for _, kind := range kinds {
		e := kind
		e.Time = start
		if f.Add(&e, start) == nil {
			t.Errorf("the first denial of %s of %s, %s, is not told", e.Door, e.Syscall, e.Errno)
		}
		for i := range 3 { // what the program chooses makes no other kind
			e := kind
			e.Time, e.Target, e.Process = start, &Target{Asked: fmt.Sprint(i)}, &Process{Comm: fmt.Sprint(i)}
			if f.Add(&e, start) != nil {
				t.Errorf("denial %d of %s of %s, %s, found room", i, e.Door, e.Syscall, e.Errno)
			}
		}
	}
	for i := range 1000 {
		if f.Add(&Event{Type: SyscallDenied, Time: start, Door: "exec-abi", Syscall: fmt.Sprint("call ", i)}, start) != nil {
			t.Errorf("call %d makes a kind of its own", i)
		}
	}
	if f.Add(&Event{Type: LayerOpen, Time: start, Detail: "x"}, start) == nil {
		t.Error("another class has no room")
	}
	checkSum(t, f.Counts())
}

func TestFirstsOfManyKindsAreBounded(t *testing.T) {
	f, n := NewFolder(FoldOptions{Burst: 10}), 0
	for i := range 5000 {
		if f.Add(&Event{Type: SyscallDenied, Time: start, Door: "kernel", Syscall: fmt.Sprint(i)}, start) != nil {
			n++
		}
	}
	if n != 512 {
		t.Errorf("got %d lines over a budget of 10, want the 512 of firsts", n)
	}
	checkSum(t, f.Counts())
}

func TestFolderHoldsAsManyKeysAsItMay(t *testing.T) {
	f := NewFolder(FoldOptions{MaxKeys: 4, Burst: 100})
	for i := range 50 {
		f.Add(denial(fmt.Sprint("/tmp/", i)), start)
	}
	if len(f.keys) != 4 {
		t.Errorf("got %d keys, want 4", len(f.keys))
	}
	if got := f.Counts(); got.Overflow != 46 || got.Emitted != 50 {
		t.Errorf("got %+v, want the overflow emitted and counted", got)
	}
	checkSum(t, f.Counts())
}

// Repetitions that cannot be counted are written, and use up the budget of what else comes.
func TestKeysOfOneClassLeaveTheOthersTheirs(t *testing.T) {
	f := NewFolder(FoldOptions{MaxKeys: 4, Burst: 100})
	for i := range 50 {
		f.Add(&Event{Type: FileDenied, Time: start, Target: &Target{Asked: fmt.Sprint(i)}}, start)
	}
	if f.Add(denial("/bin/sh"), start) == nil || f.Add(denial("/bin/sh"), start) != nil {
		t.Error("the second of a key was not counted, because of another class")
	}
	f.Tick(start.Add(time.Hour)) // the second is written, the others are forgotten
	for range 2 {
		f.Add(&Event{Type: FileDenied, Time: start, Door: "new"}, start.Add(time.Hour))
	}
	if got := f.Counts(); got.Folded != 2 {
		t.Errorf("got %+v, want room again for keys of files", got)
	}
	checkSum(t, f.Counts())
}

func TestFlushHoldsNothingBack(t *testing.T) {
	f := NewFolder(FoldOptions{})
	for range 5 {
		f.Add(denial("/bin/sh"), start)
	}
	e := denial("/bin/sh")
	e.Count = 7 // a producer that folds by itself
	f.Add(e, start)
	out := f.Flush(start)
	if len(out) != 1 || out[0].Count != 11 {
		t.Errorf("got %+v, want one summary of 4 + 7", out)
	}
	if out := f.Flush(start); len(out) != 0 {
		t.Errorf("got %+v, want nothing left", out)
	}
}

func TestCommandsAreNeverFolded(t *testing.T) {
	f := NewFolder(FoldOptions{})
	for i := range 20 {
		e := &Event{Type: CommandEnd, Time: start, Command: &Command{ID: 1}}
		if f.Add(e, start) == nil {
			t.Fatalf("end %d was held back", i)
		}
	}
}

func TestFoldKeyKeepsFieldsApart(t *testing.T) {
	if a, b := (&Event{Type: LayerOpen, Detail: "one"}), (&Event{Type: LayerOpen, Detail: "two"}); foldKey(a) == foldKey(b) {
		t.Error("two reports share a key")
	}
	a, b := denial("/bin/sh"), denial("/bin")
	b.Target.Resolved = "/sh"
	if foldKey(a) == foldKey(b) {
		t.Error("two targets share a key")
	}
}

func TestEveryTypeHasAClass(t *testing.T) {
	for _, typ := range []Type{ExecDenied, ExecRouted, SignalDenied, PtraceDenied, NetDenied, NetFailed, MemfdDenied, NSDenied, SyscallDenied,
		FileDenied, RepoCreated, CommandStart, CommandEnd, LimitHit, SecretRedacted, LayerOpen, LayerApplied, StartRefused,
		FileQuarantined, IntegrityChanged, SessionStart, SessionEnd, EventsLost, Heartbeat} {
		if !typ.Known() {
			t.Errorf("%s has no class", typ)
		}
	}
	if Type("exec.dreamt").Known() {
		t.Error("an unknown type is known")
	}
}

// Whoever may connect makes thousands of requests a second that are refused, each with another name.
func TestRefusalsOfTheServerTakeNobodysRoom(t *testing.T) {
	f := NewFolder(FoldOptions{})
	for i := range 3000 {
		f.Add(&Event{Time: start, Type: SyscallDenied, Door: "srv-bytes", Layer: "server", Detail: fmt.Sprintf("request refused: %d", i)}, start)
		f.Add(&Event{Time: start, Type: CommandEnd, Detail: fmt.Sprintf("not started: %d", i)}, start)
	}
	for _, e := range []*Event{{Time: start, Type: SignalDenied, Door: "sig"}, {Time: start, Type: CommandStart, Command: &Command{ID: 1}}, {Time: start, Type: CommandEnd, Command: &Command{ID: 1}}} {
		if f.Add(e, start) == nil {
			t.Errorf("%s found no room", e.Type)
		}
	}
	checkSum(t, f.Counts())
}

func TestRefusalsOfTheServerFoldByTheirSentence(t *testing.T) {
	f := NewFolder(FoldOptions{})
	for _, e := range []Event{{Type: SyscallDenied, Door: "srv-bytes", Layer: "server"}, {Type: CommandEnd}} {
		e.Time = start
		for _, sentence := range []string{"version 2", "unknown frame 99"} {
			first, again := e, e
			first.Detail, again.Detail = sentence, sentence
			if f.Add(&first, start) == nil {
				t.Errorf("%s: %q counted as a repetition", e.Type, sentence)
			}
			if f.Add(&again, start) != nil {
				t.Errorf("%s: %q did not count as a repetition", e.Type, sentence)
			}
		}
	}
}

// A report of losses for which there is no room holds a number that would be in no line.
func TestNumberOfALossIsToldThoughItsLineIsNot(t *testing.T) {
	f := NewFolder(FoldOptions{Burst: 10})
	var lost, told uint64
	for i := range uint64(100) {
		lost += i
		if e := f.Add(&Event{Time: start, Type: EventsLost, Count: i, Cause: "queue"}, start); e != nil {
			told += e.Count
		}
	}
	for _, e := range f.Tick(start.Add(time.Second)) {
		told += e.Count - e.Data[string(ClassReport)].(uint64) // those lines themselves are lost as well
	}
	if told != lost {
		t.Errorf("%d events were lost, %d are told", lost, told)
	}
	checkSum(t, f.Counts())
}
