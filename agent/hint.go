package agent

import (
	"path"

	"github.com/sharness/sharness/event"
)

// hint says what to do next. The model's line is only for what a model would otherwise try again.
func (p *Policy) hint(v *verdict) *event.Hint {
	client := p.Client
	if client == "" {
		client = "sharness-bash"
	}
	switch v.door {
	case "exec-direct", "exec-workspace":
		model := "will not change on retry; run it with " + client + " -c"
		if v.blocker != v.path {
			return &event.Hint{Person: path.Base(v.path) + " is in the manifest, but what it starts with is not: add " + v.blocker, Model: model}
		}
		if v.door == "exec-workspace" {
			return &event.Hint{Person: "files that the agent can write are never executed by it; the bash-server runs them", Model: model}
		}
		return &event.Hint{Person: "sharness why, with its number: what would allow it, and whether that is wise", Model: model}
	case "exec-ldso", "exec-inject":
		return &event.Hint{Person: "only files of the manifest are mapped executable: libraries", Model: "will not change on retry; native modules from writable folders do not load here"}
	case "exec-memfd":
		return &event.Hint{Person: "memfd: true in the manifest lets it make one"}
	case "net-host", "net-udp", "net-mptcp":
		return &event.Hint{Person: "the manifest's connect lists what can be reached, through the relay", Model: "will not change on retry; there is no network but the listed endpoints"}
	case "sig", "pid1", "ptrace":
		return &event.Hint{Model: "will not change on retry; processes outside cannot be reached"}
	case "file-git":
		return &event.Hint{Person: "protected: change it outside of a session", Model: "will not change on retry; this name is read-only"}
	case "file-config", "file-secret", "file-meta", "exec-swap":
		if in(v.path, p.Workspace) && p.Workspace != "" {
			return &event.Hint{Person: "the agent itself may only read the workspace; its commands write, or workspace: {orchestrator: write}",
				Model: "will not change on retry; write it with " + client + " -c"}
		}
		return &event.Hint{Model: "will not change on retry; it is outside of what this session may use"}
	}
	return nil
}
