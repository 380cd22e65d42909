//go:build agents

package agentstest

import (
	"strings"
	"testing"

	"github.com/sharness/sharness/internal/fakellm"
)

// geminiRun names its model, so that gemini asks no other which one to take.
func geminiRun(t *testing.T, script fakellm.Script) (*run, []string) {
	r := newRun(t, "gemini", script, nil)
	r.env = []string{"GEMINI_API_KEY=" + secret, "GOOGLE_GEMINI_BASE_URL=" + r.model.URL, "GEMINI_CLI_TRUST_WORKSPACE=true"}
	return r, []string{"-m", "gemini-2.5-flash", "--approval-mode", "yolo", "-p", "go"}
}

// geminiShell runs a command. gemini refuses $(…) by itself.
func geminiShell(command string) fakellm.Turn {
	return one("run_shell_command", input{"command": command, "description": "a command"})
}

func geminiScript() fakellm.Script {
	return fakellm.Script{Turns: []fakellm.Turn{
		0: geminiShell("printf 'uid '; awk 'NR==1{print $2}' /proc/self/uid_map; exit 3"),
		1: one("write_file", input{"file_path": "{{WS}}/new.txt", "content": "hello\n"}),
		2: one("grep_search", input{"pattern": "alp."}),
		3: one("glob", input{"pattern": "*.txt"}),
		4: one("read_file", input{"file_path": "{{WS}}/a.txt"}),
		5: geminiShell("git status --short; mkdir sub; echo made > sub/by-command.txt; printenv GEMINI_API_KEY && echo leaked; echo x >> .git/config"),
	}}
}

func (r *run) wantGemini() {
	r.t.Helper()
	if r.exit != 0 || !strings.Contains(r.stdout, "done") {
		r.t.Errorf("exit %d with %q, want 0 with the model's last word", r.exit, r.stdout)
	}
	r.wantCommandUID(0, 0)
	r.want(2, 0, "alpha")
	r.want(3, 0, "new.txt")
	r.want(4, 0, "alpha")
	r.want(5, 0, "?? new.txt", "Read-only file system")
	r.refuse(5, 0, "leaked", "bgpids")
	r.wantFile("new.txt", "hello\n")
	r.wantFile("sub/by-command.txt", "made\n")
	r.wantNoSecret()
}

func TestGeminiWorksInItsDomain(t *testing.T) {
	r, args := geminiRun(t, geminiScript())
	r.start(args...)
	// The module that makes terminals is no part of what node needs to start: without it gemini uses pipes. learn finds it.
	r.wantGemini()
}

func TestGeminiLearnedIsEnforcedWithoutADenial(t *testing.T) {
	r := learned(t, func() (*run, []string) { return geminiRun(t, geminiScript()) })
	r.wantGemini()
}
