// Package filter compiles the seccomp programs of a domain. It is the only package that needs cgo (libseccomp), so it
// is linked into the supervisor alone: the compiled bytes travel to the stage or the helper, which loads them.
//
// It promises that a program which loads all returned filters, in order, cannot make a system call that the profile
// of its Kind denies: not by an unlisted number, not through a foreign ABI (the process is killed), not with high bits
// set in an argument that the kernel reads as 32 bits. It does not cover what stands behind a pointer (paths, socket
// addresses, control messages); those doors are Landlock's and the view's.
//
// An orchestrator or a command gets two stacked filters, because libseccomp drops a conditional rule that stands beside
// an unconditional allow of the same call: first an allowlist, then the conditional denials. The kernel takes the most
// restrictive answer of both; no call is refused by both with different errnos, so that the order decides nothing.
//
// Of a command it is three, since loading one takes as long as some mounts: the first two let through what making a sandbox
// needs, so that sharness-box carries them itself and every sandbox has them from birth. The third, a short one, refuses that.
package filter

import (
	"errors"
	"fmt"
	"slices"

	seccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// Kind says whose filter it is.
type Kind string

// Helper is one of sharness's own Go processes (bash-server, relay, event sink, watcher).
const (
	Orchestrator Kind = "orchestrator"
	Command      Kind = "command"
	Helper       Kind = "helper"
)

// Options choose among the variants of a Kind's filter. The zero value of each field is the stricter choice, but for
// DenyRecvmsg, which not every agent survives.
type Options struct {
	Kind Kind

	// Memfd allows memfd_create to an orchestrator (the manifest's `memfd: true`) or a helper. A command always has
	// it: its pid namespace's vm.memfd_noexec=2 keeps the result from being executed.
	Memfd bool

	// DenyRecvmsg refuses recvmsg and recvmmsg to an orchestrator, and with them the receipt of descriptors.
	DenyRecvmsg bool

	// Network lets a helper make TCP and UDP sockets and connect them; without it a helper has only the sockets
	// that it was born with.
	Network bool

	// Files lets a helper open, list, stat and watch files. What it may open is for Landlock to say.
	Files bool

	// Change lets a helper rename, remove and make names, and change modes, where its Landlock domain allows it.
	Change bool
}

// Inherited is how many of a command's filters sharness-box loads for itself.
const Inherited = 2

// Compile returns the filters as arrays of struct sock_filter, to be loaded in the order given (seccomp(2)). The
// result depends on the machine's architecture and, through the profile, on the running kernel's version.
func Compile(o Options) ([][]byte, error) {
	switch o.Kind {
	case Orchestrator, Command:
		allow, err := compileAllow(o)
		if err != nil {
			return nil, fmt.Errorf("filter: compile allowlist of %s: %w", o.Kind, err)
		}
		deny, err := compileDeny(o)
		if err != nil {
			return nil, fmt.Errorf("filter: compile denials of %s: %w", o.Kind, err)
		}
		if o.Kind == Orchestrator {
			return [][]byte{allow, deny}, nil
		}
		last, err := compile(seccomp.ActAllow, nil, makersDenied(o))
		if err != nil {
			return nil, fmt.Errorf("filter: compile what a sandbox is made with: %w", err)
		}
		return [][]byte{allow, deny, last}, nil
	case Helper:
		prog, err := compileHelper(o)
		if err != nil {
			return nil, fmt.Errorf("filter: compile helper: %w", err)
		}
		return [][]byte{prog}, nil
	}
	return nil, fmt.Errorf("filter: compile: unknown kind %q", o.Kind)
}

func compileAllow(o Options) ([]byte, error) {
	rules, err := profileRules()
	if err != nil {
		return nil, err
	}
	missing := absent(o)
	tables := [][]rule{keep(rules, subtracted, missing, makers), socketRules()}
	if o.Kind == Command {
		missing = slices.DeleteFunc(missing, func(name string) bool { return slices.Contains(makers, name) })
		tables = append(tables, makersAllowed())
	}
	return compile(denied, missing, tables...)
}

func compileDeny(o Options) ([]byte, error) {
	return compile(seccomp.ActAllow, nil, conditionalDenials(), kindDenials(o))
}

func compileHelper(o Options) ([]byte, error) {
	return compile(denied, nil, helperRules(o))
}

// denied is what a known call gets that no rule allows; notThere makes a program believe in an older kernel, which is
// what libraries fall back from.
var (
	denied   = seccomp.ActErrno.SetReturnCode(int16(unix.EPERM))
	notThere = seccomp.ActErrno.SetReturnCode(int16(unix.ENOSYS))
)

// rule is one line of a filter: the action for a call when every condition holds.
type rule struct {
	name   string
	action seccomp.ScmpAction
	conds  []seccomp.ScmpCondition
}

// compile makes one filter. A filter whose default is a denial also answers ENOSYS to the calls in absent and to every
// number that did not exist when this was written.
func compile(def seccomp.ScmpAction, absent []string, tables ...[]rule) ([]byte, error) {
	f, err := seccomp.NewFilter(def)
	if err != nil {
		return nil, fmt.Errorf("seccomp_init: %w", err)
	}
	defer f.Release()
	if err := settings(f); err != nil {
		return nil, err
	}
	for _, name := range absent {
		tables = append(tables, []rule{{name: name, action: notThere}})
	}
	for _, table := range tables {
		for _, r := range table {
			if err := add(f, r); err != nil {
				return nil, fmt.Errorf("add rule for %s: %w", r.name, err)
			}
		}
	}
	prog, err := export(f)
	if err != nil {
		return nil, err
	}
	if def == seccomp.ActAllow {
		return prog, nil
	}
	return withCeiling(prog)
}

// settings: the stage sets no_new_privs and chooses the threads, not libseccomp. Level 2 sorts the numbers into a
// tree; a linear filter of 300 compares costs a quarter of a millisecond more to load (BenchmarkLoad).
func settings(f *seccomp.ScmpFilter) error {
	return errors.Join(
		f.SetBadArchAction(seccomp.ActKillProcess),
		f.SetNoNewPrivsBit(false),
		f.SetOptimize(2),
	)
}

// add resolves the name and adds the rule. A name without a number on this architecture (a call of another one, which
// libseccomp gives a negative pseudo number) needs no rule: the native ABI cannot name it.
func add(f *seccomp.ScmpFilter, r rule) error {
	nr, err := number(r.name)
	if err != nil {
		return err
	}
	if nr < 0 {
		return nil
	}
	return f.AddRuleConditionalExact(nr, r.action, r.conds)
}
