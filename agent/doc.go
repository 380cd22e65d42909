// Package agent sees what the processes of a domain run and what they are refused, and reports it.
//
// Load attaches the programs of package bpf to the processes below some cgroups; Run reads their records, in order;
// a Reporter makes events of the denials among them. Reading needs no privilege: a process that has loaded may give up
// everything and go on.
//
// Tracing decides nothing: when it fails, what is closed stays closed. Nothing is lost in silence either: what a ring had
// no room for is counted by the kernel side and reported. It does not see calls that are answered before they are
// checked (kill(-1) of which one target is allowed, io_uring), and it infers causes from the policy it was given: an errno
// does not say who refused.
package agent
