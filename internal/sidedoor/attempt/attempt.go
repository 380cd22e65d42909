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

// Result is an Outcome as it is printed, one JSON object a line.
type Result struct {
	ID      string  `json:"id"`
	Door    string  `json:"door"`
	Verdict Verdict `json:"verdict"`
	Errno   string  `json:"errno"`
	Detail  string  `json:"detail"`
	MS      float64 `json:"ms"`
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
	r := Result{ID: a.ID, Door: a.Door, Verdict: o.Verdict, Detail: o.Detail, MS: float64(time.Since(start).Microseconds()) / 1000}
	if o.Errno != 0 {
		r.Errno = unix.ErrnoName(o.Errno)
	}
	return r
}
