package agent

import (
	"encoding/json"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
)

func init() { children["wide"] = wideChild }

// wideChild calls by a number with bits above the 32 that the kernel looks at.
func wideChild(json.RawMessage) (any, error) {
	if err := enter(); err != nil {
		return nil, err
	}
	return raw(unix.SYS_EXECVE|1<<40, ptr("/bin/bash"), uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&argv[1]))), nil
}

func TestHighBitsOfACallsNumberHideNothing(t *testing.T) {
	g := newGroup(t, "")
	var got unix.Errno
	r := traced(t, g, Options{}, policy, func() {
		kerneltest.Child{Name: "wide", Reply: &got, Setup: g.into(t)}.Run(t)
	})
	if got != unix.EACCES {
		t.Fatalf("got %v, want the kernel to take it for execve, and to refuse", got)
	}
	events := r.denials()
	if len(events) != 1 || events[0].Syscall != "execve" || events[0].Door != "exec-abi" || events[0].Target.Asked != "/bin/bash" {
		t.Errorf("got %+v, want the call, as what it is", events)
	}
}
