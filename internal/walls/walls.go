// Package walls holds the table of which package may import which, and a test that fails when the source says
// otherwise.
//
// The rooms are walls of privilege as much as of order: the supervisor must not contain what parses an agent's bytes,
// the stage must not contain what decides, and C must not be linked into anything but the supervisor. What the table
// cannot see is a copy of code, or reach through a value.
package walls

// Room is one package, or with a trailing /... all packages below a folder.
type Room struct {
	Path string   // below the module's root
	Ours []string // what it may import of this module
	Pure bool     // nothing of the operating system: no os, net, syscall, x/sys
	C    bool     // may be built with cgo

	// Borrows limits an import to a few names: types that two rooms share, not the code of one.
	Borrows map[string][]string
}

// Rooms is the table. Imports run one way: cmd to agent, launcher and bashserver, from these to manifest and event.
// Packages below internal are leaves that any room may name when it says so.
var Rooms = []Room{
	{Path: "manifest", Pure: true},
	{Path: "event", Pure: true},
	{Path: "event/sink", Ours: []string{"event"}},

	{Path: "bpf", Ours: nil},
	{Path: "agent", Ours: []string{"bpf", "manifest", "event", "internal/confine"}},
	{Path: "agent/learn", Ours: []string{"manifest"}, Pure: true},
	{Path: "agent/learn/record", Ours: []string{"agent", "agent/learn"}},

	{Path: "bashserver/wire"},
	{Path: "bashserver/redact", Pure: true},
	{Path: "bashserver/redact/rules"},
	{Path: "bashserver", Ours: []string{"bashserver/redact", "bashserver/wire", "manifest", "event", "internal/confine", "internal/lean"}},

	{Path: "launcher", Ours: []string{"manifest", "event", "event/sink", "bashserver/wire", "bashserver", "launcher/filter",
		"launcher/host", "launcher/mountinfo", "launcher/pin", "launcher/protect", "launcher/relay", "launcher/resolve", "launcher/stage", "launcher/tty",
		"internal/confine", "internal/lean", "internal/sidedoor"},
		// What it hands to the bash-server. The supervisor must not contain the face itself.
		Borrows: map[string][]string{"bashserver": {"Config", "Env", "Secret", "MinSecret"}}},
	{Path: "launcher/filter", Ours: []string{"manifest"}, C: true},
	{Path: "launcher/mountinfo"},
	{Path: "launcher/host", Ours: []string{"launcher/mountinfo"}},
	{Path: "launcher/resolve", Ours: []string{"manifest", "launcher/host", "internal/sidedoor"}, Pure: true},
	{Path: "launcher/pin", Ours: []string{"manifest", "launcher/mountinfo"}},
	{Path: "launcher/protect", Ours: []string{"manifest", "event"}},
	{Path: "launcher/relay", Ours: []string{"manifest", "event", "internal/confine"}},
	{Path: "launcher/tty"},
	{Path: "launcher/stage", Ours: []string{"launcher/protect", "internal/confine"},
		// How a protected path is bound; which paths are protected is decided before, by the launcher.
		Borrows: map[string][]string{"launcher/protect": {"Attach", "Mount", "Kind"}}},

	{Path: "internal/confine"},
	{Path: "internal/kernels"},
	{Path: "internal/lean"},
	{Path: "internal/kerneltest"},
	{Path: "internal/sidedoor", Pure: true},
	{Path: "internal/sidedoor/probe"},
	{Path: "internal/sidedoor/attempt", Ours: []string{"internal/sidedoor", "internal/sidedoor/probe", "bashserver/wire"}},
	{Path: "internal/sidedoor/bait", Ours: []string{"internal/sidedoor/probe"}},
	{Path: "internal/prove", Ours: []string{"manifest", "event/sink", "launcher", "launcher/host", "launcher/pin", "launcher/resolve", "internal/sidedoor",
		"internal/sidedoor/bait", "internal/prove/report"},
		// It starts the half that reads, and sends it frames; it reads nothing itself.
		Borrows: map[string][]string{"internal/prove/report": {"Frames", "NewFrames", "Header", "Door", "Layer", "Run", "End", "Kind", "KindHeader", "KindBegin", "KindEnd",
			"KindLeft", "KindResults", "KindWords", "KindEvents", "Mode", "Control", "Session", "Sandbox", "Ablation", "Survey"}}},
	{Path: "internal/prove/report", Ours: []string{"event", "internal/sidedoor", "internal/sidedoor/probe"}},
	{Path: "internal/fakellm/..."},
	{Path: "internal/embedded"},
	{Path: "internal/agentstest"},
	{Path: "internal/bench", Ours: []string{"agent", "event", "bashserver/redact"}},
	{Path: "internal/sessiontest"},
	{Path: "internal/testrun"},
	{Path: "internal/walls"},

	{Path: "cmd/sharness", Ours: []string{"manifest", "event", "event/sink", "agent", "agent/learn", "launcher", "launcher/host", "launcher/pin",
		"launcher/resolve", "internal/sidedoor", "internal/embedded", "internal/prove", "internal/prove/report"}},
	{Path: "cmd/sharness-init", Ours: []string{"launcher/stage"}},
	{Path: "cmd/sharness-bashd", Ours: []string{"bashserver"}},
	{Path: "cmd/sharness-relay", Ours: []string{"launcher/relay", "internal/confine"}},
	{Path: "cmd/sharness-agent", Ours: []string{"agent", "agent/learn/record", "bashserver/redact", "event", "event/sink", "internal/confine"}},
	{Path: "cmd/sharness-watch", Ours: []string{"launcher/protect", "event", "event/sink", "internal/confine"}},
	{Path: "cmd/sharness-probe", Ours: []string{"internal/sidedoor", "internal/sidedoor/attempt", "internal/sidedoor/probe"}},
	{Path: "cmd/sharness-bash"},
}

// Static are the programs that must not contain C, whichever way it would come: they run as root in a new namespace, or
// parse what an agent wrote.
var Static = []string{"cmd/sharness-init", "cmd/sharness-bashd", "cmd/sharness-relay", "cmd/sharness-agent", "cmd/sharness-watch", "cmd/sharness-probe"}
