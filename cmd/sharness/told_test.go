package main

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/internal/sidedoor/attempt"
	"github.com/sharness/sharness/manifest"
)

// denials are the errnos that an event is made of when calls on files are reported too.
var denials = []string{"EACCES", "EPERM", "ENETUNREACH", "EHOSTUNREACH", "ENOSYS", "EROFS", "EBUSY"}

// Whatever the siege is refused with an errno is in the log, under its door and with its errno, and nothing of the log was
// lost: its counts add up.
func TestEveryRefusalOfTheSiegeIsInTheLog(t *testing.T) {
	requireBait(t)
	for _, build := range []string{"sharness-probe", "sharness-probe-dynamic"} {
		t.Run(build, func(t *testing.T) {
			s := newSiege(t, build, manifest.AccessWrite)
			s.files = true
			got := s.run()
			log := readEvents(t, s.events())
			type key struct{ door, errno string }
			told := map[key]bool{}
			for _, e := range log {
				if e.Type.Denial() && e.Phase == "" {
					told[key{e.Door, e.Errno}] = true
				}
				// Repetitions that were too fast to be written are counted at the end: what they repeat is there.
				if e.Type == event.EventsLost && e.Cause != "repeats" {
					t.Errorf("lost: %+v", e)
				}
			}
			refused := 0
			for door, tries := range got {
				for _, r := range tries {
					if r.Verdict != attempt.Closed || !slices.Contains(denials, r.Errno) || sidedoor.Untold(r.ID) {
						continue
					}
					refused++
					if !told[key{door, r.Errno}] && !told[key{sidedoor.EventDoor(r.ID), r.Errno}] {
						t.Errorf("%s: %s %s: no event", r.ID, r.Errno, r.Detail)
					}
				}
			}
			if refused < 400 {
				t.Errorf("%d attempts were refused with an errno, want most of them", refused)
			}
			wantSum(t, log)
		})
	}
}

func readEvents(t *testing.T, path string) (all []*event.Event) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		e, err := event.Parse(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			t.Fatalf("event log: %v in %.200q", err, line)
		}
		all = append(all, e)
	}
	return all
}

// wantSum checks the two sums of a log: of what the kernel side produced, in the tracer's last word, and of what reached the
// log, in its last line.
func wantSum(t *testing.T, log []*event.Event) {
	t.Helper()
	var tracer map[string]any
	for _, e := range log {
		if e.Type == event.Heartbeat && e.Data["tracer"] == true {
			tracer = e.Data
		}
	}
	if tracer == nil {
		t.Fatal("the tracer said nothing at its end")
	}
	number := func(data map[string]any, key string) float64 { n, _ := data[key].(float64); return n }
	if p := number(tracer, "denied"); p == 0 || p != number(tracer, "read")+number(tracer, "denied_lost")+number(tracer, "denied_shed") {
		t.Errorf("the kernel side: %v", tracer)
	}
	for name, data := range map[string]map[string]any{"the tracer": tracer, "the log": log[len(log)-1].Data} {
		produced := number(data, "read")
		if name == "the log" {
			produced = number(data, "produced")
		}
		if produced == 0 || produced != number(data, "emitted")+number(data, "folded")+number(data, "dropped") || number(data, "dropped") != 0 {
			t.Errorf("%s: %v", name, data)
		}
	}
}
