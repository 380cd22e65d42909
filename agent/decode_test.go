package agent

import (
	"bytes"
	"errors"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/bpf"
)

// record is what the kernel side writes for these texts.
func record(kind bpf.TraceKind, flags bpf.TraceRecordFlag, texts ...string) []byte {
	var r bpf.TraceEvent
	r.Head.Kind, r.Head.Flags = kind, flags
	r.Head.Who.Pid, r.Head.Who.Comm = 7, [16]int8{'a', 'b'}
	r.Nr, r.Ret = unix.SYS_EXECVE, -int32(unix.EACCES)
	raw := make([]byte, unsafe.Sizeof(r))
	for i, t := range texts {
		r.Head.TextLen[i] = uint32(len(t))
		raw = append(raw, t...)
	}
	copy(raw, unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r)))
	return raw
}

func TestDecodeReadsWhatWasWritten(t *testing.T) {
	flags := bpf.TraceRecordFlagFLAG_TRUNCATED<<(4*bpf.TraceTextTEXT_ASKED) | bpf.TraceRecordFlagFLAG_DETACHED<<(4*bpf.TraceTextTEXT_BASE) |
		bpf.TraceRecordFlagFLAG_NOEXEC
	_, e, err := decode(record(bpf.TraceKindKIND_DENIAL, flags, "/usr/bin/x", "a\xffb", "/memfd:y"))
	if err != nil {
		t.Fatal(err)
	}
	if e.Exe != (Text{Text: "/usr/bin/x"}) || e.Asked != (Text{Text: "a\xffb", Truncated: true}) || e.Base != (Text{Text: "/memfd:y", Detached: true}) {
		t.Errorf("got %+v, %+v, %+v", e.Exe, e.Asked, e.Base)
	}
	if e.Errno != unix.EACCES || e.Proc.PID != 7 || e.Proc.Comm != "ab" || !e.NoExec || e.Image != nil || e.Socket != nil {
		t.Errorf("got %+v", e)
	}
}

func TestDecodeTakesOnlyTheExactSize(t *testing.T) {
	whole := record(bpf.TraceKindKIND_EXEC, 0, "/a", "b", "/c")
	for n := range whole {
		if _, _, err := decode(whole[:n]); !errors.Is(err, errRecord) {
			t.Fatalf("%d of %d bytes: got %v", n, len(whole), err)
		}
	}
	if _, _, err := decode(append(whole, 0)); !errors.Is(err, errRecord) {
		t.Errorf("one byte more: got %v", err)
	}
	var life bpf.TraceLife
	life.Head.Kind = bpf.TraceKindKIND_EXIT
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&life)), unsafe.Sizeof(life))
	if l, _, err := decode(raw); err != nil || !l.Ended {
		t.Errorf("end of a process: got %+v, %v", l, err)
	}
	if _, _, err := decode(bytes.Clone(raw)[:len(raw)-1]); err == nil {
		t.Error("a short end of a process was taken")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(record(bpf.TraceKindKIND_DENIAL, bpf.TraceRecordFlagFLAG_ADDR, "/exe", "\x02\x00\x00\x09\x7f\x00\x00\x01", ""))
	f.Add(record(bpf.TraceKindKIND_EXEC, bpf.TraceRecordFlagFLAG_FILE, "/exe", "x", "y"))
	f.Add(record(bpf.TraceKindKIND_DENIAL, 0, "/exe", "x", "/", "x\x00-l\x00\x00"))
	f.Add(record(bpf.TraceKindKIND_FORK, 0))
	r := NewReporter(policy, foldOptions, discard)
	f.Fuzz(func(t *testing.T, raw []byte) {
		life, e, err := decode(raw)
		switch {
		case err != nil:
			return
		case life != nil:
			r.Life(life)
		default:
			if len(e.Exe.Text)+len(e.Asked.Text)+len(e.Base.Text)+len(e.More.Text)+len(e.Address) > len(raw) {
				t.Errorf("texts are longer than the record")
			}
			r.Event(e) // what is decoded can be reported, whatever it is
		}
	})
}
