// Package attempt is what a hostile orchestrator does: one table of attempts on the doors of internal/sidedoor and on
// their variants, each with the positive control that shows the attempt itself works.
//
// It promises to hurt nobody, even run by root outside every domain: no sysctl is written, no clock set, no real
// reboot, swap or module call made; signals are 0 or SIGWINCH and go to bait alone; pid 1 is signalled only in a pid
// namespace that is known not to be the host's; what is created is removed. Where the real thing would hurt, the
// attempt stops at the errno past the permission check, and that errno counts as open.
//
// amd64 only: the foreign system call ABIs are part of the catalogue.
package attempt

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/sidedoor/probe"
)

// Words of package probe, which is all that others than the probe see of an attempt.
type (
	Verdict = probe.Verdict
	Control = probe.Control
	Result  = probe.Result
	Bait    = probe.Bait
)

// See package probe.
const (
	Open       = probe.Open
	Closed     = probe.Closed
	Absent     = probe.Absent
	Impossible = probe.Impossible
	Error      = probe.Error

	Opens    = probe.Opens
	Refused  = probe.Refused
	Varies   = probe.Varies
	NoServer = probe.NoServer

	PayloadStatus = probe.PayloadStatus
)

// Attempt is one row. ID is door/variant.
type Attempt struct {
	ID      string
	Door    string
	What    string
	Control Control
	How     func(*Target) Outcome
}

// Outcome is what an attempt found. Errno is the number that decided, zero when none did.
type Outcome struct {
	Verdict Verdict
	Errno   unix.Errno
	Detail  string
}

// All returns the table, in an order in which no attempt spoils a later one: the bombs come last.
func All() []Attempt {
	return slices.Concat(
		bornWith(), envAttempts(), ttyAttempts(),
		execDirect(), execWorkspace(), execLoader(), execMemfd(), execSCM(), execInject(), execABI(), execInterp(), execSwap(),
		signals(), traces(), pidOne(), namespaces(), setIDBits(), setIDs(),
		kernelCalls(),
		tcp(), udp(), families(), unixSockets(),
		config(), git(), meta(), leases(), fifos(), links(), cores(), secrets(), procFiles(), cgroups(),
		server(), logs(), bombs(),
	)
}

// Run makes one attempt.
func Run(a Attempt, t *Target) Result {
	start := time.Now()
	t.begin()
	o := a.How(t)
	t.end()
	r := Result{ID: a.ID, Door: a.Door, What: a.What, Control: a.Control, Verdict: o.Verdict, Detail: o.Detail,
		Start: start, MS: float64(time.Since(start).Microseconds()) / 1000}
	if o.Errno != 0 {
		r.Errno = unix.ErrnoName(o.Errno)
	}
	return r
}
