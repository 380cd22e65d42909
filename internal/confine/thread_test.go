package confine

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/sharness/sharness/internal/kerneltest"
)

// What the thread gives up is what a program has that it executes, whatever the other threads of the process kept.
func TestThreadGivesUpForWhatItExecutes(t *testing.T) {
	kerneltest.RequireRoot(t)
	for _, id := range []int{1900299900, 1<<32 - 2} { // the last is the largest
		t.Run(strconv.Itoa(id), func(t *testing.T) { threadGivesUp(t, id) })
	}
}

func threadGivesUp(t *testing.T, id int) {
	done := make(chan error, 1)
	var status []byte
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var th Thread
		for _, step := range []func() error{th.DropBounding, th.LockSecurebits, func() error { return th.SetIDs(id, id) }, th.ClearCaps, th.NoNewPrivs} {
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
		"CapAmb:\t0000000000000000", "NoNewPrivs:\t1", fmt.Sprintf("Uid:\t%d\t%d\t%d\t%d", id, id, id, id), "Groups:\t \n"} {
		if !strings.Contains(string(status), line) {
			t.Errorf("status lacks %q:\n%s", line, status)
		}
	}
	if os.Getuid() != 0 {
		t.Error("another thread lost its uid")
	}
}
