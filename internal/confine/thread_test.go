package confine

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/sharness/sharness/internal/kerneltest"
)

// What the thread gives up is what a program has that it executes, whatever the other threads of the process kept.
func TestThreadGivesUpForWhatItExecutes(t *testing.T) {
	kerneltest.RequireRoot(t)
	done := make(chan error, 1)
	var status []byte
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var th Thread
		for _, step := range []func() error{th.DropBounding, th.LockSecurebits, func() error { return th.SetIDs(1900299900, 1900299900) }, th.ClearCaps, th.NoNewPrivs} {
			if err := step(); err != nil {
				done <- err
				return
			}
		}
		var err error
		status, err = os.ReadFile("/proc/thread-self/status")
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000",
		"CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Uid:\t1900299900\t1900299900\t1900299900\t1900299900", "Groups:\t \n"} {
		if !strings.Contains(string(status), line) {
			t.Errorf("status lacks %q:\n%s", line, status)
		}
	}
	if os.Getuid() != 0 {
		t.Error("another thread lost its uid")
	}
}
