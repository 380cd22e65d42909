// Package sessiontest runs real sessions: the programs in bin, as a person starts them, on this machine's kernel.
//
// It tests what only a whole session shows: that the tools of a day's work run inside commands, that nothing of a
// session is left on disk or in the kernel, that the death of any process of ours leaves nothing and stops nothing but
// itself, that limits hold. It covers no single layer; those are tested where they are made. It wants root, and
// `make build` before it.
package sessiontest
