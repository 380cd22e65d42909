package agent

import (
	"fmt"

	"github.com/sharness/sharness/bpf"
)

// Count is what became of the records of one ring: what was read is Produced - Lost - Shed.
type Count struct {
	Produced uint64 `json:"produced"`
	Lost     uint64 `json:"lost"` // the ring was full
	Shed     uint64 `json:"shed"` // repetitions left out while the ring filled up; the next of their key carries their number
}

// Stats are the kernel side's own counts since Load.
type Stats struct {
	Runs    Count
	Denials map[string]Count // by class
	Caught  uint64           // calls that the second program looked at because the kernel had not started the first
	Hooks   int              // functions that are watched and say who refused
}

// The classes of denials, each with a ring of its own.
var classNames = [bpf.TraceClassCLASSES]string{
	bpf.TraceClassCLASS_EXEC: "exec", bpf.TraceClassCLASS_PROCESS: "process", bpf.TraceClassCLASS_NET: "net", bpf.TraceClassCLASS_FILE: "file",
}

// Stats reads the counts from memory that is shared with the kernel side: no system call.
func (t *Tracer) Stats() (Stats, error) {
	var runs bpf.TraceCounts
	if err := t.objects.Execs.Get(&runs); err != nil {
		return Stats{}, fmt.Errorf("trace: read counts: %w", err)
	}
	var denials [bpf.TraceClassCLASSES]bpf.TraceCounts
	if err := t.objects.Denials.Get(&denials); err != nil {
		return Stats{}, fmt.Errorf("trace: read counts: %w", err)
	}
	var caught uint64
	if err := t.objects.Caught.Get(&caught); err != nil {
		return Stats{}, fmt.Errorf("trace: read counts: %w", err)
	}
	s := Stats{Caught: caught, Runs: count(runs), Denials: map[string]Count{}, Hooks: t.hooks}
	for i, name := range classNames {
		s.Denials[name] = count(denials[i])
	}
	return s, nil
}

func count(c bpf.TraceCounts) Count { return Count{Produced: c.Produced, Lost: c.Lost, Shed: c.Shed} }

// Denied is the sum over the classes.
func (s Stats) Denied() Count {
	var sum Count
	for _, c := range s.Denials {
		sum.Produced += c.Produced
		sum.Lost += c.Lost
		sum.Shed += c.Shed
	}
	return sum
}
