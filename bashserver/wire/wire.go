// Package wire is the language between sharness-bash and sharness-bashd (stream frames) and between sharness-bashd and
// the supervisor (fixed records over a seqpacket socket). docs/protocol.md is its manual. Both tables are closed: an
// unknown type, a length over its cap or a frame out of order ends the connection.
package wire

// Version is sent in Hello; a server refuses any other.
const Version = 1

// HeaderBytes is the size of a frame header: type u8, three zero bytes, payload length u32 little-endian.
const HeaderBytes = 8

// Caps of one request. They bound what a hostile client can make the server hold.
const (
	MaxPayload = 128 << 10 // MAX_ARG_STRLEN of the kernel: no longer argument can be executed
	MaxRequest = 4 << 20   // sum of all payloads before Start
	MaxArgs    = 131072    // more than an exec takes with names of files
	MaxEnv     = 4096
	MaxPath    = 4095 // PATH_MAX without its NUL
	MaxError   = 4096
)

// FrameType is the type of a frame between client and server.
type FrameType uint8

// Client to server, in this order: Hello (with descriptors 0-2 as SCM_RIGHTS on its first byte), Execfn, at most one
// Exe, Cwd, Arg+, Env*, Start; after Start only Signal. Server to client: one Exit or Error, then the connection closes.
const (
	Hello  FrameType = 1 // payload: version u16
	Execfn FrameType = 2 // the path that was executed (AT_EXECFN)
	Cwd    FrameType = 3
	Arg    FrameType = 4 // one argument, argv[0] first
	EnvVar FrameType = 5 // one NAME=VALUE
	Start  FrameType = 6 // empty
	Signal FrameType = 7 // signal number u32
	Exe    FrameType = 8 // where /proc/self/exe points, links resolved; may be left out

	Exit  FrameType = 128 // kind u32 (0 status, 1 signal), value u32
	Error FrameType = 129 // exit status u32, then one line of text
)

// RecordType is the type of a record between bashd and supervisor.
type RecordType uint32

// Every record is RecordBytes long; descriptors travel beside it as SCM_RIGHTS.
const (
	// supervisor to bashd
	RecConn    RecordType = 1 // ID: connection; 1 fd: the accepted socket
	RecStarted RecordType = 2 // ID: connection; A: command number
	RecRefused RecordType = 3 // ID; A: Reason
	RecEnded   RecordType = 4 // ID; A: exit kind (0 status, 1 signal); B: value; C: limits hit (bits)
	RecHint    RecordType = 5 // ID; A: Hint to add to the command's stderr
	// bashd to supervisor
	RecStart  RecordType = 16 // ID; A: StartFlags; B: with FlagTerminal its size, rows | columns<<16; fds: request memfd, stdin, stdout, stderr (a pty has only the memfd)
	RecSignal RecordType = 17 // ID; A: signal number
	RecKill   RecordType = 18 // ID; A: Reason
	RecDone   RecordType = 19 // ID: the connection is closed, forget it
	RecTaken  RecordType = 20 // ID: the connection is here
)

// Record is one message. Its encoding is six little-endian u64: type, id, a, b, c, 0.
type Record struct {
	Type    RecordType
	ID      uint64
	A, B, C uint64
}

// RecordBytes is the encoded size of a Record.
const RecordBytes = 48

// StartFlags of RecStart.
const (
	FlagNoTimeout uint64 = 1 << 0 // a routed program that is not a shell call: it may serve as long as its client lives
	FlagJob       uint64 = 1 << 2 // it runs on when its client is gone
	FlagTerminal  uint64 = 1 << 1 // wants a pty; its master comes back with RecStarted as one descriptor
)

// Reason is why a command was refused or killed.
type Reason uint64

// Reasons.
const (
	ReasonNone     Reason = iota
	ReasonBusy            // too many commands at once
	ReasonInternal        // the supervisor could not build the sandbox
	ReasonCwd             // the working directory is outside the workspace
	ReasonClientGone
	ReasonOutputLimit
	ReasonTimeout
	ReasonShutdown
	ReasonStopped // the end of a job was asked for: it is told first
)

// Limits hit, bits of RecEnded.C.
const (
	LimitPids    uint64 = 1 << 0
	LimitMemory  uint64 = 1 << 1
	LimitTimeout uint64 = 1 << 2
	LimitOutput  uint64 = 1 << 3

	LimitCPU           uint64 = 1 << 4 // it had to wait for its share of the processors
	LimitTmp           uint64 = 1 << 5 // the private folders were full when it failed
	LimitFileSize      uint64 = 1 << 6
	LimitSessionPids   uint64 = 1 << 7 // the limits of all commands together
	LimitSessionMemory uint64 = 1 << 8
)

// Hint is what RecHint asks bashd to say on a command's stderr. The texts are bashd's own; an unknown hint is an error.
type Hint uint64

// Hints. 1 to 3 were the limits, which RecEnded says.
const (
	HintRepo Hint = 4 // a repository or protected name was made and moved aside
	HintGit  Hint = 5 // git tried to write the configuration of a protected repository
	HintLeft Hint = 6 // the command has ended, and with it what it had left running
)

// Command is what the request memfd holds: what the stage of a command executes after it has dropped everything.
type Command struct {
	Path string   // absolute path in the command's view
	Argv []string // at least one
	Env  []string
	Cwd  string // absolute
}
