//go:build agents

package agentstest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/fakellm"
	"github.com/sharness/sharness/manifest"
)

// learn runs an agent under learn and returns what it made the policy.
func learn(t *testing.T, begin func() (*run, []string)) (*run, *manifest.Manifest) {
	t.Helper()
	r, args := begin()
	file, m := r.manifest()
	r.session([]string{"learn", "-m", file, "--yes"}, m, args)
	if r.exit != 0 {
		t.Fatalf("learn: exit %d\n%s", r.exit, r.stderr)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := manifest.Parse(file, data)
	if err != nil {
		t.Fatal(err)
	}
	if got.Learned == nil || !got.Learned.Complete || got.Learned.Runs != 1 {
		t.Fatalf("learned: %+v, want one whole run", got.Learned)
	}
	return r, got
}

// learned runs an agent under learn and again, with what was learned, under enforce. Both have the same script, and each a
// workspace, a state and a model of its own.
func learned(t *testing.T, begin func() (*run, []string)) *run {
	t.Helper()
	_, got := learn(t, begin)
	// Another run of the same says the same.
	_, second := learn(t, begin)
	if !slices.Equal(got.Exec, second.Exec) || !slices.Equal(got.Libraries, second.Libraries) || !slices.Equal(got.Route, second.Route) {
		t.Errorf("learned\n%s\nand the second time\n%s", manifest.Format(got), manifest.Format(second))
	}
	again, args := begin()
	file := filepath.Join(again.base, "manifest.yaml")
	again.adapt(file, got)
	again.session([]string{"enforce", "-m", file}, got, args)
	if again.exit != 0 {
		t.Errorf("enforce: exit %d", again.exit)
	}
	// Nothing is denied, not even what an agent does well without: it was learned. io_uring, which runtimes probe for, no
	// manifest can allow.
	for _, d := range again.denials() {
		if !strings.HasPrefix(d, string(event.SyscallDenied)+" io_uring") {
			t.Errorf("denied: %s", d)
		}
	}
	return again
}

// denials are what was denied, in short.
func (r *run) denials() []string {
	r.t.Helper()
	data, err := os.ReadFile(r.eventFile())
	if err != nil {
		r.t.Fatal(err)
	}
	var all []string
	for line := range bytes.Lines(data) {
		e, err := event.Parse(line)
		if err != nil {
			r.t.Errorf("event log: %v in %.300s", err, line)
			continue
		}
		if !e.Type.Denial() || e.Phase == "probe" {
			continue
		}
		target := ""
		if e.Target != nil {
			target = e.Target.Asked
		}
		all = append(all, fmt.Sprintf("%s %s %s %s", e.Type, e.Syscall, e.Errno, target))
	}
	if len(data) == 0 {
		r.t.Error("the event log is empty; want at least the start and the end of the session")
	}
	return all
}

func TestClaudeLearnedIsEnforcedWithoutADenial(t *testing.T) {
	r := learned(t, func() (*run, []string) {
		return claudeRun(t, fakellm.Script{Turns: []fakellm.Turn{
				0: bash("echo uid " + kernelUID),
				1: one("Write", input{"file_path": "{{WS}}/new.txt", "content": "hello\n"}),
				2: {Calls: []fakellm.Call{{Name: "Grep", Input: input{"pattern": "alp.", "path": "{{WS}}", "output_mode": "content"}}, {Name: "Glob", Input: input{"pattern": "*.txt", "path": "{{WS}}"}}}},
				3: one("mcp__who__whoami", nil),
			}}, map[string]string{"server.js": mcpServer, "mcp.json": `{"mcpServers":{"who":{"command":"node","args":["server.js"]}}}`}),
			claudeArgs("--mcp-config", "mcp.json")
	})
	r.wantCommandUID(0, 0)
	r.want(2, 0, "alpha")
	r.want(2, 1, "new.txt")
	r.wantCommandUID(3, 0)
	r.wantFile("new.txt", "hello\n")
}

func TestCodexLearnedIsEnforcedWithoutADenial(t *testing.T) {
	r := learned(t, func() (*run, []string) {
		r, args := codexRun(t, fakellm.Script{Turns: []fakellm.Turn{
			0: shell("echo uid " + kernelUID),
			1: patch("*** Add File: new.txt\n+hello\n"),
		}}, nil)
		return r, append(args, "go")
	})
	r.wantCommandUID(0, 0)
	r.wantFile("new.txt", "hello\n")
}

func TestOpencodeLearnedIsEnforcedWithoutADenial(t *testing.T) {
	r := learned(t, func() (*run, []string) {
		return opencodeRun(t, fakellm.Script{Turns: []fakellm.Turn{
			0: one("bash", input{"command": "echo uid " + kernelUID, "description": "a command"}),
			1: one("grep", input{"pattern": "alp.", "path": "{{WS}}"}),
			2: one("write", input{"filePath": "{{WS}}/new.txt", "content": "hello\n"}),
		}}, map[string]string{"server.js": mcpServer}), []string{"run", "go"}
	})
	r.wantCommandUID(0, 0)
	r.want(1, 0, "a.txt")
	r.wantFile("new.txt", "hello\n")
}
