package learn

import (
	"math/bits"
	"slices"
	"time"

	"github.com/sharness/sharness/manifest"
)

// limits raises what was used more than is allowed, to the next power of two: runs of the same agree, although no two use the
// same to a byte. What the manifest gives is never made less.
func (f *fold) limits() {
	m, in := f.p.Manifest, f.in.Peaks
	d := m.WithDefaults()
	if n := power(uint64(in.Command.Pids)); n > uint64(d.Sandbox.Pids) {
		m.Sandbox.Pids = int(n)
	}
	if n := power(uint64(in.Command.Memory)); n > uint64(d.Sandbox.Memory) {
		m.Sandbox.Memory = manifest.Size(n)
	}
	if t := in.Command.Time; d.Sandbox.Timeout != manifest.TimeoutNone && t > d.Sandbox.Timeout {
		seconds := uint64((time.Duration(t) + time.Second - 1) / time.Second)
		m.Sandbox.Timeout = manifest.Timeout(time.Duration(power(seconds)) * time.Second)
	}
	if n := power(uint64(in.Orchestrator.Pids)); n > uint64(d.Limits.Pids) {
		m.Limits.Pids = int(n)
	}
	if n := power(uint64(in.Orchestrator.Memory)); n > uint64(d.Limits.Memory) {
		m.Limits.Memory = manifest.Size(n)
	}
}

// endpoints adds what was reached to what may be.
func (f *fold) endpoints() {
	m := f.p.Manifest
	for _, e := range f.in.Reached {
		if !slices.ContainsFunc(m.Connect, func(x manifest.Endpoint) bool { return x.Name == e.Name && x.Port == e.Port }) {
			m.Connect = append(m.Connect, e)
		}
	}
}

// power is the least power of two that is not below n.
func power(n uint64) uint64 {
	if n <= 1 {
		return n
	}
	return 1 << bits.Len64(n-1)
}

// measured puts the raw figures where what varies stands.
func (f *fold) measured(l *manifest.Learned) {
	for _, s := range f.in.Seen.Signals {
		l.Signals = append(l.Signals, manifest.LearnedSignal{Name: s.Name, Sent: small(s.Sent)})
	}
	if f.in.Peaks != (manifest.LearnedPeaks{}) {
		peaks := f.in.Peaks
		l.Peaks = &peaks
	}
}
