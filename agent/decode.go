package agent

import (
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/bpf"
)

// Proc is a process as the kernel side saw it: by pid and start. Pids are the host's.
type Proc struct {
	PID, TID    int
	NSPID       int // the leader's pid in its own namespace
	StartNS     uint64
	Parent      int
	ParentStart uint64
	UID, EUID   uint32
	Comm        string
}

// Life is the begin or end of a process.
type Life struct {
	Time   time.Time
	TimeNS uint64
	Slot   int
	Proc   Proc
	Ended  bool
	Code   int // as wait(2) gives it
}

// Kind says what an Event is.
type Kind uint32

// The kinds of Event. Killed is a process that a seccomp filter ended. Tried is what a call did not find or was refused, or,
// without an Errno, a signal that was sent.
const (
	Exec   = Kind(bpf.TraceKindKIND_EXEC)
	Map    = Kind(bpf.TraceKindKIND_MAP)
	Denial = Kind(bpf.TraceKindKIND_DENIAL)
	Killed = Kind(bpf.TraceKindKIND_KILLED)
	Tried  = Kind(bpf.TraceKindKIND_TRIED)
)

// Text is a string of a record, whatever bytes it may hold, with what is wrong with it.
type Text struct {
	Text       string
	Truncated  bool
	Unreadable bool // the memory could not be read: a seccomp filter refuses before the kernel touches it
	Outside    bool // the walk ended at another root than the task's
	Detached   bool // has no place in any tree: a memfd, say
}

// Image is a file by what the kernel has of it. Dev is its superblock's and differs from stat(2) on overlayfs.
type Image struct {
	Ino, Size uint64
	Changed   unix.Timespec
	Dev       uint32
	Links     uint32
	UID       uint32
	Mode      uint32
}

// Socket is what a descriptor was, when it was one.
type Socket struct {
	Family, Type, Protocol uint16
}

// Event is a record with texts.
type Event struct {
	Time   time.Time
	TimeNS uint64
	Slot   int
	Kind   Kind
	Proc   Proc
	Exe    Text // the image that runs
	Asked  Text // the path that was passed, as it was passed; the name of an Exec
	Base   Text // the descriptor's or mapping's file, or what a relative Asked begins at; the interpreter of an Exec
	More   Text // of a Denial: the old name of a rename or link; the arguments of an exec, each with its NUL

	Image   *Image  // of the new image, the mapping, the descriptor
	Socket  *Socket // of the descriptor
	Address []byte  // a socket address, instead of Asked

	NR      int
	Errno   unix.Errno
	Args    [6]uint64 // Exec: [0] is the tid that called. Map: [0] is the address
	Repeats uint64    // of the same denial that were left out before this one
	Class   string
	Arch    uint32 // of a Killed: AUDIT_ARCH_*
	NoExec  bool   // the descriptor's file is on a noexec mount
	ByFD    bool   // the mapping's file was looked up by descriptor
	LSM     bool   // a security module refused: seen by a hook
	WideNR  bool   // the call was made with bits in its number that the kernel leaves out
}

var errRecord = errors.New("trace: a record that is none of ours")

// decode reads one record, which must have exactly the size that it says.
func decode(raw []byte) (*Life, *Event, error) {
	var head bpf.TraceLife
	if len(raw) < int(unsafe.Sizeof(head)) {
		return nil, nil, errRecord
	}
	fill(&head, raw)
	switch head.Head.Kind {
	case bpf.TraceKindKIND_FORK, bpf.TraceKindKIND_EXIT:
		if len(raw) != int(unsafe.Sizeof(head)) {
			return nil, nil, errRecord
		}
		who := &head.Head.Who
		return &Life{TimeNS: head.Head.TimeNs, Slot: int(head.Head.Slot), Code: int(head.Code), Ended: head.Head.Kind == bpf.TraceKindKIND_EXIT,
			Proc: proc(who.Pid, who.Tid, who.NsPid, who.Parent, who.StartNs, who.ParentStartNs, who.Uid, who.Euid, who.Comm)}, nil, nil
	case bpf.TraceKindKIND_EXEC, bpf.TraceKindKIND_MAP, bpf.TraceKindKIND_DENIAL, bpf.TraceKindKIND_KILLED, bpf.TraceKindKIND_TRIED:
		ev, err := decodeEvent(raw)
		return nil, ev, err
	}
	return nil, nil, errRecord
}

func decodeEvent(raw []byte) (*Event, error) {
	var r bpf.TraceEvent
	if len(raw) < int(unsafe.Sizeof(r)) {
		return nil, errRecord
	}
	fill(&r, raw)
	h := &r.Head
	texts, rest := [bpf.TraceTextTEXT_MORE + 1]Text{}, raw[unsafe.Sizeof(r):]
	for i := range texts {
		n := int(h.TextLen[i])
		if n > len(rest) {
			return nil, errRecord
		}
		flags := h.Flags >> (4 * i)
		texts[i] = Text{Text: string(rest[:n]), Truncated: flags&bpf.TraceRecordFlagFLAG_TRUNCATED != 0,
			Unreadable: flags&bpf.TraceRecordFlagFLAG_UNREADABLE != 0,
			Outside:    flags&bpf.TraceRecordFlagFLAG_OUTSIDE != 0, Detached: flags&bpf.TraceRecordFlagFLAG_DETACHED != 0}
		rest = rest[n:]
	}
	if len(rest) != 0 || r.Class >= bpf.TraceClassCLASSES || r.Ret > 0 || r.Ret < -4095 {
		return nil, errRecord
	}
	who := &h.Who
	e := &Event{TimeNS: h.TimeNs, Slot: int(h.Slot), Kind: Kind(h.Kind),
		Proc: proc(who.Pid, who.Tid, who.NsPid, who.Parent, who.StartNs, who.ParentStartNs, who.Uid, who.Euid, who.Comm),
		Exe:  texts[bpf.TraceTextTEXT_EXE], Asked: texts[bpf.TraceTextTEXT_ASKED], Base: texts[bpf.TraceTextTEXT_BASE],
		More: texts[bpf.TraceTextTEXT_MORE],
		NR:   int(r.Nr), Errno: unix.Errno(-r.Ret), Args: r.Args, Repeats: r.Repeats, Class: classNames[r.Class], Arch: r.Arch,
		NoExec: h.Flags&bpf.TraceRecordFlagFLAG_NOEXEC != 0, ByFD: h.Flags&bpf.TraceRecordFlagFLAG_BY_FD != 0,
		LSM:    h.Flags&bpf.TraceRecordFlagFLAG_LSM != 0,
		WideNR: h.Flags&bpf.TraceRecordFlagFLAG_WIDE_NR != 0}
	if h.Flags&bpf.TraceRecordFlagFLAG_ADDR != 0 {
		e.Address, e.Asked.Text = []byte(e.Asked.Text), ""
	}
	if h.Flags&bpf.TraceRecordFlagFLAG_SOCKET != 0 {
		e.Socket = &Socket{Family: r.SockFamily, Type: r.SockType, Protocol: r.SockProtocol}
	}
	if h.Flags&bpf.TraceRecordFlagFLAG_FILE != 0 {
		f := &r.File
		e.Image = &Image{Ino: f.Ino, Size: f.Size, Changed: unix.Timespec{Sec: f.CtimeS, Nsec: int64(f.CtimeNs)}, Dev: f.Dev,
			Links: f.Nlink, UID: f.Uid, Mode: f.Mode}
	}
	return e, nil
}

// fill copies the fixed part: both sides are the same machine, so that byte order and padding agree, and a copy needs no
// alignment of raw.
func fill[T any](to *T, raw []byte) {
	copy(unsafe.Slice((*byte)(unsafe.Pointer(to)), unsafe.Sizeof(*to)), raw)
}

func proc(pid, tid, nsPID, parent uint32, start, parentStart uint64, uid, euid uint32, comm [16]int8) Proc {
	name := make([]byte, 0, len(comm))
	for _, c := range comm {
		if c == 0 {
			break
		}
		name = append(name, byte(c))
	}
	return Proc{PID: int(pid), TID: int(tid), NSPID: int(nsPID), StartNS: start, Parent: int(parent), ParentStart: parentStart,
		UID: uid, EUID: euid, Comm: string(name)}
}
