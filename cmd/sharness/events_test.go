package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sharness/sharness/event"
)

func writeLog(t *testing.T, path string, lines ...string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(strings.Join(lines, "")); err != nil {
		t.Fatal(err)
	}
}

func logLine(t *testing.T, typ event.Type, door, asked string) string {
	t.Helper()
	b, err := event.Encode(&event.Event{Schema: event.Schema, Time: time.Unix(1, 0).UTC(), Type: typ, Door: door, Target: &event.Target{Asked: asked}})
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}

func TestEventsShowsWhatWasAskedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	writeLog(t, path, logLine(t, event.ExecDenied, "exec-direct", "/bin/sh"), logLine(t, event.NetDenied, "net-host", "10.0.0.1:443"),
		`{"schema":1,"time":"2026-11-29T18:00:00Z","seq":1,"type":"exec.dreamt","door":"exec-direct","new":"key`+"\u202e"+`"}`+"\n")
	for name, c := range map[string]struct {
		args      []string
		has, lack string
		lines     int
	}{
		"all":       {nil, "/bin/sh", "\u202e", 3},
		"door":      {[]string{"--door", "net-host"}, "10.0.0.1:443", "/bin/sh", 1},
		"type":      {[]string{"--type", "exec.denied"}, "/bin/sh", "10.0.0.1", 1},
		"json":      {[]string{"--json"}, `"new":"key\u202e"`, "\u202e", 3},
		"json door": {[]string{"--json", "--door", "exec-direct"}, `"asked":"/bin/sh"`, "10.0.0.1", 2},
	} {
		out, code, err := execute(t, newEventsCmd(), append(c.args, path)...)
		if code != 0 {
			t.Errorf("%s: got %d, %v", name, code, err)
		}
		if !strings.Contains(out, c.has) || strings.Contains(out, c.lack) || strings.Count(out, "\n") != c.lines {
			t.Errorf("%s: want %q, not %q, %d lines in\n%s", name, c.has, c.lack, c.lines, out)
		}
	}
}

func TestEventsCountsWhatIsNoEvent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	writeLog(t, path, "\x1b[2Jjunk\n", `{"schema":2}`+"\n", strings.Repeat("x", 3*event.MaxBytes)+"\n", "\n",
		logLine(t, event.ExecDenied, "exec-direct", "/bin/sh"), `{"schema":1,"cut":`)
	out, code, err := execute(t, newEventsCmd(), path)
	if code != 1 || !strings.Contains(err.Error(), "schema 1: 3") || strings.Count(out, "\n") != 1 || strings.Contains(out, "\x1b") {
		t.Errorf("got %d, %v,\n%q", code, err, out)
	}
}

func TestEventsRefusesBadInput(t *testing.T) {
	for name, args := range map[string][]string{
		"door": {"--door", "exec-dircet", "/dev/null"}, "type": {"--type", "exec", "/dev/null"},
		"file": {"/nonexistent/log"}, "folder": {"/tmp"}, "two files": {"/dev/null", "/dev/null"},
	} {
		if out, code, err := execute(t, newEventsCmd(), args...); code != 126 || out != "" || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %d, %q, %v, want 126 and one line", name, code, out, err)
		}
	}
}

func TestFollowGoesOnThroughRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	writeLog(t, path, logLine(t, event.ExecDenied, "exec-direct", "/one"))
	ctx, stop := context.WithCancel(t.Context())
	read, write := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := showLog(ctx, path, true, eventFilter{all: true}, write)
		_ = write.Close()
		done <- err
	}()
	expect := func(want string) {
		t.Helper()
		var line strings.Builder
		for one := make([]byte, 1); ; {
			if _, err := read.Read(one); err != nil {
				t.Fatal(err)
			}
			if one[0] == '\n' {
				break
			}
			line.WriteByte(one[0])
		}
		if !strings.Contains(line.String(), want) {
			t.Fatalf("got %q, want %s", &line, want)
		}
	}
	expect("/one")
	two := logLine(t, event.ExecDenied, "exec-direct", "/two")
	writeLog(t, path, two[:20]) // half a line is no line yet
	writeLog(t, path, two[20:])
	expect("/two")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	writeLog(t, path+".1", logLine(t, event.ExecDenied, "exec-direct", "/late"))
	writeLog(t, path, logLine(t, event.ExecDenied, "exec-direct", "/three"))
	expect("/late")
	expect("/three")
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestTailStartsAgainAfterTruncation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	writeLog(t, path, "a first line\n", "half")
	log, err := openTail(path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.file.Close()
	for _, want := range []string{"a first line", ""} {
		if line, err := log.next(); string(line) != want || (err == io.EOF) != (want == "") {
			t.Fatalf("got %q, %v, want %q", line, err, want)
		}
	}
	if err := os.Truncate(path, 0); err != nil { // as logrotate's copytruncate does
		t.Fatal(err)
	}
	writeLog(t, path, "second\n")
	if err := log.rotate(); err != nil {
		t.Fatal(err)
	}
	if line, err := log.next(); string(line) != "second" || err != nil {
		t.Errorf("got %q, %v, want the line after the truncation", line, err)
	}
}

func TestEventsShowsTheLastSessionAndItsLayersInOneLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	of := func(session string, e event.Event) string {
		t.Helper()
		e.Schema, e.Session, e.Time = event.Schema, session, time.Unix(1, 0).UTC()
		b, err := event.Encode(&e)
		if err != nil {
			t.Fatal(err)
		}
		return string(b) + "\n"
	}
	writeLog(t, path,
		of("a-1", event.Event{Type: event.SessionStart}), of("a-1", event.Event{Type: event.ExecDenied, Target: &event.Target{Asked: "/old"}}),
		of("a-2", event.Event{Type: event.SessionStart}), of("a-2", event.Event{Type: event.LayerApplied, Layer: "landlock"}),
		of("a-2", event.Event{Type: event.LayerApplied, Layer: "view"}), of("a-1", event.Event{Type: event.SessionEnd}),
		of("a-2", event.Event{Type: event.NSDenied, Phase: "probe", Count: 2}), of("a-2", event.Event{Type: event.MemfdDenied, Phase: "probe"}),
		of("a-2", event.Event{Type: event.LayerOpen, Door: "net-tenant", Cause: "by design"}))
	for name, c := range map[string]struct {
		args  []string
		want  string
		lines int
	}{
		"last":   {nil, "layer.applied: 2: landlock view\n", 4},
		"probe":  {nil, " self-probe: 3 calls that had to be refused were refused (--all shows each)\n", 4},
		"all":    {[]string{"--all"}, "/old", 8},
		"each":   {[]string{"--all"}, "memfd.denied (probe)\n", 8},
		"json":   {[]string{"--json"}, `"layer":"view"`, 6},
		"design": {[]string{"--type", "layer.open"}, "[net-tenant] by design", 1},
	} {
		out, code, err := execute(t, newEventsCmd(), append(c.args, path)...)
		if code != 0 || !strings.Contains(out, c.want) || strings.Count(out, "\n") != c.lines {
			t.Errorf("%s: got %d, %v, want %q and %d lines in\n%s", name, code, err, c.want, c.lines, out)
		}
	}
}

func TestFollowBeginsAtTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	writeLog(t, path, logLine(t, event.ExecDenied, "exec-direct", "/before"))
	log, err := openTail(path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.file.Close()
	half := logLine(t, event.ExecDenied, "exec-direct", "/after")
	writeLog(t, path, half[:20])
	if err := log.toEnd(); err != nil {
		t.Fatal(err)
	}
	writeLog(t, path, half[20:])
	if line, err := log.next(); err != nil || string(line)+"\n" != half {
		t.Errorf("got %q, %v, want %q", line, err, half)
	}
}
