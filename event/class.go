package event

import (
	"maps"
	"slices"
)

// Class groups types that share one budget, so that a flood of one kind cannot use up the room of another.
type Class string

// The classes. Control is what the supervisor alone says about its session: few, and never held back.
const (
	ClassControl Class = "control"
	ClassReport  Class = "report" // what any producer says about itself
	ClassCommand Class = "command"
	ClassExec    Class = "exec"
	ClassProcess Class = "process"
	ClassNet     Class = "net"
	ClassFile    Class = "file"
	ClassServer  Class = "server" // by what it is about and not by its type: requests that the bash-server refused
)

var classes = map[Type]Class{
	SessionStart: ClassControl, SessionEnd: ClassControl, LayerApplied: ClassControl, IntegrityChanged: ClassControl,
	LayerOpen: ClassReport, EventsLost: ClassReport, Heartbeat: ClassReport,
	StartRefused: ClassCommand, CommandStart: ClassCommand, CommandEnd: ClassCommand, LimitHit: ClassCommand, SecretRedacted: ClassCommand,
	ExecDenied: ClassExec, ExecRouted: ClassExec, MemfdDenied: ClassExec,
	SignalDenied: ClassProcess, PtraceDenied: ClassProcess, NSDenied: ClassProcess, SyscallDenied: ClassProcess,
	NetDenied: ClassNet, NetFailed: ClassNet,
	FileDenied: ClassFile, RepoCreated: ClassFile, FileQuarantined: ClassFile,
}

// Reserved reports whether only the supervisor may send t.
func (t Type) Reserved() bool { return t.Class() == ClassControl || t == StartRefused }

// Known reports whether t is a type of schema 1.
func (t Type) Known() bool { _, ok := classes[t]; return ok }

// Types are those of schema 1, in no order.
func Types() []Type { return slices.Collect(maps.Keys(classes)) }

// Class is the class of a known type.
func (t Type) Class() Class { return classes[t] }

// refusal reports whether e is about a request that the bash-server refused: anybody who may connect can make thousands a
// second, for which no other event may lose its room.
func (e *Event) refusal() bool {
	return e.Type == CommandEnd && e.Command == nil || e.Type == SyscallDenied && e.Layer == "server"
}

func (e *Event) class() Class {
	if e.refusal() {
		return ClassServer
	}
	return e.Type.Class()
}

func (e *Event) folds() bool { return e.refusal() || e.Type.Folds() }

// Denial reports whether t says that something was refused.
func (t Type) Denial() bool {
	switch t {
	case ExecDenied, MemfdDenied, SignalDenied, PtraceDenied, NSDenied, SyscallDenied, NetDenied, FileDenied:
		return true
	}
	return false
}

// Folds reports whether repetitions of t may be counted instead of written: each start and end of a command, each
// count, and all of what the supervisor says about its session, is a fact of its own.
func (t Type) Folds() bool {
	switch t {
	case CommandStart, CommandEnd, EventsLost, Heartbeat:
		return false
	}
	return t.Class() != ClassControl
}
