// Package event is the one schema of everything sharness reports, and the sinks it is written to.
//
// Events are JSON objects, one a line, schema 1, additive only. Producers fill an Event and hand it to a Sender; the
// process that holds the sinks gives it its sequence number. No producer with privilege puts bytes of the domain into
// an event.
package event

import "time"

// Schema is the version written into every event.
const Schema = 1

// MaxBytes bounds one encoded event on the socket between producer and sink.
const MaxBytes = 32 << 10

// Type names what happened.
type Type string

// The types of schema 1.
const (
	ExecDenied       Type = "exec.denied"
	ExecRouted       Type = "exec.routed"
	SignalDenied     Type = "signal.denied"
	PtraceDenied     Type = "ptrace.denied"
	NetDenied        Type = "net.denied"
	NetFailed        Type = "net.failed" // allowed, and did not come about: no denial
	MemfdDenied      Type = "memfd.denied"
	NSDenied         Type = "ns.denied"
	SyscallDenied    Type = "syscall.denied"
	FileDenied       Type = "file.denied"
	RepoCreated      Type = "repo.created"
	CommandStart     Type = "command.start"
	CommandEnd       Type = "command.end"
	LimitHit         Type = "limit.hit"
	SecretRedacted   Type = "secret.redacted"
	LayerOpen        Type = "layer.open"
	LayerApplied     Type = "layer.applied"
	StartRefused     Type = "start.refused"
	FileQuarantined  Type = "file.quarantined"
	IntegrityChanged Type = "integrity.changed"
	SessionStart     Type = "session.start"
	SessionEnd       Type = "session.end"
	EventsLost       Type = "events.lost"
	Heartbeat        Type = "heartbeat"
)

// LossPause is how long a producer waits between two reports of what it could not hand over.
const LossPause = time.Second

// Event is one line. Fields that do not apply are left out.
type Event struct {
	Schema      int            `json:"schema"`
	Time        time.Time      `json:"time"`
	Session     string         `json:"session,omitempty"`
	Seq         uint64         `json:"seq"`
	Type        Type           `json:"type"`
	Door        string         `json:"door,omitempty"`
	Errno       string         `json:"errno,omitempty"`
	Syscall     string         `json:"syscall,omitempty"`
	Process     *Process       `json:"process,omitempty"`
	Ancestors   []string       `json:"ancestors,omitempty"`
	Target      *Target        `json:"target,omitempty"`
	Cause       string         `json:"cause,omitempty"`
	CauseSource string         `json:"cause_source,omitempty"`
	Blocker     string         `json:"blocker,omitempty"`
	Layer       string         `json:"layer,omitempty"`
	Command     *Command       `json:"command,omitempty"`
	Count       uint64         `json:"count,omitempty"`
	Phase       string         `json:"phase,omitempty"`
	Detail      string         `json:"detail,omitempty"` // one sentence for a person
	Hint        *Hint          `json:"hint,omitempty"`
	Data        map[string]any `json:"data,omitempty"`
}

// Process identifies a process by pid and start time.
type Process struct {
	PID     int    `json:"pid"`
	TID     int    `json:"tid,omitempty"`
	NSPID   int    `json:"ns_pid,omitempty"`
	StartNS uint64 `json:"start_ns,omitempty"`
	UID     uint32 `json:"uid"`
	Comm    string `json:"comm,omitempty"`
	Exe     string `json:"exe,omitempty"`
}

// Target is what was asked for.
type Target struct {
	Asked     string `json:"asked,omitempty"`
	Resolved  string `json:"resolved,omitempty"`
	Old       string `json:"old,omitempty"` // of a rename or link whose new name the others are
	Source    string `json:"source,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
}

// Argv is what a refused exec was called with, where Data has it.
func (e *Event) Argv() []string {
	switch list := e.Data["argv"].(type) {
	case []string:
		return list
	case []any: // as JSON makes it
		var out []string
		for _, v := range list {
			if s, ok := v.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}

// Command is a command of the bash-server.
type Command struct {
	ID         uint64   `json:"id"`
	ExitCode   *int     `json:"exit_code,omitempty"`
	Signal     int      `json:"signal,omitempty"`
	DurationMS int64    `json:"duration_ms,omitempty"`
	LimitsHit  []string `json:"limits_hit,omitempty"`
	Redactions uint64   `json:"redactions,omitempty"`
}

// Hint says what to do next, once for a person and once for the model that reads it.
type Hint struct {
	Person string `json:"person,omitempty"`
	Model  string `json:"model,omitempty"`
}
