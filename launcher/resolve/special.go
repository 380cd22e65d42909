package resolve

import (
	"fmt"

	"github.com/sharness/sharness/internal/sidedoor"
)

const whyMemfd = "memfd: true in the manifest"

// special says what a layer that holds in general lacks against one door: it may hold on this kernel and yet not
// against this.
func special(id string, layer sidedoor.Layer, ll Landlock, memfd bool) *Need {
	switch {
	case layer == sidedoor.Landlock && scopeDoors[id] && !ll.Scoped:
		return &Need{Why: fmt.Sprintf("Landlock is used at ABI %d: no scopes", ll.ABI), Fix: "Linux 6.12 or newer, with Landlock's erratum 2 fixed"}
	case layer == sidedoor.Landlock && id == "file-config" && ll.ABI < abiTruncate:
		// Opening for writing is denied all the same, but truncate(2) of a file that is only to be read is not.
		return &Need{Why: fmt.Sprintf("Landlock is used at ABI %d: truncation is not covered", ll.ABI), Fix: "Linux 6.2 or newer"}
	case layer == sidedoor.Seccomp && memfd && (id == "exec-memfd" || id == "exec-ldso"):
		return &Need{Why: whyMemfd, Fix: "take it out of the manifest"}

	}
	return nil
}

// scopeDoors are closed by Landlock only through its scopes. cmd-reach needs all its layers for another reason each:
// signals are covered there by the pid namespace and the uid.
var scopeDoors = map[string]bool{"sig": true, "unix-abstract": true, "pid1": true}

// rest is what stays open although the door is closed.
func rest(row sidedoor.Door, ll Landlock) string {
	if row.ID == "unix-path" && ll.ABI < abiUnixPath {
		return "a socket that already lies in the workspace or in another bound folder can be connected to (Landlock ABI 9 has a right for it)"
	}
	if row.ID == "pid1" && !ll.Scoped {
		return "a signal can end the domain's own pid 1, and the session with it (Landlock ABI 6 has a scope for it); it reaches nothing else"
	}
	return row.Open
}
