package bashserver

import (
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharness/sharness/bashserver/redact"
	"github.com/sharness/sharness/event"
)

// token is made up, and put together here so that no scanner takes the source for a leak.
func token() string { return "gl" + "pat-" + strings.Repeat("a1B2c", 4) }

func TestTokenOfAKnownShapeIsRedactedAndCountedByRule(t *testing.T) {
	s := start(t, Config{Secrets: []Secret{{Name: "TOKEN", Value: "hunter22"}}}, inProcess)
	out, errs, _ := s.output("--json", "-c", "echo is $0 | base64; echo $0; echo $0 hunter22 >&2", token())
	var got struct {
		Stdout, Stderr string
		Redacted       map[string]int
		Redactions     int
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || errs != "" {
		t.Fatalf("%q, %q: %v", out, errs, err)
	}
	if strings.Contains(out, token()) || !strings.HasSuffix(got.Stdout, "\n[redacted:gitlab-pat]\n") || got.Stderr != "[redacted:gitlab-pat] [redacted:TOKEN]\n" ||
		got.Redactions != 3 || got.Redacted["gitlab-pat"] != 2 || got.Redacted["TOKEN"] != 1 {
		t.Errorf("%s", out)
	}
	eventually(t, "events", func() bool { return slices.Contains(s.eventTypes(), event.CommandEnd) })
	s.mu.Lock()
	defer s.mu.Unlock()
	by := map[any]any{}
	for _, e := range s.events {
		if b, _ := json.Marshal(e); strings.Contains(string(b), token()) || strings.Contains(string(b), "hunter22") {
			t.Errorf("the secret stands in an event: %s", b)
		}
		if e.Type == event.SecretRedacted {
			by[e.Data["name"]] = e.Data["by"]
		}
	}
	if len(by) != 2 || by["TOKEN"] != "value" || by["gitlab-pat"] != "rule" {
		t.Errorf("events name %v", by)
	}
}

func TestRulesCanBeSwitchedOff(t *testing.T) {
	s := start(t, Config{Rules: string(redact.RulesNone)}, inProcess)
	if out, _, _ := s.output("-c", "echo $0", token()); out != token()+"\n" {
		t.Errorf("%q", out)
	}
}

// A token without anything behind it is decided when time is up, not when the next byte comes.
func TestTokenAtTheEndOfAPromptIsRedactedInTime(t *testing.T) {
	s := start(t, Config{Secrets: []Secret{{Name: "TOKEN", Value: "hunter22"}}}, inProcess)
	cmd := s.command("-c", "printf 'a prompt that ends in hun'; read x; printf %s $0; read x; echo; read x", token())
	in, _ := cmd.StdinPipe()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	for _, want := range []string{"a prompt that ends in hun", "[redacted:gitlab-pat]", "\n"} {
		got := make([]byte, len(want))
		r.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
			t.Errorf("while the command waits: %q, %v, want %q", got, err, want)
		}
		io.WriteString(in, "\n")
	}
	cmd.Wait()
}

// Both streams are one when the client's descriptors are one file.
func TestSecretSplitOverBothStreamsIsRedactedWhereTheyAreOne(t *testing.T) {
	s := start(t, Config{Secrets: []Secret{{Name: "TOKEN", Value: "hunter22"}}}, inProcess)
	out, err := s.command("-c", "printf hun; printf ter22 >&2; printf ' hunt'; printf er22 >&2").CombinedOutput()
	if err != nil || string(out) != "[redacted:TOKEN] [redacted:TOKEN]" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestEscapesAndBinaryAreTreatedAsTheManifestSays(t *testing.T) {
	const escape, binary = `printf 'x\033]52;c;eA==\a\033[31m\n'`, `printf 'a\0b'; echo more`
	s := start(t, Config{Secrets: []Secret{{Name: "TOKEN", Value: "hunter22"}}}, inProcess)
	if out, errs, _ := s.output("-c", escape); out != "x\x1b]52;c;eA==\a\x1b[31m\n" || errs != "" {
		t.Errorf("passed: %q, %q", out, errs)
	}
	if out, errs, _ := s.output("-c", binary); out != "a\x00bmore\n" || errs != "" {
		t.Errorf("passed: %q, %q", out, errs)
	}
	if out, errs, _ := s.output("-c", binary+" hunter22"); out != "a\x00bmore [redacted:TOKEN]\n" || errs != "sharness: "+noteDamaged+"\n" {
		t.Errorf("damaged: %q, %q", out, errs)
	}
	s = start(t, Config{Neutralise: true, RefuseBinary: true}, inProcess)
	if out, errs, _ := s.output("-c", escape); out != "x^[]52;c;eA==\a\x1b[31m\n" || errs != "" {
		t.Errorf("neutralised: %q, %q", out, errs)
	}
	if out, errs, _ := s.output("-c", binary); out != "a"+redact.Refused || errs != "sharness: "+noteRefused+"\n" {
		t.Errorf("refused: %q, %q", out, errs)
	}
}
