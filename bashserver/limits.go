package bashserver

import (
	"fmt"

	"github.com/sharness/sharness/bashserver/wire"
)

// limit is one that a command may meet: its name in limits_hit, the manifest's key of it, and what a model can do about it.
type limit struct {
	bit  uint64
	name string
	key  string
	text string // %s is the value in the manifest
	jobs string // follows, where jobs help
	ends bool   // what met it was refused something or killed, not only slowed down
}

var limits = []limit{
	{wire.LimitPids, "pids", "sandbox.pids", "a process could not be started: the limit of %s processes of a command is reached; do less at once, such as make -j2", "", true},
	{wire.LimitMemory, "memory", "sandbox.memory", "a process was killed: the limit of %s of memory of a command is reached; work on less at once", "", true},
	{wire.LimitTimeout, "timeout", "sandbox.timeout", "the command was killed after %s, the limit on its time; split it up", ", or let the agent itself start it with sharness-bash --background", true},
	{wire.LimitOutput, "output", "sandbox.output", "the command was killed: it printed more than the limit of %s; write to a file and look at parts of it", "", true},
	{wire.LimitCPU, "cpu", "sandbox.cpu", "the command was slowed down by its limit of %s of a processor", "", false},
	{wire.LimitTmp, "tmp", "sandbox.tmp", "the private folders (/tmp, /var/tmp, /dev/shm and HOME) are full: together they hold %s; write large files to the workspace", "", true},
	{wire.LimitFileSize, "file_size", "sandbox.file_size", "a write was refused: no file may grow beyond the limit of %s; write several smaller ones", "", true},
	{wire.LimitSessionPids, "session_pids", "session.pids", "a process could not be started: the limit of %s processes of all commands of the session is reached; wait for other commands", ", or let the agent itself end jobs (sharness-bash --jobs)", true},
	{wire.LimitSessionMemory, "session_memory", "session.memory", "a process was killed: the limit of %s of memory of all commands of the session is reached; wait for other commands", ", or let the agent itself end jobs (sharness-bash --jobs)", true},
}

// limitNames are those of a set of bits.
func limitNames(bits uint64) []string {
	var names []string
	for _, l := range limits {
		if bits&l.bit != 0 {
			names = append(names, l.name)
		}
	}
	return names
}

// ended says whether one of a set of limits ended something.
func ended(bits uint64) bool {
	for _, l := range limits {
		if bits&l.bit != 0 && l.ends {
			return true
		}
	}
	return false
}

// jobTimeout is the limit on the time of a job.
var jobTimeout = limit{wire.LimitTimeout, "job_timeout", "sandbox.background.timeout", "the job was killed after %s, the limit on its time", "", true}

// own is the limit that a command has in the place of one: a job has a time of its own.
func (j *job) own(l limit) limit {
	if j.job != nil && l.bit == wire.LimitTimeout {
		return jobTimeout
	}
	return l
}

// sentence says what a limit was and who can change it.
func (j *job) sentence(l limit) string {
	c := &j.c.s.cfg
	l = j.own(l)
	value := c.Bounds[l.name]
	if value == "" {
		value = "its " + l.name
	}
	text := fmt.Sprintf(l.text, value)
	if c.Jobs > 0 && (c.JobsLast || l.bit != wire.LimitTimeout) {
		text += l.jobs
	}
	return text + raise(l.key)
}

// raise says where a limit is from.
func raise(key string) string { return fmt.Sprintf(" (the user can raise %s in the manifest)", key) }
