// Package stage is what runs between clone and exec: the ordered steps that turn a fresh process in fresh namespaces
// into an orchestrator or a command in its domain. It decides nothing: the Plan it is handed says everything, and a
// step that fails ends the process with one sentence on the status socket.
//
// Two processes take the steps. Init is pid 1 of the new pid namespace: it builds the view, starts Enter, gives up
// everything and stays as reaper. Enter is its child: it gives up everything in its own, nested domain and executes
// the target. Pid 1 never execs after its uid drop and so stays undumpable; the target sits in a Landlock domain below
// its own and can neither signal nor trace it (ptrace(2), landlock(7)).
package stage

import (
	"github.com/sharness/sharness/internal/confine"
	"github.com/sharness/sharness/launcher/protect"
)

// The descriptors that Init starts with; those of Plan.Mounts and of the standard streams follow.
const (
	PlanFD   = 3
	StatusFD = 4
	FirstFD  = 5
)

// What a standard stream can be instead of a descriptor.
const (
	StdioNull     = -1 // /dev/null of the view
	StdioTerminal = -2
)

// Plan is the whole domain of one process tree, written by the launcher and read from a sealed memfd. Descriptors
// are named by their number in Init.
type Plan struct {
	Hostname string `json:"hostname"`

	Mounts    []Mount    `json:"mounts"` // in order, attached below the new root
	Files     []File     `json:"files"`  // generated, written into the root before the mounts
	Links     []Link     `json:"links"`  // made before the mounts
	Protected *Protected `json:"protected,omitempty"`
	Sysctls   []Sysctl   `json:"sysctls"`   // of the new namespaces, written and read back
	MaskProc  []string   `json:"mask_proc"` // files become /dev/null; folders, which end in a slash, an empty one
	ReadProc  []string   `json:"read_proc"` // in /proc, read-only; for sharness-box a mount of the sandbox's own

	UID      uint32           `json:"uid"`
	GID      uint32           `json:"gid"`
	Inside   *Inside          `json:"inside,omitempty"` // of the target; nil: it stays in the user namespace of pid 1
	Rlimits  []Rlimit         `json:"rlimits"`
	Outer    confine.Landlock `json:"outer"`    // domain of pid 1 and of everything below it
	Landlock confine.Landlock `json:"landlock"` // nested domain of the target
	Seccomp  [][]byte         `json:"seccomp"`  // sock_filter arrays, loaded in this order
	Carried  int              `json:"carried"`  // how many of them sharness-box loads for itself, so that its sandboxes inherit them
	Probe    []Check          `json:"probe"`    // self-probe; the start is refused when one of them opens

	Box int `json:"box,omitempty"` // descriptor of sharness-box: the program that Init has enter a user namespace, and that Box becomes

	// Of what sharness-box makes sandboxes from (Box): Mounts with a descriptor are shared by all of them, the others each
	// sandbox makes; the kernel's ids, Probe and all that follows are a sandbox's own and not here.
	Owned    []string `json:"owned,omitempty"`     // folders that are given to the sandbox's id
	OOMScore string   `json:"oom_score,omitempty"` // of a sandbox (proc(5), oom_score_adj)
	Late     []Mount  `json:"late,omitempty"`      // what is attached just before a command runs: where, and what its rule is bound to

	Path     string   `json:"path"` // what to execve
	Argv     []string `json:"argv"`
	Env      []string `json:"env"`
	Cwd      string   `json:"cwd"`
	CwdBelow []string `json:"cwd_below"` // after chdir, getcwd must answer one of these or a path below
	Terminal bool     `json:"terminal"`  // make a pty in the view's own devpts; its master goes home over the status socket
	Front    bool     `json:"front"`     // the target starts as the foreground group of its terminal; else pid 1's group is
	Stdio    [3]int   `json:"stdio"`     // descriptors that become 0-2, StdioTerminal or StdioNull
}

// Inside is a user namespace, and the ids of a domain as its processes see them there.
type Inside struct {
	Userns int    `json:"userns,omitempty"` // descriptor; 0 for sharness-box, which gets one with each order
	UID    uint32 `json:"uid"`
	GID    uint32 `json:"gid"`
}

// Mount is one attachment. Exactly one of FD, Fstype and Bind says what is attached.
type Mount struct {
	Target string `json:"target"`
	FD     int    `json:"fd,omitempty"`     // a detached mount that the supervisor cloned and gave its attributes
	Fstype string `json:"fstype,omitempty"` // a new file system
	Data   string `json:"data,omitempty"`   // its options, comma-separated
	Bind   string `json:"bind,omitempty"`   // a path of the view as built so far
	Mode   uint32 `json:"mode,omitempty"`   // of a Bind that a sandbox makes: that folder is made first, with this mode
	Set    uint64 `json:"set,omitempty"`    // MOUNT_ATTR_* of Fstype and Bind
	Clear  uint64 `json:"clear,omitempty"`
	IsFile bool   `json:"is_file,omitempty"` // the mount point is a file
	Absent bool   `json:"absent,omitempty"`  // of a late Bind: that it is gone by now is no error
}

// Protected are the entries of the workspace that this view must not change. They are bound onto themselves once the
// workspace is attached.
type Protected struct {
	Root    string           `json:"root"`
	Entries []ProtectedEntry `json:"entries"`
}

// ProtectedEntry is a protect.Mount; its path need not be UTF-8.
type ProtectedEntry struct {
	Rel      []byte       `json:"rel"`
	ReadOnly bool         `json:"read_only"`
	Kind     protect.Kind `json:"kind"`
}

// File is a generated file of the view; one whose Path ends in "/" is a folder.
type File struct {
	Path    string `json:"path"`
	Content []byte `json:"content,omitempty"`
	Mode    uint32 `json:"mode"`
}

// Link is a symbolic link of the view.
type Link struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// Sysctl is a file below /proc/sys and the value that must be read back from it.
type Sysctl struct {
	Path  string `json:"path"`
	Value string `json:"value"`
}

// Rlimit is one prlimit(2).
type Rlimit struct {
	Resource int    `json:"resource"`
	Soft     uint64 `json:"soft"`
	Hard     uint64 `json:"hard"`
	Exact    bool   `json:"exact"` // else a tighter limit of the host's is as good
}

// Check is one attempt of the self-probe: a door, tried in the finished domain just before the exec.
type Check struct {
	Door string `json:"door"`
	Try  Try    `json:"try"`
	Path string `json:"path,omitempty"`
}

// Try names what a Check does; probe.go says how.
type Try string
