//go:build agents

package agentstest

import (
	"fmt"
	"testing"

	"github.com/sharness/sharness/internal/fakellm"
)

func shell(command string) fakellm.Turn { return one("exec_command", input{"cmd": command}) }

func patch(text string) fakellm.Turn {
	return fakellm.Turn{Calls: []fakellm.Call{{Name: "apply_patch", Raw: "*** Begin Patch\n" + text + "*** End Patch\n"}}}
}

// codexRun: only a model that codex knows is offered apply_patch.
func codexRun(t *testing.T, script fakellm.Script, files map[string]string) (*run, []string) {
	r := newRun(t, "codex", script, files)
	r.env = []string{"OPENAI_API_KEY=" + secret}
	return r, []string{
		"exec", "-m", "gpt-5.5", "-c", "model_provider=fake",
		"-c", fmt.Sprintf(`model_providers.fake={name="fake",base_url="%s/v1",wire_api="responses",env_key="OPENAI_API_KEY"}`, r.model.URL),
	}
}

func TestCodexWorksInItsDomain(t *testing.T) {
	r, args := codexRun(t, fakellm.Script{Turns: []fakellm.Turn{
		0: shell("echo uid " + kernelUID + "; exit 3"),
		1: shell("cat <<X\nsum $((40+2))\nX\n"),
		2: patch("*** Update File: a.txt\n@@\n-alpha\n+beta\n*** Add File: new.txt\n+hello\n"),
		3: shell("cat a.txt new.txt; git status --short; mkdir sub; echo made > sub/by-command.txt"),
		4: one("exec_command", input{"cmd": "tty; stty size; echo uid " + kernelUID, "tty": true}),
		5: {Calls: []fakellm.Call{{Name: "whoami", Namespace: "mcp__who"}}},
		6: one("exec_command", input{"cmd": "sleep 1; pwd", "workdir": "{{WS}}/sub", "yield_time_ms": 5000}),
		7: shell("printenv OPENAI_API_KEY CODEX_HOME | grep . && echo leaked; ls {{WS}}/../state; echo x >> .git/config"),
	}}, map[string]string{"server.js": mcpServer})
	r.start(append(args, "-c", `mcp_servers.who={command="node",args=["server.js"]}`, "go")...)

	if r.exit != 0 {
		t.Errorf("exit %d, want 0", r.exit)
	}
	r.want(0, 0, "exited with code 3")
	r.wantCommandUID(0, 0)
	r.want(1, 0, "sum 42")
	r.want(2, 0, "M a.txt", "A new.txt")
	r.want(3, 0, "beta\nhello", " M a.txt", "?? new.txt")
	r.want(4, 0, "/dev/pts/")
	r.wantCommandUID(4, 0)
	r.wantCommandUID(5, 0)
	r.want(6, 0, r.workspace+"/sub")
	r.want(7, 0, "No such file or directory", "Read-only file system")
	r.refuse(7, 0, "leaked")
	r.wantFile("a.txt", "beta\n")
	r.wantFile("new.txt", "hello\n")
	r.wantFile("sub/by-command.txt", "made\n")
	r.wantNoSecret()
	// Asked for the name of the system, which goes into the user agent; codex does without.
	r.wantNoDenials("lsb_release", "getconf")
}
