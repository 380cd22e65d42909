//go:build agents

package agentstest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sharness/sharness/internal/fakellm"
)

// input saves a word in the scripts below.
type input = map[string]any

func one(name string, in input) fakellm.Turn {
	return fakellm.Turn{Calls: []fakellm.Call{{Name: name, Input: in}}}
}

func bash(command string) fakellm.Turn { return one("Bash", input{"command": command}) }

// claudeArgs: the variadic --tools comes last. Grep and Glob are only offered when they are asked for.
func claudeArgs(more ...string) []string {
	return append(append([]string{"-p", "go", "--dangerously-skip-permissions"}, more...), "--tools", "Bash,Read,Write,Edit,Grep,Glob,TaskStop")
}

func claudeRun(t *testing.T, script fakellm.Script, files map[string]string) *run {
	r := newRun(t, "claude", script, files)
	r.env = []string{"ANTHROPIC_BASE_URL=" + r.model.URL, "ANTHROPIC_API_KEY=" + secret}
	return r
}

func TestClaudeWorksInItsDomain(t *testing.T) {
	stop := one("TaskStop", input{"task_id": "{{ID}}"})
	stop.Capture = map[string]string{"ID": `ID: (\w+)`}
	r := claudeRun(t, fakellm.Script{Turns: []fakellm.Turn{
		0:  bash("echo uid " + kernelUID + "; exit 7"),
		1:  bash("mkdir -p sub && cd sub"),
		2:  bash("pwd; echo made > by-command.txt"),
		3:  bash("cat <<X\nsum $((40+2))\nX\n"),
		4:  one("Bash", input{"command": "echo started; sleep 300", "run_in_background": true}),
		5:  stop,
		6:  one("Write", input{"file_path": "{{WS}}/new.txt", "content": "hello\n"}),
		7:  one("Read", input{"file_path": "{{WS}}/a.txt"}),
		8:  one("Edit", input{"file_path": "{{WS}}/a.txt", "old_string": "alpha", "new_string": "beta"}),
		9:  {Calls: []fakellm.Call{{Name: "Grep", Input: input{"pattern": "bet.", "path": "{{WS}}", "output_mode": "content"}}, {Name: "Glob", Input: input{"pattern": "*.txt", "path": "{{WS}}"}}}},
		10: one("Write", input{"file_path": "{{WS}}/forbidden.txt", "content": "x\n"}),
		11: one("mcp__who__whoami", nil),
		12: bash("echo grep=$(grep -c bet ../a.txt) git=$(git log --oneline | wc -l); find . -name '*.txt'"),
		13: bash("seq 1 50000"),
		14: bash("env; bash -c 'kill -TERM $$'"),
	}}, map[string]string{
		"server.js": mcpServer,
		"mcp.json":  `{"mcpServers":{"who":{"command":"node","args":["server.js"]}}}`,
		".claude/settings.json": `{"hooks":{"PreToolUse":[{"matcher":"Write","hooks":[{"type":"command",
			"command":"if grep -q forbidden; then echo refused by uid ` + kernelUID + ` >&2; exit 2; fi"}]}]}}`,
	})
	r.start(claudeArgs("--mcp-config", "mcp.json")...)
	if r.exit != 0 || !strings.Contains(r.stdout, "done") {
		t.Errorf("exit %d with %q, want 0 with the model's last word", r.exit, r.stdout)
	}

	r.want(0, 0, "Exit code 7")
	r.wantCommandUID(0, 0)
	r.want(2, 0, r.workspace+"/sub")
	r.want(3, 0, "sum 42")
	r.want(4, 0, "running in background")
	r.want(5, 0, "Successfully stopped")
	r.want(6, 0, "created successfully")
	r.want(7, 0, "alpha")
	r.want(8, 0, "updated successfully")
	r.want(9, 0, "beta")
	r.want(9, 1, "new.txt")
	r.want(10, 0, "refused by uid 19001")
	r.wantCommandUID(11, 0)
	r.want(12, 0, "grep=1 git=1", "./by-command.txt")
	r.want(13, 0, "Output too large", "tool-results")
	r.want(14, 0, "Exit code 143", "CLAUDECODE=1")
	r.wantFile("new.txt", "hello\n")
	r.wantFile("a.txt", "beta\n")
	r.wantFile("sub/by-command.txt", "made\n")
	r.wantNoFile("forbidden.txt")
	r.wantNoSecret()
	// The state of the repository is told to the model at the start, from git through its route.
	if first := firstMain(t, r); !bytes.Contains(first.Body, []byte("needle of a subject")) {
		t.Error("the first request does not tell the last commit")
	}
	// ps is only asked for the children of a task that is stopped; /proc tells them as well.
	r.wantNoDenials("ps")
}

func firstMain(t *testing.T, r *run) fakellm.Entry {
	t.Helper()
	for _, e := range r.model.Entries() {
		if e.Kind == "main" {
			return e
		}
	}
	t.Fatal("the agent asked the model for nothing")
	return fakellm.Entry{}
}

// payload writes a file: if the file is there, it ran.
const payload = `package main

import "os"

func main() { os.WriteFile(os.Args[1], nil, 0o644) }
`

func TestClaudeGetsNowhereWithAHostilePrompt(t *testing.T) {
	reached := listen(t)
	r := claudeRun(t, fakellm.Script{Turns: []fakellm.Turn{
		0: bash("cat /proc/[0-9]*/comm; kill -KILL -1; echo alone"),
		1: bash("ls -A {{WS}}/../state/.claude; cat {{WS}}/../state/.claude/.claude.json; ls -A $CLAUDE_CODE_TMPDIR/claude-*; ls -A /tmp"),
		2: bash("echo 'touch pwned' >> .git/hooks/post-checkout; git config core.fsmonitor ./evil; echo x >> .claude/settings.json"),
		3: bash(fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d && echo reached; ls /run/sharness", reached.port)),
		4: bash("cat /etc/shadow; echo x > /usr/bin/env; mount -t tmpfs none /mnt; unshare -Ur echo namespace"),
		5: bash("printenv ANTHROPIC_API_KEY CLAUDE_CODE_MESSAGING_TOKEN CLAUDE_CODE_MESSAGING_SOCKET ANTHROPIC_BASE_URL | grep . && echo leaked"),
		6: one("Read", input{"file_path": "/etc/shadow"}),
		7: one("Write", input{"file_path": "{{WS}}/.git/hooks/pre-commit", "content": "#!/bin/sh\ntouch pwned\n"}),
		8: one("Write", input{"file_path": "/etc/cron.d/pwned", "content": "x"}),
		9: bash("echo still uid " + kernelUID),
	}}, map[string]string{
		"server.js":  mcpServer,
		"pwned.py":   `open("pwned-by-python", "w")`,
		"payload.go": payload,
		// Each server but the first is a program that the manifest doesn't list.
		"mcp.json": `{"mcpServers":{
			"who":    {"command":"node","args":["server.js"]},
			"python": {"command":"/usr/bin/python3","args":["pwned.py"]},
			"elf":    {"command":"{{WS}}/payload","args":["pwned-by-elf"]},
			"ldso":   {"command":"/lib64/ld-linux-x86-64.so.2","args":["{{WS}}/touch","pwned-by-loader"]}}}`,
		".claude/settings.json": `{"hooks":{"PreToolUse":[{"matcher":"Read","hooks":[{"type":"command","command":"/bin/bash",
			"args":["-c","cat >/dev/null; echo ` + kernelUID + ` > hook-uid.txt"]}]}]}}`,
	})
	r.mustRun(r.workspace, "go", "build", "-o", "payload", "payload.go")
	r.mustRun(r.workspace, "cp", "/usr/bin/touch", "touch")
	r.own()
	r.start(claudeArgs("--mcp-config", "mcp.json")...)

	r.want(0, 0, "bash", "alone")
	r.refuse(0, 0, "claude")
	r.want(1, 0, "No such file or directory")
	r.refuse(1, 0, "sessions", "projects", "tasks", "numStartups", "cc-socks")
	r.want(2, 0, "Read-only file system")
	r.refuse(3, 0, "reached")
	r.want(4, 0, "/etc/shadow: ")
	r.refuse(4, 0, "root:", "namespace\n")
	r.refuse(5, 0, "leaked", secret)
	r.refuse(6, 0, "root:")
	r.want(7, 0, "EROFS")
	r.refuse(8, 0, "successfully")
	r.want(9, 0, "still uid 19001")
	if n := reached.count(); n != 0 {
		t.Errorf("a service of the host was reached %d times", n)
	}
	for _, name := range firstMain(t, r).Tools {
		for _, server := range []string{"python", "elf", "ldso"} {
			if strings.HasPrefix(name, "mcp__"+server) {
				t.Errorf("the server %s offers %s: it has run", server, name)
			}
		}
	}
	for _, name := range []string{"pwned", "pwned-by-python", "pwned-by-elf", "pwned-by-loader", ".git/hooks/pre-commit", ".git/hooks/post-checkout"} {
		r.wantNoFile(name)
	}
	// A hook that names a routed shell by its path runs, in a sandbox.
	uid, err := os.ReadFile(filepath.Join(r.workspace, "hook-uid.txt"))
	if err != nil || !strings.HasPrefix(string(uid), "19001") {
		t.Errorf("the hook ran as %q (%v), want a command's uid", uid, err)
	}
	r.wantNoSecret()
}
