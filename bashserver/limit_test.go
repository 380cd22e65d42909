package bashserver

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/event"
)

func TestOutputLimitKillsAndSaysSo(t *testing.T) {
	s := start(t, Config{OutputLimit: 100000}, inProcess)
	out, errs, ws := s.output("-c", "yes")
	if len(out) != 100000 || !strings.HasPrefix(errs, "sharness: the command was killed: it printed more than") ||
		ws.Signal() != syscall.SIGKILL {
		t.Errorf("%d bytes, %q, %v", len(out), errs, ws)
	}
	if r := s.reason(t); r != wire.ReasonOutputLimit {
		t.Errorf("killed for reason %d", r)
	}
	if out, errs, _ := s.output("-c", "head -c 100000 /dev/zero"); len(out) != 100000 || errs != "" {
		t.Errorf("just the limit: %d bytes, %q", len(out), errs)
	}
	if out, errs, _ := s.output("-c", "head -c 60000 /dev/zero; head -c 60000 /dev/zero >&2"); len(out) > 60000 || !strings.Contains(errs, "limit") {
		t.Errorf("both streams count: %d bytes", len(out))
	}
	want := []event.Type{event.CommandStart, event.LimitHit, event.CommandEnd}
	eventually(t, "events", func() bool { return len(s.eventTypes()) >= 3 })
	if got := s.eventTypes(); !reflect.DeepEqual(got[:3], want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

func TestMuchOutputNeedsLittleMemory(t *testing.T) {
	s := start(t, Config{OutputLimit: 1 << 30, Secrets: []Secret{{Name: "A", Value: "no such thing"}}}, ownProcess)
	s.output("-c", "true")
	before := peak(t, s.server.Process.Pid)
	null, err := os.OpenFile("/dev/null", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	begun := time.Now()
	cmd := s.command("-c", "head -c 64M /dev/zero")
	cmd.Stdout = null
	if _, errs, ws := s.finish(cmd); ws != 0 {
		t.Errorf("%q, %v", errs, ws)
	}
	took := time.Since(begun)
	if out, _, _ := s.output("--json", "-c", "head -c 64M /dev/zero"); len(out) > 7<<20 || !strings.Contains(out, `"truncated":true`) {
		t.Errorf("captured %d bytes", len(out))
	}
	after := peak(t, s.server.Process.Pid)
	t.Logf("64 MiB in %v; peak %d KiB before, %d KiB after", took, before, after)
	if after-before > 24<<10 {
		t.Errorf("peak memory grew from %d to %d KiB", before, after)
	}
}

// peak is the largest resident size of a process, in KiB.
func peak(t *testing.T, pid int) (kib int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	fmt.Sscan(rest, &kib)
	return kib
}

func TestJSONReportsHowTheCommandEnded(t *testing.T) {
	s := start(t, Config{Secrets: []Secret{{Name: "TOKEN", Value: "hunter22"}}}, inProcess)
	type report struct {
		ExitCode   int            `json:"exit_code"`
		Signal     int            `json:"signal"`
		Stdout     string         `json:"stdout"`
		Stderr     string         `json:"stderr"`
		Truncated  bool           `json:"truncated"`
		DurationMS int64          `json:"duration_ms"`
		LimitsHit  []string       `json:"limits_hit"`
		Denied     []string       `json:"denied"`
		Redacted   map[string]int `json:"redacted"`
		Redactions int            `json:"redactions"`
		Binary     bool           `json:"binary"`
	}
	for _, tc := range []struct {
		script string
		want   report
		status int // as a shell sees it
	}{
		{"echo a; echo b >&2; exit 3", report{ExitCode: 3, Stdout: "a\n", Stderr: "b\n"}, 3},
		{"kill -9 $$", report{ExitCode: 137, Signal: 9}, 137},
		{"echo hunter22; echo hunter22 >&2", report{Stdout: "[redacted:TOKEN]\n", Stderr: "[redacted:TOKEN]\n", Redactions: 2, Redacted: map[string]int{"TOKEN": 2}}, 0},
		{`printf 'a\xffb\0\033]52;c;eA==\a\u202e\u009b\U0001f600"\\'`, report{Binary: true, Stderr: "sharness: " + noteDamaged + "\n", Stdout: "a\ufffdb\x00^[]52;c;eA==\a\u202e^[[\U0001f600\"\\"}, 0},
	} {
		cmd := s.command("--json", "-c", tc.script)
		cmd.Env = append(cmd.Env, "LC_ALL=C.UTF-8")
		out, errs, ws := s.finish(cmd)
		var got report
		if err := json.Unmarshal([]byte(out), &got); err != nil || errs != "" || got.DurationMS < 0 {
			t.Errorf("%s: %q, %q: %v", tc.script, out, errs, err)
		}
		if strings.IndexFunc(strings.TrimSuffix(out, "\n"), func(r rune) bool { return r < ' ' || r == 0x9b || r == 0x202e }) >= 0 {
			t.Errorf("%s: control characters in %q", tc.script, out)
		}
		tc.want.DurationMS, tc.want.LimitsHit, tc.want.Denied = got.DurationMS, []string{}, []string{}
		status := ws.ExitStatus()
		if ws.Signaled() {
			status = 128 + int(ws.Signal())
		}
		if tc.want.Redacted == nil {
			tc.want.Redacted = map[string]int{}
		}
		if !reflect.DeepEqual(got, tc.want) || status != tc.status {
			t.Errorf("%s: got %+v with %v\nwant %+v", tc.script, got, ws, tc.want)
		}
	}
	if _, errs, ws := s.output("--json"); ws.ExitStatus() != 2 || !strings.Contains(errs, "usage") {
		t.Errorf("nothing to run: %q, %v", errs, ws)
	}
}

func TestSecretSplitOverTwoWritesIsRedacted(t *testing.T) {
	const secret = "ghp_0123456789"
	s := start(t, Config{Secrets: []Secret{{Name: "GH", Value: secret}}}, inProcess)
	for i := 1; i < len(secret); i++ {
		script := fmt.Sprintf("printf '%%s' %q; printf '%%s' %q >&2; sleep 0.02; printf '%%s' %q; printf '%%s' %q >&2",
			secret[:i], secret[:i], secret[i:], secret[i:])
		ok := func(out string) bool {
			// Fewer than four bytes are held back for redact.Patience, which may pass between the writes.
			return out == "[redacted:GH]" || i < 4 && out == secret[:i]+"[redacted:GH]"
		}
		if out, errs, _ := s.output("-c", script); !ok(out) || !ok(errs) {
			t.Errorf("split at %d: %q, %q", i, out, errs)
		}
	}
	eventually(t, "events", func() bool { return slices.Contains(s.eventTypes(), event.SecretRedacted) })
	s.output("-c", "true "+secret)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if b, _ := json.Marshal(e); strings.Contains(string(b), secret) {
			t.Errorf("the secret stands in an event: %s", b)
		}
		if e.Type == event.SecretRedacted && (e.Count != 2 || e.Data["name"] != "GH") {
			t.Errorf("event %+v", e)
		}
	}
}

// Whoever reads the log must learn of each secret, not of one and a count.
func TestRedactionsOfDifferentSecretsAreNoRepetitions(t *testing.T) {
	s := start(t, Config{Secrets: []Secret{{Name: "GH", Value: "ghp_0123456789"}, {Name: "NPM", Value: "npm_0123456789"}}}, inProcess)
	s.output("-c", "echo ghp_0123456789 npm_0123456789")
	eventually(t, "events", func() bool { return slices.Contains(s.eventTypes(), event.CommandEnd) })
	s.mu.Lock()
	defer s.mu.Unlock()
	f := event.NewFolder(event.FoldOptions{})
	var written []any
	for _, e := range s.events {
		if out := f.Add(&e, time.Now()); out != nil && out.Type == event.SecretRedacted {
			written = append(written, out.Data["name"])
		}
	}
	if !reflect.DeepEqual(written, []any{"GH", "NPM"}) {
		t.Errorf("written at once: %v, want both", written)
	}
}

func TestMoreCommandsThanAllowedAreRefused(t *testing.T) {
	s := start(t, Config{MaxCommands: 2}, inProcess)
	a, b := s.command("-c", "echo ready; read x"), s.command("-c", "echo ready; read x")
	inA, _ := a.StdinPipe()
	b.StdinPipe()
	s.begin(a)
	s.begin(b)
	if _, errs, ws := s.output("-c", "true"); ws.ExitStatus() != 2 || !strings.Contains(errs, "busy: 2 commands") {
		t.Errorf("third: %q, %v", errs, ws)
	}
	inA.Close()
	a.Wait()
	eventually(t, "a place", func() bool { _, _, ws := s.output("-c", "true"); return ws == 0 })
}

func TestSixtyFourCommandsRunAtOnce(t *testing.T) {
	s := start(t, Config{}, inProcess)
	results := make(chan string)
	for i := range 64 {
		cmd := s.command("-c", fmt.Sprintf("sleep 0.1; echo %d", i))
		go func() {
			out, err := cmd.CombinedOutput()
			results <- fmt.Sprintf("%s%v", out, err)
		}()
	}
	var got []string
	for range 64 {
		got = append(got, <-results)
	}
	for i := range 64 {
		if !slices.Contains(got, fmt.Sprintf("%d\n<nil>", i)) {
			t.Errorf("command %d is missing in %q", i, got)
		}
	}
}

func TestConfigThatCannotBeServedIsRefused(t *testing.T) {
	good := Config{WorkspaceRoot: "/w"}
	if err := good.complete(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]Config{
		"short secret":   {WorkspaceRoot: "/w", Secrets: []Secret{{Name: "A", Value: "abc"}}},
		"many secrets":   {WorkspaceRoot: "/w", Secrets: slices.Repeat([]Secret{{Name: "A", Value: "abcd"}}, 257)},
		"no workspace":   {},
		"relative route": {WorkspaceRoot: "/w", Routes: []string{"sh"}},
		"negative limit": {WorkspaceRoot: "/w", OutputLimit: -1},
	} {
		if err := c.complete(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
