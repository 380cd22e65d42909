package resolve

import (
	"fmt"

	"github.com/sharness/sharness/launcher/host"
)

// NewestABI is the newest Landlock ABI whose rights this version knows. A newer kernel is used at this one.
const NewestABI = 10

// ABIs that first had what the doors need.
const (
	abiRefer    = 2
	abiTruncate = 3
	abiTCP      = 4
	abiIoctl    = 5
	abiScope    = 6
	abiUnixPath = 9
	abiUDP      = 10
)

// Landlock is the exact ABI the domain is built for, never "the best there is": what a stage asks for is what the
// kernel must grant, or the stage ends.
type Landlock struct {
	ABI    int      `json:"abi"`    // 0: no domain
	Scoped bool     `json:"scoped"` // signals and abstract sockets
	TCP    bool     `json:"tcp"`
	Lacks  []string `json:"lacks"` // what a newer kernel would add, or why this one is not used in full
}

// chooseLandlock picks min(kernel, known), and goes below the scopes when erratum 2 is not fixed: there a scoped thread
// cannot signal its own process's other threads, which breaks set*id in every multi-threaded program, and a domain that
// breaks programs gets switched off by people.
func chooseLandlock(f *host.Features) Landlock {
	if f.Landlock.ABI <= 0 {
		return Landlock{Lacks: []string{"no domain at all: " + f.Landlock.Cause}}
	}
	l := Landlock{ABI: min(f.Landlock.ABI, NewestABI), Lacks: []string{}}
	if l.ABI >= abiScope && !f.Landlock.Fixed(2) {
		l.Lacks = append(l.Lacks, fmt.Sprintf("the kernel has ABI %d but not the fix of erratum 2 (signal scope): used as ABI 5, without scopes", f.Landlock.ABI))
		l.ABI = abiIoctl
	}
	for _, right := range []struct {
		abi  int
		what string
	}{
		{abiRefer, "linking and renaming between folders"},
		{abiTruncate, "truncation"},
		{abiTCP, "TCP ports"},
		{abiIoctl, "ioctl on devices"},
		{abiScope, "scopes of signals and abstract sockets"},
		{abiUnixPath, "pathname unix sockets"},
		{abiUDP, "UDP ports"},
	} {
		if l.ABI < right.abi {
			l.Lacks = append(l.Lacks, fmt.Sprintf("%s (ABI %d)", right.what, right.abi))
		}
	}
	l.TCP = l.ABI >= abiTCP
	l.Scoped = l.ABI >= abiScope
	return l
}
