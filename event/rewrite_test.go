package event

import (
	"encoding/json"
	"strings"
	"testing"
)

// Whatever a producer may say, with a value in it.
func full(value string) *Event {
	return &Event{Schema: Schema, Type: ExecDenied, Process: &Process{Comm: value, Exe: "/x/" + value}, Ancestors: []string{"a", value},
		Target: &Target{Asked: value, Resolved: "/" + value, Old: value + "/"}, Blocker: value, Detail: "at " + value, Hint: &Hint{Person: value, Model: value},
		Data: map[string]any{"cwd": value, "list": []any{value, 1.0, map[string]any{"deep": value}}}}
}

func TestRewriteReachesEveryTextOfAnEvent(t *testing.T) {
	e := full("hunter2")
	e.Rewrite(func(s string, _ bool) string { return strings.ReplaceAll(s, "hunter2", "*") })
	line, err := Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(line), "hunter2") || strings.Count(string(line), "*") != strings.Count(mustEncode(t, full("hunter2")), "hunter2") {
		t.Errorf("got %s", line)
	}
}

func mustEncode(t *testing.T, e *Event) string {
	t.Helper()
	b, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestRewriteSaysWhatWasCut(t *testing.T) {
	e := &Event{Process: &Process{Comm: "fifteen-letters", Exe: strings.Repeat("x", 2*maxPath)}, Target: &Target{Asked: "short", Truncated: true},
		Blocker: "/usr/bin/bash", Detail: strings.Repeat("é", maxText), Data: map[string]any{"argv": []any{"abc" + Cut, "abc"}}}
	e = e.bounded(maxPath)
	cuts := map[string]bool{}
	e.Rewrite(func(s string, cut bool) string { cuts[s[:min(len(s), 3)]] = cut; return s })
	for text, want := range map[string]bool{"fif": true, "xxx": true, "sho": true, "/us": false, "éé"[:3]: true} {
		if cuts[text] != want {
			t.Errorf("%s: cut %v, want %v", text, cuts[text], want)
		}
	}
	if list := e.Argv(); len(list) != 2 || list[0] != "abc"+Cut {
		t.Errorf("got %q, want the mark of a cut to stay", list)
	}
}
