package filter

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
)

// foreignInput is a call to make by another ABI under filters.
type foreignInput struct {
	Filters [][]byte
	ABI     string
}

func foreignChild(input json.RawMessage) (any, error) {
	var in foreignInput
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, err
	}
	interrupt, err := int80(20) // getpid of the 32-bit table; writev of the native one
	if err != nil {
		return nil, err
	}
	if err := load(in.Filters); err != nil {
		return nil, err
	}
	switch in.ABI {
	case "int 0x80":
		byDefault(unix.SIGSEGV)
		return interrupt(), nil
	case "x32":
		_, _, errno := unix.RawSyscall(x32Bit|unix.SYS_GETPID, 0, 0, 0)
		return errno, nil
	case "native":
		return unix.Getpid(), nil
	}
	return nil, fmt.Errorf("no such ABI: %s", in.ABI)
}

// byDefault takes a signal from the Go runtime, which would end the process with a status of its own.
func byDefault(sig unix.Signal) {
	var action [4]uintptr // struct kernel_sigaction of SIG_DFL
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}

// int80 makes a function that enters the kernel by its 32-bit gate: mov eax, NR; int 0x80; ret. Go's assembler is not to
// be had in a package with cgo, so that the code is put in memory as it is.
func int80(nr uint32) (func() uintptr, error) {
	code := binary.LittleEndian.AppendUint32([]byte{0xb8}, nr)
	code = append(code, 0xcd, 0x80, 0xc3)
	page, err := unix.Mmap(-1, 0, len(code), unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	copy(page, code)
	// A Go function value points to a word that holds the entry; the result is in rax.
	entry := unsafe.Pointer(&page[0])
	value := unsafe.Pointer(&entry)
	return *(*func() uintptr)(unsafe.Pointer(&value)), nil
}

// noGate says that int 0x80 is a fault here, without a filter: a processor or a hypervisor (PVM) without 32-bit system calls
// answers so, whatever the kernel was configured with.
func noGate(t *testing.T) bool {
	t.Helper()
	_, err := kerneltest.Child{Name: "foreign", Input: foreignInput{nil, "int 0x80"}}.Start(t)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	gone := err != nil && exit.Sys().(syscall.WaitStatus).Signal() == unix.SIGSEGV
	if gone {
		t.Log("int 0x80 is a fault on this machine: it has no 32-bit system calls, so that nothing is to be filtered")
	}
	return gone
}

func TestForeignABIKillsTheProcess(t *testing.T) {
	fault := noGate(t)
	for _, o := range []Options{{Kind: Orchestrator}, {Kind: Command}, {Kind: Helper}} {
		for _, abi := range []string{"int 0x80", "x32"} {
			want := unix.SIGSYS
			if abi == "int 0x80" && fault {
				want = unix.SIGSEGV
			}
			in := foreignInput{mustCompile(t, o), abi}
			stderr, err := kerneltest.Child{Name: "foreign", Input: in}.Start(t)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != want {
				t.Errorf("%s, %s: want the process killed by %s, got %v\n%s", o.Kind, abi, unix.SignalName(want), err, stderr)
			}
		}
	}
}

// The control of the test above: without filters nothing dies, and the 32-bit gate works where the kernel has it.
func TestForeignABIWithoutFilterIsNoHarm(t *testing.T) {
	abis := []string{"x32", "native"}
	if !noGate(t) {
		abis = append(abis, "int 0x80")
	}
	for _, abi := range abis {
		var got int
		kerneltest.Child{Name: "foreign", Input: foreignInput{nil, abi}, Reply: &got}.Run(t)
		t.Logf("%s: %d", abi, got)
	}
}
