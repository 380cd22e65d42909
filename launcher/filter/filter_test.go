package filter

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/confine"
	"github.com/sharness/sharness/internal/kerneltest"
)

// testUID is an id of nobody. It lies below those that kerneltest.NoLeaks counts: the tests of other packages run at the same
// time, and programs of this one run for long.
const testUID = 1890190002

// Children make their calls on the first thread. A bare PTRACE_TRACEME makes the parent a tracer too, and another thread
// that is traced stays until its tracer has waited for it, and the whole process with it.
func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) {
	kerneltest.Main(m, map[string]kerneltest.Func{
		"try":     tryChild,
		"foreign": foreignChild,
		"exec":    execChild,
		"cost":    costChild,
	})
}

func mustCompile(t testing.TB, o Options) [][]byte {
	t.Helper()
	progs, err := Compile(o)
	if err != nil {
		t.Fatal(err)
	}
	return progs
}

// load applies filters to the whole process. This test binary has cgo, so that no_new_privs cannot be set on all
// threads first; TSYNC carries it over from the calling one.
func load(progs [][]byte) error {
	if len(progs) == 0 {
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	for _, prog := range progs {
		if err := confine.LoadSeccomp(prog); err != nil {
			return err
		}
	}
	return nil
}

func TestCompileRefusesAnUnknownKind(t *testing.T) {
	if _, err := Compile(Options{Kind: "guest"}); err == nil {
		t.Error("want an error")
	}
}

func TestCompileIsDeterministic(t *testing.T) {
	for _, o := range []Options{{Kind: Orchestrator}, {Kind: Command}, {Kind: Helper, Network: true, Files: true}} {
		want := mustCompile(t, o)
		for i, prog := range mustCompile(t, o) {
			if string(prog) != string(want[i]) {
				t.Errorf("%s: filter %d differs from one compilation to the next", o.Kind, i)
			}
		}
	}
}

// A misspelt name must not become a rule less.
func TestCompileRefusesAnUnknownCall(t *testing.T) {
	if _, err := compile(denied, nil, []rule{allow("opne")}); err == nil || !strings.Contains(err.Error(), "opne") {
		t.Errorf("want an error that names the call, got %v", err)
	}
}

// tryInput has the filters to load and the calls to make under them.
type tryInput struct {
	Filters [][]byte
	Calls   []call
}

// call is a system call with its arguments. The values below stand for things that only the child has.
type call struct {
	NR   int
	Args []uint64
}

// Placeholders in call.Args.
const (
	emptyPath = 1<<63 + iota // address of an empty string
	selfPidfd                // pidfd of the child itself
	inetFD                   // a TCP socket made before the filter
)

func tryChild(input json.RawMessage) (any, error) {
	var in tryInput
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, err
	}
	known, err := placeholders()
	if err != nil {
		return nil, err
	}
	if err := load(in.Filters); err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	// A bare PTRACE_TRACEME succeeds, and then any signal would stop this thread for ever: Go's runtime sends one to a
	// thread that it takes to be slow.
	var every unix.Sigset_t
	for i := range every.Val {
		every.Val[i] = ^every.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &every, nil); err != nil {
		return nil, fmt.Errorf("block signals: %w", err)
	}
	results := make([]unix.Errno, len(in.Calls))
	for i, c := range in.Calls {
		var a [6]uintptr
		for j, arg := range c.Args {
			a[j] = uintptr(arg)
			if v, ok := known[arg]; ok {
				a[j] = v
			}
		}
		_, _, results[i] = unix.RawSyscall6(uintptr(c.NR), a[0], a[1], a[2], a[3], a[4], a[5])
	}
	return results, nil
}

func placeholders() (map[uint64]uintptr, error) {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return nil, fmt.Errorf("pidfd_open: %w", err)
	}
	inet, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	return map[uint64]uintptr{emptyPath: addressOf(page), selfPidfd: uintptr(pidfd), inetFD: uintptr(inet)}, nil
}

// try makes the calls of the table in a child under the filters and returns their errnos.
func try(t *testing.T, filters [][]byte, table []attempt) []unix.Errno {
	t.Helper()
	in := tryInput{Filters: filters}
	for _, a := range table {
		nr, err := number(a.name)
		if err != nil {
			t.Fatalf("%s: %v", a.name, err)
		}
		in.Calls = append(in.Calls, call{NR: int(nr), Args: a.args})
	}
	var results []unix.Errno
	kerneltest.Child{Name: "try", Input: in, Reply: &results}.Run(t)
	return results
}
