package event

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func sample() *Event {
	return &Event{
		Schema: Schema, Time: time.Date(2026, 11, 29, 18, 0, 0, 123456000, time.UTC), Type: ExecDenied, Door: "exec-direct",
		Errno: "EACCES", Syscall: "execve", Count: 1,
		Process: &Process{PID: 4242, TID: 4242, StartNS: 1, UID: 1900000000, Comm: "claude", Exe: "/usr/local/bin/claude"},
		Target:  &Target{Asked: "/bin/bash", Resolved: "/usr/bin/bash", Source: "user_memory"},
		Cause:   "landlock", CauseSource: "inferred",
		Hint: &Hint{Person: "a <person>", Model: "will not change on retry"},
	}
}

func TestEncodeAndDecodeAgree(t *testing.T) {
	line, err := Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(line)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Encode(got)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(line, again) {
		t.Errorf("got  %s\nwant %s", again, line)
	}
}

func TestEncodeNeverWritesWhatATerminalObeys(t *testing.T) {
	e := sample()
	e.Process.Comm = "a\x1b]0;x\x07\u202egpj.\u2066\xff\n"
	e.Target.Asked = "/w/\u009b31m\x7f\u200bname\U000e0001"
	e.Data = map[string]any{"argv\u202e": []any{"\x1b[2J", "ok"}}
	line, err := Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range string(line) {
		if !unicode.IsPrint(r) {
			t.Errorf("byte %d: got %U in %q", i, r, line)
		}
	}
	got, err := Decode(line)
	if err != nil {
		t.Fatal(err)
	}
	// Everything but the byte that is no UTF-8 comes back as it was.
	if want := "a\x1b]0;x\x07\u202egpj.\u2066\\xff\n"; got.Process.Comm != want {
		t.Errorf("comm: got %q, want %q", got.Process.Comm, want)
	}
	if got.Target.Asked != e.Target.Asked {
		t.Errorf("asked: got %q, want %q", got.Target.Asked, e.Target.Asked)
	}
}

func TestEncodeCutsInsteadOfLosing(t *testing.T) {
	e := sample()
	hostile := strings.Repeat("\x01", 1<<20)
	e.Target.Asked, e.Target.Resolved, e.Blocker, e.Process.Exe, e.Detail = hostile, hostile, hostile, hostile, hostile
	e.Ancestors = []string{}
	e.Data = map[string]any{}
	for range 200 {
		e.Ancestors = append(e.Ancestors, hostile)
		e.Data[strings.Repeat("\x02", len(e.Data)+1)] = []string{hostile, hostile}
	}
	line, err := Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	if len(line) > MaxBytes {
		t.Errorf("got %d bytes, want at most %d", len(line), MaxBytes)
	}
	got, err := Decode(line)
	if err != nil {
		t.Fatal(err)
	}
	if got.Type != ExecDenied || got.Process.PID != 4242 || !got.Target.Truncated {
		t.Errorf("got %s pid %d truncated %v, want what happened to be left", got.Type, got.Process.PID, got.Target.Truncated)
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := `{"schema":1,"time":"2026-11-29T18:00:00Z","seq":0,"type":"exec.denied"}`
	if _, err := Decode([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"nothing":         ``,
		"no object":       `[1]`,
		"unknown key":     `{"schema":1,"time":"2026-11-29T18:00:00Z","seq":0,"type":"exec.denied","extra":1}`,
		"unknown type":    `{"schema":1,"time":"2026-11-29T18:00:00Z","seq":0,"type":"exec.allowed"}`,
		"other schema":    `{"schema":2,"time":"2026-11-29T18:00:00Z","seq":0,"type":"exec.denied"}`,
		"two values":      good + good,
		"cut":             good[:len(good)-1],
		"wrong kind":      `{"schema":1,"time":"2026-11-29T18:00:00Z","seq":0,"type":"exec.denied","ancestors":"x"}`,
		"negative uid":    `{"schema":1,"time":"2026-11-29T18:00:00Z","seq":0,"type":"exec.denied","process":{"pid":1,"uid":-1}}`,
		"year 10000":      `{"schema":1,"time":"10000-11-29T18:00:00Z","seq":0,"type":"exec.denied"}`,
		"not UTF-8":       "{\"schema\":1,\"time\":\"2026-11-29T18:00:00Z\",\"seq\":0,\"type\":\"exec.denied\",\"door\":\"\xff\"}",
		"too deep":        `{"schema":1,"type":"exec.denied","data":{"a":` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `}}`,
		"over the bound":  `{"schema":1,"type":"exec.denied","detail":"` + strings.Repeat("a", MaxBytes) + `"}`,
		"newline outside": good + "\n{}",
	} {
		if e, err := Decode([]byte(text)); err == nil {
			t.Errorf("%s: got %+v, want an error", name, e)
		}
	}
}

func TestParseTakesWhatANewerVersionAdds(t *testing.T) {
	e, err := Parse([]byte(`{"schema":1,"time":"2026-11-29T18:00:00Z","seq":7,"type":"exec.dreamt","new":{"a":1}}`))
	if err != nil || e.Seq != 7 || e.Type != "exec.dreamt" {
		t.Errorf("got %+v, %v, want the event", e, err)
	}
}

func TestEscapeShowsWhatWouldHide(t *testing.T) {
	for in, want := range map[string]string{
		"plain text":   "plain text",
		"größe 日本":     "größe 日本",
		"a\nb\tc":      `a\nb\tc`,
		"\x1b[31m":     `\x1b[31m`,
		"\u009b":       `\u{9b}`,
		"x\u202egpj":   `x\u{202e}gpj`,
		"\u200b\ufeff": `\u{200b}\u{feff}`,
		"\u2028":       `\u{2028}`,
		"\u00a0":       `\u{a0}`, // looks like a space, is none
		"\xff\xfe":     `\xff\xfe`,
		`\x1b`:         `\\x1b`, // typed, not sent
		"\ufffd":       `\u{fffd}`,
		"\x00\x7f":     `\x00\x7f`,
	} {
		if got := Escape(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

func TestHumanIsOneLine(t *testing.T) {
	e := sample()
	e.Count = 3
	got := Human(e)
	for _, want := range []string{"exec.denied", "[exec-direct]", "claude[4242]", "/bin/bash = /usr/bin/bash", "EACCES", "by landlock", "×3", "a <person>"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
	e.Process.Comm, e.Detail, e.Ancestors = "x\ny\r", "\x1b[2J", []string{"\n"}
	if got := Human(e); strings.ContainsFunc(got, func(r rune) bool { return r < ' ' }) {
		t.Errorf("got %q, want no control characters", got)
	}
}

func FuzzDecode(f *testing.F) {
	line, err := Encode(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(line)
	f.Add([]byte(`{"schema":1,"time":"0000-01-01T00:00:00Z","type":"heartbeat","data":{"a":[{"b":1e308}],"\ud800":"\udc00"}}`))
	f.Add([]byte(`{"schema":1,"time":"2026-11-29T18:00:00+23:59","type":"heartbeat","command":{"id":1,"limits_hit":[null]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Decode(b)
		if err != nil {
			return
		}
		line, err := Encode(e)
		if err != nil {
			t.Fatalf("decoded but cannot be encoded: %v", err)
		}
		if len(line) > MaxBytes || bytes.ContainsRune(line, '\n') || !json.Valid(line) || !utf8.Valid(line) {
			t.Fatalf("got %q, want one line of JSON within the bound", line)
		}
		if _, err := Decode(line); err != nil {
			t.Fatalf("encoded but cannot be decoded: %v: %s", err, line)
		}
		for _, r := range Human(e) {
			if !unicode.IsPrint(r) {
				t.Fatalf("human: got %U", r)
			}
		}
	})
}
