// Package manifest holds the policy of one orchestrator: what it may start, map, read, write and reach.
//
// It is what was written, not what a host will do with it: the package makes no system call. Parse is strict (an
// unknown key, a wrong unit or a second document is an error with file:line:column) and Format is stable, so that
// two tools that agree on a manifest agree on its bytes.
package manifest

import "time"

// Version is the only document version this package reads.
const Version = 1

// Manifest is one document. The order of the fields is the order in the file.
type Manifest struct {
	Version int      `yaml:"version"`
	Name    string   `yaml:"name"`
	Command []string `yaml:"command"`           // argv as the user would type it; [0] is an absolute path
	Args    []string `yaml:"args,omitempty"`    // put between command[0] and the user's own arguments
	Profile string   `yaml:"profile,omitempty"` // the profile this manifest was made from; a label, never read at start

	Exec      []Exec   `yaml:"exec"`                // EXECUTE allowlist, ordered by path
	Libraries []File   `yaml:"libraries,omitempty"` // may be mapped executable, not executed
	Route     []string `yaml:"route,omitempty"`     // paths that appear in the view as the client
	Read      []string `yaml:"read,omitempty"`      // trees bound read-only and noexec in the orchestrator's view
	Memfd     bool     `yaml:"memfd,omitempty"`     // it may make memfds: opens exec-ldso by name
	Recvmsg   Recvmsg  `yaml:"recvmsg,omitempty"`   // deny: the orchestrator cannot receive a descriptor; what never calls it loses nothing

	State     *State     `yaml:"state,omitempty"`
	Workspace Workspace  `yaml:"workspace"`
	Connect   []Endpoint `yaml:"connect,omitempty"`
	Env       Env        `yaml:"env,omitempty"`
	Shell     string     `yaml:"shell,omitempty"` // shell field of the generated passwd entry; default /bin/sh
	Limits    Limits     `yaml:"limits,omitempty"`
	Sandbox   Sandbox    `yaml:"sandbox"`
	Session   Budget     `yaml:"session,omitempty"` // all commands of a session together
	Secrets   Secrets    `yaml:"secrets,omitempty"`
	Integrity []File     `yaml:"integrity,omitempty"` // files that must be as they were: checked at start, compared at exit
	Learned   *Learned   `yaml:"learned,omitempty"`
}

// Role says why an image may be executed.
type Role string

// The roles an entry of Exec may have.
const (
	RoleProgram     Role = "program"
	RoleScript      Role = "script"
	RoleInterpreter Role = "interpreter"
	RoleLoader      Role = "loader" // PT_INTERP of a program: needs EXECUTE for the program to start at all
)

// Recvmsg says whether the orchestrator may call recvmsg(2) and recvmmsg(2).
type Recvmsg string

// The default is to allow it: libraries use it where recvfrom would do.
const (
	RecvmsgAllow Recvmsg = "allow"
	RecvmsgDeny  Recvmsg = "deny"
)

// Exec is one image that may be executed. Path is absolute and resolved (no symlink in any component).
type Exec struct {
	Path   string `yaml:"path"`
	SHA256 string `yaml:"sha256"` // 64 lower-case hex digits
	Role   Role   `yaml:"role"`
}

// File is one file by path and content.
type File struct {
	Path   string `yaml:"path"`
	SHA256 string `yaml:"sha256"`
}

// State is the orchestrator's own folder; it is HOME inside.
type State struct {
	Path    string   `yaml:"path"`              // absolute, on the host and inside alike
	Seed    []Seed   `yaml:"seed,omitempty"`    // files and folders made before the first start
	Protect []string `yaml:"protect,omitempty"` // subpaths read-only in every view
	Diff    []string `yaml:"diff,omitempty"`    // subpaths whose change is shown at exit
}

// Seed is a file (or, with neither Content nor a name that is a file, a folder: Path ends in "/") made in the state
// folder when it does not exist.
type Seed struct {
	Path    string `yaml:"path"` // relative to the state folder
	Content string `yaml:"content,omitempty"`
}

// Access is what a view may do with the workspace.
type Access string

// Read is the mission's default; Write is for agents that edit in their own process.
const (
	AccessRead  Access = "read"
	AccessWrite Access = "write"
)

// Workspace is the folder that the agent works on.
type Workspace struct {
	Path         string   `yaml:"path,omitempty"` // "." is the folder sharness was started in
	Orchestrator Access   `yaml:"orchestrator,omitempty"`
	Protect      Protect  `yaml:"protect,omitempty"` // default, none, or a list beside the default
	ProtectExtra []string `yaml:"protect_extra,omitempty"`
}

// Protect chooses the set of protected names of the workspace.
type Protect string

// The two sets there are.
const (
	ProtectDefault Protect = "default"
	ProtectNone    Protect = "none"
)

// TLS says what the relay demands of a connection to an endpoint.
type TLS string

// TLSSNI demands a ClientHello whose server name is the endpoint's; TLSNone passes bytes.
const (
	TLSSNI  TLS = "sni"
	TLSNone TLS = "none"
)

// Endpoint is one upstream that the orchestrator may reach. Name is a DNS name, or a loopback address literal.
type Endpoint struct {
	Name string `yaml:"name"`
	Port uint16 `yaml:"port"`
	TLS  TLS    `yaml:"tls,omitempty"` // default sni; a loopback literal defaults to none
	For  string `yaml:"for,omitempty"` // a word for people: model, mcp …
}

// Env is the orchestrator's environment. Values may hold {{state}}, {{workspace}} and {{uid}}.
type Env struct {
	Pass []string          `yaml:"pass,omitempty"` // names taken over from the caller's environment
	Set  map[string]string `yaml:"set,omitempty"`
}

// Limits bound the orchestrator itself. Zero means the default (WithDefaults).
type Limits struct {
	Pids   int  `yaml:"pids,omitempty"`
	Memory Size `yaml:"memory,omitempty"`
	Tmp    Size `yaml:"tmp,omitempty"` // size of each private tmpfs
}

// Network is what a command may reach.
type Network string

// NetworkNone gives each command an empty network namespace of its own; NetworkSession one for all of a session.
const (
	NetworkNone    Network = "none"
	NetworkSession Network = "session"
)

// Sandbox bounds one command of the bash-server.
type Sandbox struct {
	Pids    int     `yaml:"pids,omitempty"`
	Memory  Size    `yaml:"memory,omitempty"`
	Timeout Timeout `yaml:"timeout,omitempty"`
	Output  Size    `yaml:"output,omitempty"`
	Tmp     Size    `yaml:"tmp,omitempty"` // size of the tmpfs that holds all private folders

	CPU       Percent `yaml:"cpu,omitempty"`        // time on processors, in percent of one; not written: as much as is free
	CPUWeight int     `yaml:"cpu_weight,omitempty"` // share against other commands when time is short: 1 to 10000, default 100
	IORead    Size    `yaml:"io_read,omitempty"`    // bytes a second from the workspace's device; not written: no bound
	IOWrite   Size    `yaml:"io_write,omitempty"`
	OpenFiles int     `yaml:"open_files,omitempty"` // of one process
	FileSize  Size    `yaml:"file_size,omitempty"`  // of one file; not written: no bound

	Background Background `yaml:"background,omitempty"`

	Network Network  `yaml:"network,omitempty"`
	Read    []string `yaml:"read,omitempty"`   // trees bound read-only in a command's view; default /usr and /opt
	Share   []string `yaml:"share,omitempty"`  // subpaths of the state visible (writable) to commands
	Hide    []string `yaml:"hide,omitempty"`   // subpaths below Share that are empty in a command's view
	Freeze  []string `yaml:"freeze,omitempty"` // subpaths of Share in which a file is read-only to later commands once it is made
	Env     Env      `yaml:"env,omitempty"`    // Pass: names (or NAME* prefixes) let through from the orchestrator; empty means all but Drop
	Drop    []string `yaml:"drop,omitempty"`   // names (or NAME* prefixes) never passed to a command
}

// Keep says which commands may run on without their client.
type Keep string

// The two policies. What a shell started with & ends with the shell's command in either.
const (
	KeepNone Keep = "none" // no command does
	KeepJobs Keep = "jobs" // those that were started as a job (sharness-bash --background)
)

// Background bounds the jobs: commands that run on without a client, and end with the session at the latest. The limits of a
// command are theirs too, but for the time.
type Background struct {
	Keep    Keep    `yaml:"keep,omitempty"`
	Jobs    int     `yaml:"jobs,omitempty"`    // at once
	Timeout Timeout `yaml:"timeout,omitempty"` // default none
	Log     Size    `yaml:"log,omitempty"`     // the end of a job's output that is kept
}

// Budget bounds all commands of a session together. What is not written has no bound, but for the processes.
type Budget struct {
	Pids      int     `yaml:"pids,omitempty"`
	Memory    Size    `yaml:"memory,omitempty"`
	CPU       Percent `yaml:"cpu,omitempty"`
	CPUWeight int     `yaml:"cpu_weight,omitempty"` // against other groups of the host
}

// Rules are those by which output is searched for tokens of a known shape.
type Rules string

// RulesDefault know a token by its issuer's own text, RulesAll also by a name such as "key" in front; RulesNone are none.
const (
	RulesDefault Rules = "default"
	RulesAll     Rules = "all"
	RulesNone    Rules = "none"
)

// Escapes is what happens to escape sequences that do more than colour text and move the cursor.
type Escapes string

// EscapesPass leaves them, EscapesNeutralise makes them visible text.
const (
	EscapesPass       Escapes = "pass"
	EscapesNeutralise Escapes = "neutralise"
)

// Binary is what happens to output with a NUL in it.
type Binary string

// BinaryPass leaves it, BinaryRefuse puts a note in the place of it.
const (
	BinaryPass   Binary = "pass"
	BinaryRefuse Binary = "refuse"
)

// Secrets names values that must not reach the orchestrator through a command's output, and says what else is done to
// that output.
type Secrets struct {
	Env   []string `yaml:"env,omitempty"`   // environment variables whose values are secret
	Rules Rules    `yaml:"rules,omitempty"` // for what looks like a secret

	Escapes Escapes `yaml:"escapes,omitempty"` // escape sequences in output
	Binary  Binary  `yaml:"binary,omitempty"`  // output that is no text
}

// Learned is the header of the runs this manifest was made from. Everything that varies from run to run stands here.
type Learned struct {
	Complete bool      `yaml:"complete"`
	At       time.Time `yaml:"at,omitempty"`
	Kernel   string    `yaml:"kernel,omitempty"`
	Sharness string    `yaml:"sharness,omitempty"`
	Runs     int       `yaml:"runs,omitempty"`

	Images  []LearnedImage  `yaml:"images,omitempty"`  // ordered by path
	Signals []LearnedSignal `yaml:"signals,omitempty"` // that the orchestrator's processes sent one another, ordered by name
	Peaks   *LearnedPeaks   `yaml:"peaks,omitempty"`
}

// LearnedImage counts how often the runs executed and mapped one file.
type LearnedImage struct {
	Path  string `yaml:"path"`
	Runs  int    `yaml:"runs,omitempty"` // in which it was seen
	Execs int    `yaml:"execs,omitempty"`
	Maps  int    `yaml:"maps,omitempty"`
}

// Percent is a share of one processor, written as a whole number and %: 150% is one and a half.
type Percent uint32

// LearnedSignal counts one signal.
type LearnedSignal struct {
	Name string `yaml:"name"` // SIGTERM, or a number
	Sent int    `yaml:"sent,omitempty"`
}

// LearnedPeaks are the most that was seen of what is limited: of any one command, each for itself, and of the orchestrator.
type LearnedPeaks struct {
	Command      LearnedUse `yaml:"command,omitempty"`
	Orchestrator LearnedUse `yaml:"orchestrator,omitempty"`
}

// LearnedUse is what was used at most. Zero is unknown.
type LearnedUse struct {
	Pids   int     `yaml:"pids,omitempty"`
	Memory Size    `yaml:"memory,omitempty"`
	CPU    Timeout `yaml:"cpu,omitempty"`
	Time   Timeout `yaml:"time,omitempty"`
}

// Size is a number of bytes, written as an integer with a unit: B, KiB, MiB, GiB, TiB.
type Size uint64

// Timeout is a duration as time.ParseDuration reads it, or the word "none" (Timeout(-1)); zero means the default.
type Timeout time.Duration

// TimeoutNone is the word "none".
const TimeoutNone Timeout = -1
