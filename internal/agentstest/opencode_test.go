//go:build agents

package agentstest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sharness/sharness/internal/fakellm"
	"github.com/sharness/sharness/manifest"
)

// opencodeRun has a model of its own and an MCP server.
func opencodeRun(t *testing.T, script fakellm.Script, files map[string]string) *run {
	r := newRun(t, "opencode", script, files)
	r.env = []string{"ANTHROPIC_API_KEY=" + secret}
	r.edit = func(m *manifest.Manifest) {
		m.Env.Set["OPENCODE_DISABLE_MODELS_FETCH"] = "1"
		m.Env.Set["OPENCODE_CONFIG_CONTENT"] = fmt.Sprintf(`{"model":"fake/fake","small_model":"fake/fake",
			"provider":{"fake":{"npm":"@ai-sdk/openai-compatible","options":{"baseURL":"%s/v1","apiKey":"none"},"models":{"fake":{"tool_call":true}}}},
			"mcp":{"who":{"type":"local","command":["node","server.js"]}},"permission":{"edit":"allow","bash":"allow","external_directory":"allow"}}`, r.model.URL)
	}
	return r
}

func TestOpencodeWorksInItsDomain(t *testing.T) {
	command := func(text string) fakellm.Turn {
		return one("bash", input{"command": text, "description": "a command"})
	}
	r := opencodeRun(t, fakellm.Script{Turns: []fakellm.Turn{
		0: command("echo uid " + kernelUID + "; exit 3"),
		1: command("cat <<X\nsum $((40+2))\nX\n"),
		2: one("read", input{"filePath": "{{WS}}/a.txt"}),
		3: {Calls: []fakellm.Call{
			{Name: "edit", Input: input{"filePath": "{{WS}}/a.txt", "oldString": "alpha", "newString": "beta"}},
			{Name: "write", Input: input{"filePath": "{{WS}}/new.txt", "content": "hello\n"}},
		}},
		4: {Calls: []fakellm.Call{
			{Name: "grep", Input: input{"pattern": "bet.", "path": "{{WS}}"}},
			{Name: "glob", Input: input{"pattern": "*.txt", "path": "{{WS}}"}},
		}},
		5: one("who_whoami", nil),
		6: command("mkdir sub; echo made > sub/by-command.txt; git status --short"),
		7: command("printenv ANTHROPIC_API_KEY OPENCODE_PID | grep . && echo leaked; cat {{WS}}/../state/.config/opencode/opencode.json; echo x >> .git/config"),
	}}, map[string]string{"server.js": mcpServer})
	r.start("run", "go")

	if r.exit != 0 || !strings.Contains(r.stdout, "done") {
		t.Errorf("exit %d with %q, want 0 with the model's last word", r.exit, r.stdout)
	}
	r.want(0, 0, "uid 19001")
	r.want(1, 0, "sum 42")
	r.want(2, 0, "alpha")
	r.want(3, 0, "applied successfully")
	r.want(3, 1, "Wrote file")
	r.want(4, 0, "beta")
	r.want(4, 1, "new.txt")
	r.wantCommandUID(5, 0)
	r.want(6, 0, " M a.txt", "?? new.txt")
	r.want(7, 0, "No such file or directory", "Read-only file system")
	r.refuse(7, 0, "leaked")
	r.wantFile("a.txt", "beta\n")
	r.wantFile("new.txt", "hello\n")
	r.wantFile("sub/by-command.txt", "made\n")
	r.wantNoSecret()
	// pgrep is only asked for the children of a server that has ended.
	r.wantNoDenials("pgrep")
}
