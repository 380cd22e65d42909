package attempt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

// Bait names what was planted outside of the domain, so that an attempt has something to reach. A zero field means
// that there is no such bait, and its attempts are impossible.
type Bait struct {
	Workspace string `json:"workspace"`
	State     string `json:"state"`

	Secret      string   `json:"secret"`       // file readable by its owner alone
	SecretWorld string   `json:"secret_world"` // file everyone may read, outside of what the manifest lists
	SecretValue string   `json:"secret_value"` // text that must not be found in the environment, in SecretEnv or elsewhere
	SecretEnv   []string `json:"secret_env"`   // names of variables set where sharness was started
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

	Victims    []int  `json:"victims"` // pids in the host's namespace; they ignore SIGWINCH and let anyone trace them
	VictimSock string `json:"victim_sock"`

	HostPIDNS uint64 `json:"host_pid_ns"` // inode of the namespace where the bait lies
	HostNetNS uint64 `json:"host_net_ns"`

	PayloadSO      string `json:"payload_so"`      // shared object whose constructor exits with PayloadStatus
	PayloadProgram string `json:"payload_program"` // dynamic program that exits with PayloadStatus

	LimitPids   int   `json:"limit_pids"`
	LimitMemory int64 `json:"limit_memory"` // bytes
	LimitTmp    int64 `json:"limit_tmp"`    // bytes
}

// PayloadStatus is how code that must not run exits: no errno and no shell uses it.
const PayloadStatus = 219

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
