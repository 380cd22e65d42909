// Package sidedoor is the one table of the ways past the bash-server: what a hostile orchestrator (or a hostile
// command) will try, and which layers have to hold so that it gets nowhere.
//
// The launcher computes door × layer from it and refuses to start when a door is left without a layer, doctor prints
// it, sharness-probe attacks it, docs/side-doors has one page for each row. The table says what ought to close a door;
// that a layer holds on this host is for the launcher's probe and for the attacks to show.
package sidedoor

// Layer is one wall. Its text is what people see.
type Layer string

// The layers. Each is one mechanism that can be missing or fail without the others.
const (
	Landlock Layer = "landlock" // the Landlock domain: files, TCP ports, signal and abstract socket scope
	View     Layer = "view"     // exec view: a root in which only pinned files are not mounted noexec
	Seccomp  Layer = "seccomp"  // the two stacked filters
	PID      Layer = "pid"      // pid namespace with an undumpable, outer-domain pid 1
	Memfd    Layer = "memfd"    // vm.memfd_noexec=2 in that pid namespace
	Net      Layer = "net"      // own network namespace, loopback only
	Mount    Layer = "mount"    // own mount tree: what is not bound does not exist, what is not to be written is read-only
	UID      Layer = "uid"      // own uid, no group, no capability, no_new_privs
	Cgroup   Layer = "cgroup"   // pids and memory limits, cgroup.kill
	Rlimit   Layer = "rlimit"   // RLIMIT_CORE 1/1 and the like
	TTY      Layer = "tty"      // the terminal is a pty of the launcher
	FD       Layer = "fd"       // close_range above 2, and only pipes on 0-2
	Env      Layer = "env"      // environment allowlist
	Pin      Layer = "pin"      // hash of the very mount that is executed
	Protect  Layer = "protect"  // protected paths: read-only binds, and the watcher for names that were absent
	Relay    Layer = "relay"    // endpoint relay: one upstream, server name checked
	Server   Layer = "server"   // the bash-server's protocol: closed tables, caps, peers, fresh pipes
	Sink     Layer = "sink"     // events are escaped and written by a process without privilege
	Filter   Layer = "filter"   // output filter of the bash-server
)

// Group is a section of the catalogue.
type Group string

// The sections, in the order they are shown.
const (
	Exec      Group = "exec"
	Processes Group = "processes"
	Kernel    Group = "kernel surface"
	Network   Group = "network"
	Files     Group = "files"
	Born      Group = "what it was born with"
	BashSrv   Group = "the bash-server itself"
	Command   Group = "inside a sandboxed command"
)

// Door is one row.
type Door struct {
	ID           string  // stable: events, --allow-open and the pages use it
	Group        Group   //
	Title        string  // one line for people
	Layers       []Layer // any one of them closes the door where it holds, unless All is set
	All          bool    // every layer of the row is needed, because each closes another variant
	Orchestrator bool    // something an orchestrator attacks; false: only a command or the host's own side can
	Open         string  // what stays open by policy even when every layer holds; empty: nothing
}

// Doors returns the table in the order of the catalogue. The slice is the caller's own.
func Doors() []Door { return append([]Door(nil), doors...) }

// ByID returns the door of that name.
func ByID(id string) (Door, bool) {
	for _, d := range doors {
		if d.ID == id {
			return d, true
		}
	}
	return Door{}, false
}

// OpenedByMemfd reports whether memfd: true in a manifest lets an attempt through: it makes memfds, which is the point of
// the word, or maps one, as it can map anonymous memory. To execute one stays shut.
func OpenedByMemfd(attempt string) bool {
	switch attempt {
	case "exec-ldso/memfd", "exec-ldso/memfd-noexec-seal", "exec-memfd/map", "exec-interp/memfd", "exec-abi/high-bits-memfd":
		return true
	}
	return false
}
