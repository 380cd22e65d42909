package main

import (
	"strings"
	"testing"
	"time"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/sidedoor"
)

func TestEveryDoorAndTypeHasAnAnswer(t *testing.T) {
	for _, d := range sidedoor.Doors() {
		e := &event.Event{Type: event.FileDenied, Door: d.ID, Target: &event.Target{Asked: "x"}}
		for _, a := range adviseOn(e, "/work") {
			if a.wise == "" || strings.Contains(a.wise, "belongs to no door") {
				t.Errorf("%s: got %+v, want an answer", d.ID, a)
			}
		}
	}
	for door := range answers {
		if _, known := sidedoor.ByID(door); !known {
			t.Errorf("an answer for %s, which is no door", door)
		}
	}
	for _, typ := range event.Types() {
		if a := adviseOn(&event.Event{Type: typ}, ""); len(a) == 0 || a[0].wise == "" {
			t.Errorf("%s: no answer", typ)
		}
	}
}

func TestAdviceGoesByTheTarget(t *testing.T) {
	for name, c := range map[string]struct {
		door, target, blocker string
		lines                 []string
	}{
		"shell":               {"exec-direct", "/usr/bin/bash", "", []string{`route: ["/usr/bin/bash"]`, `exec: [{path: "/usr/bin/bash", sha256: …, role: program}]`}},
		"blocker":             {"exec-direct", "/opt/tool", "/usr/bin/python3.11", []string{`route: ["/usr/bin/python3.11"]`, `exec: [{path: "/usr/bin/python3.11", sha256: …, role: program}]`}},
		"module":              {"exec-inject", "/opt/agent/a.node", "", []string{`libraries: [{path: "/opt/agent/a.node", sha256: …}]`}},
		"module of workspace": {"exec-inject", "/work/a.so", "", []string{""}},
		"host":                {"net-host", "tcp 192.0.2.1:8443", "", []string{"connect: [{name: HOST, port: 8443, tls: sni}]"}},
		"edit":                {"file-config", "/work/a.go", "", []string{"workspace: {orchestrator: write}"}},
		"beside it":           {"file-config", "/workshop/a.go", "", []string{""}},
		"read":                {"file-secret", "/etc/thing/a", "", []string{`read: ["/etc/thing"]`}},
		"shadow":              {"file-secret", "/shadow", "", []string{""}},
		"name that is YAML":   {"exec-direct", "/opt/a\"], b: [\n", "", []string{`route: ["/opt/a\"], b: [\n"]`, `exec: [{path: "/opt/a\"], b: [\n", sha256: …, role: program}]`}},
	} {
		e := &event.Event{Type: event.ExecDenied, Door: c.door, Target: &event.Target{Asked: c.target, Resolved: c.target}, Blocker: c.blocker}
		got := adviseOn(e, "/work")
		if len(got) != len(c.lines) {
			t.Errorf("%s: got %+v, want %d", name, got, len(c.lines))
			continue
		}
		for i, a := range got {
			if a.line != c.lines[i] {
				t.Errorf("%s: got %s, want %s", name, a.line, c.lines[i])
			}
		}
	}
}

// What a program has a filter of its own refuse, or asks for by a name that means nothing, is no reason to allow anything.
func TestWhyAdvisesNothingThatAProgramMadeUp(t *testing.T) {
	e := &event.Event{Type: event.ExecDenied, Door: "exec-direct", Errno: "EPERM", Cause: "unknown", Target: &event.Target{Resolved: "/usr/bin/python3"}}
	if a := adviseOn(e, "/work"); len(a) != 1 || a[0].line != "" {
		t.Errorf("got %+v, want no line of the manifest", a)
	}
	e.Errno, e.Cause, e.Target.Resolved = "EACCES", "view", "/usr/bin/there-is-none"
	for _, a := range adviseOn(e, "/work") {
		if !strings.HasPrefix(a.wise, "no: this host has no such file") {
			t.Errorf("%s: wise? %s", a.line, a.wise)
		}
	}
}

func TestWhyShowsNothingThatATerminalObeys(t *testing.T) {
	const bad = "x\x1b[2J\n\u202e"
	e := &event.Event{Schema: 1, Time: time.Unix(1, 0), Seq: 7, Type: event.ExecDenied, Door: "exec-direct", Cause: bad, CauseSource: bad, Syscall: bad,
		Process: &event.Process{PID: 1, Comm: bad, Exe: bad}, Ancestors: []string{bad}, Blocker: bad, Layer: bad, Detail: bad,
		Target: &event.Target{Asked: bad, Resolved: bad, Source: bad}, Hint: &event.Hint{Person: bad, Model: bad}}
	s := &told{event: e, start: &event.Event{Data: map[string]any{"manifest": bad, "workspace": bad}}, layers: []string{bad}}
	for _, door := range []string{"exec-direct", "exec-inject", "file-secret", "net-host", bad} {
		e.Door = door
		got := s.explain()
		if strings.ContainsAny(got, "\x1b\u202e") {
			t.Errorf("%s: got %q", door, got)
		}
		if strings.Contains(got, `\\x1b`) {
			t.Errorf("%s: escaped twice: %s", door, got)
		}
		for line := range strings.Lines(got) {
			if strings.HasPrefix(line, "x") {
				t.Errorf("%s: a line of the name's own in %q", door, got)
			}
		}
	}
}

func TestWhyNamesTheManifestOfTheSessionAndNoOther(t *testing.T) {
	for file, want := range map[string]string{"": "bot", "/etc/sharness/bot.yaml": "bot", "/etc/sharness/other.yaml": "/etc/sharness/other.yaml", "/srv/bot.yaml": "/srv/bot.yaml"} {
		s := &told{start: &event.Event{Data: map[string]any{"manifest": "bot", "manifest_file": file}}}
		if got := s.manifest(); got != want {
			t.Errorf("%q: got %s, want %s", file, got, want)
		}
		if got := s.manifestFile(); got != manifestFile(want) {
			t.Errorf("%q: got the file %s, want %s", file, got, manifestFile(want))
		}
	}
}

func TestWhyTellsADoorThatIsOpenByDesignFromAGap(t *testing.T) {
	for cause, want := range map[string]string{"by design": "no layer of any session", "manifest": "memfd: true", "--allow-open": "no layer closes it on this host", "": "this layer does not hold here"} {
		if a := adviseOn(&event.Event{Type: event.LayerOpen, Door: "net-tenant", Cause: cause}, ""); len(a) != 1 || !strings.Contains(a[0].wise, want) {
			t.Errorf("%q: got %+v, want %q", cause, a, want)
		}
	}
}

func TestWhyNamesTheKeyOfALimit(t *testing.T) {
	for key, want := range map[string]string{
		"sandbox.pids": "sandbox: {pids: …}", "sandbox.background.timeout": "sandbox: {background: {timeout: …}}",
		"session.memory": "session: {memory: …}", "limits.pids": "limits: {pids: …}", "secrets.rules": "", "limits.\x1b": "", "": "",
	} {
		a := adviseOn(&event.Event{Type: event.LimitHit, Data: map[string]any{"key": key}}, "")
		if len(a) != 1 || a[0].line != want || a[0].wise == "" {
			t.Errorf("%q: got %+v, want %q", key, a, want)
		}
	}
}
