// Package probe is what passes between sharness-probe and whoever starts it: the bait that it is told of, and the results
// that it prints. The attempts themselves are in package attempt, which nothing but the probe contains.
package probe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Verdict is how an attempt ended.
type Verdict string

// The verdicts. Absent is as good as Closed: there is nothing behind the door. Impossible means that this host or this
// build cannot make the attempt at all. Error means that the attempt broke, which proves nothing.
const (
	Open       Verdict = "open"
	Closed     Verdict = "closed"
	Absent     Verdict = "absent"
	Impossible Verdict = "impossible"
	Error      Verdict = "error"
)

// Control is what an ordinary user without sharness must see when the attempt works as written.
type Control string

// Controls. Refused needs no sharness: the kernel refuses an ordinary user already, so that only a run by root would
// show it open. Varies depends on modules, sysctls or programs of the host. NoServer attempts need a running session.
const (
	Opens    Control = "opens"
	Refused  Control = "refused"
	Varies   Control = "varies"
	NoServer Control = "no-server"
)

// Result is one attempt as it is printed, one JSON object a line. Errno is empty when none decided.
type Result struct {
	ID      string    `json:"id"`
	Door    string    `json:"door"`
	What    string    `json:"what"`
	Control Control   `json:"control"`
	Verdict Verdict   `json:"verdict"`
	Errno   string    `json:"errno"`
	Detail  string    `json:"detail"`
	Start   time.Time `json:"start"`
	MS      float64   `json:"ms"`
}

// Finding is what a survey says that a domain may do, one JSON object a line.
type Finding struct {
	Kind   Kind   `json:"kind"`
	Name   string `json:"name"`
	Detail string `json:"detail,omitempty"`
}

// Kind is what a Finding is about.
type Kind string

// The kinds of findings.
const (
	Start Kind = "start" // files that may be executed
	Read  Kind = "read"
	Write Kind = "write"
	Reach Kind = "reach" // who listens where it could connect
	Env   Kind = "env"   // names alone
	Sees  Kind = "sees"
)

// PayloadStatus is how code that must not run exits: no errno and no shell uses it.
const PayloadStatus = 219

// StreamName is the socket of bait to which everyone may connect. An attempt on whatever can be found passes by that of
// others: it would arrive there as their attacker.
const StreamName = "sharness-bait.sock"

// Bait names what was planted outside of the domain, so that an attempt has something to reach. A zero field means
// that there is no such bait, and its attempts are impossible.
type Bait struct {
	Workspace string `json:"workspace"`
	State     string `json:"state"`

	Secret      string   `json:"secret"`       // file readable by its owner alone
	SecretWorld string   `json:"secret_world"` // file everyone may read, outside of what the manifest lists
	SecretValue string   `json:"secret_value"` // text that must not be found in the environment, in SecretEnv or elsewhere
	SecretEnv   []string `json:"secret_env"`   // names of variables set where sharness was started
	SocketEnv   []string `json:"socket_env"`   // variables set there that lead to somebody's daemon, each with its value
	Owned       string   `json:"owned"`        // expendable file of the probing user, outside of the workspace
	Unlisted    string   `json:"unlisted"`     // executable that the manifest does not list
	ReadOnly    []string `json:"read_only"`    // files of the probing user that the domain may only read

	TCP      uint16 `json:"tcp"`
	MPTCP    uint16 `json:"mptcp"`
	UDP      uint16 `json:"udp"` // answers every datagram
	Stream   string `json:"stream"`
	Datagram string `json:"datagram"`
	Abstract string `json:"abstract"` // name without the leading zero byte

	Segment int    `json:"segment"` // id of a System V shared memory segment that everyone may read, plus one
	Queue   string `json:"queue"`   // name of a POSIX message queue that everyone may read, without its slash

	Manifest string `json:"manifest"` // of the session

	Victims    []int  `json:"victims"` // pids in the host's namespace; they ignore SIGWINCH and let anyone trace them
	VictimSock string `json:"victim_sock"`

	HostPIDNS uint64 `json:"host_pid_ns"` // inode of the namespace where the bait lies
	HostNetNS uint64 `json:"host_net_ns"`

	PayloadSO      string `json:"payload_so"`      // shared object whose constructor exits with PayloadStatus
	PayloadProgram string `json:"payload_program"` // dynamic program that exits with PayloadStatus

	Unwatched bool `json:"unwatched"` // nobody takes away what is planted in the workspace

	LimitPids   int   `json:"limit_pids"`
	LimitMemory int64 `json:"limit_memory"` // bytes
	LimitTmp    int64 `json:"limit_tmp"`    // bytes
}

// ReadBait reads a bait file. Unknown keys are an error: a misspelt bait would silently attack nothing.
func ReadBait(path string) (Bait, error) {
	var b Bait
	raw, err := os.ReadFile(path)
	if err != nil {
		return b, fmt.Errorf("bait: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&b); err != nil {
		return b, fmt.Errorf("bait: %s: %w", path, err)
	}
	return b, nil
}
