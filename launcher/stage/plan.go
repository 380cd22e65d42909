// Package stage is what runs between clone and exec: the ordered steps that turn a fresh process in fresh namespaces
// into an orchestrator or a command in its domain. It decides nothing; the Plan it is handed says everything.
package stage

// Plan is the whole domain of one process tree, written by the launcher and read by sharness-init from a sealed
// memfd. Descriptors are named by their number in the stage (launcher passes them in that order).
type Plan struct {
	Kind     Kind     `json:"kind"`
	Hostname string   `json:"hostname"`
	NetNS    int      `json:"net_ns"`   // descriptor of the network namespace to enter; -1: the one it was cloned into
	Loopback bool     `json:"loopback"` // bring lo up

	Mounts   []Mount   `json:"mounts"`  // in order, attached below the new root
	Files    []File    `json:"files"`   // generated files, written before the mount of the same path is attached
	Links    []Link    `json:"links"`
	Sysctls  []Sysctl  `json:"sysctls"` // of the new namespaces, written and read back
	MaskProc []string  `json:"mask_proc"`
	ReadProc []string  `json:"read_proc"` // below /proc, remounted read-only

	UID, GID uint32
	Rlimits  []Rlimit  `json:"rlimits"`
	Outer    Landlock  `json:"outer"`   // domain of pid 1, and of everything below it
	Landlock Landlock  `json:"landlock"` // nested domain of the target
	Seccomp  [][]byte  `json:"seccomp"` // sock_filter arrays, loaded in this order
	Probe    []Check   `json:"probe"`   // self-probe, refused when one of them opens

	Path     string   `json:"path"`     // what to execve; empty: the request descriptor says
	Argv     []string `json:"argv"`
	Env      []string `json:"env"`
	Cwd      string   `json:"cwd"`
	CwdRoot  string   `json:"cwd_root"` // Cwd must resolve beneath it (openat2 RESOLVE_BENEATH|NO_MAGICLINKS)
	Request  int      `json:"request"`  // descriptor of the sealed request memfd, read only after the drop; -1: none
	Terminal bool     `json:"terminal"` // make a pty in the view's own devpts; its master goes home over the status socket
	Stdio    [3]int   `json:"stdio"`    // descriptors that become 0-2 (ignored with Terminal)
	Status   int      `json:"status"`   // seqpacket socket to the supervisor
}

// Kind says whose domain it is.
type Kind string

// The two kinds of domain.
const (
	KindOrchestrator Kind = "orchestrator"
	KindCommand      Kind = "command"
)

// Mount is one attachment. Exactly one of FD, Fstype or Bind says what is attached.
type Mount struct {
	Target string   `json:"target"`
	FD     int      `json:"fd,omitempty"`     // a detached mount the supervisor cloned (open_tree), attached once
	Fstype string   `json:"fstype,omitempty"` // tmpfs, proc, devpts, mqueue
	Bind   string   `json:"bind,omitempty"`   // a path of the *view* bound onto Target after what came before
	Data   string   `json:"data,omitempty"`
	Set    uint64   `json:"set,omitempty"`    // MOUNT_ATTR_* set on it (recursively for FD and Bind of a tree)
	Clear  uint64   `json:"clear,omitempty"`
	IsFile bool     `json:"is_file,omitempty"` // make a file, not a folder, as the mount point
}

// File is a generated file of the view.
type File struct {
	Path    string `json:"path"`
	Content []byte `json:"content"`
	Mode    uint32 `json:"mode"`
}

// Link is a symbolic link of the view.
type Link struct{ Path, Target string }

// Sysctl is a file below /proc/sys and the value that must be read back.
type Sysctl struct{ Path, Value string }

// Rlimit is one setrlimit.
type Rlimit struct {
	Resource int    `json:"resource"`
	Soft     uint64 `json:"soft"`
	Hard     uint64 `json:"hard"`
}

// Landlock is one layer. ABI 0 means no layer.
type Landlock struct {
	ABI    int        `json:"abi"`
	FS     bool       `json:"fs"`  // handle every file right of the ABI
	Net    bool       `json:"net"` // handle every network right of the ABI
	Scoped bool       `json:"scoped"`
	Paths  []PathRule `json:"paths,omitempty"`
	TCP    []uint16   `json:"tcp,omitempty"`
	BindTCP bool      `json:"bind_tcp,omitempty"` // leave bind free (inside an own network namespace)
}

// PathRule grants access rights (LANDLOCK_ACCESS_FS_*) beneath a path of the view.
type PathRule struct {
	Path   string `json:"path"`
	Access uint64 `json:"access"`
}

// Check is one attempt of the self-probe and the errno it must meet.
type Check struct {
	Door string `json:"door"`
	What string `json:"what"`
	Path string `json:"path,omitempty"`
}
