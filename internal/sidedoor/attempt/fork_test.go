package attempt

import (
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// A child that a fault ends dies by it at once, whatever other threads of the parent were in the middle of at the fork.
func TestFaultEndsAForkedChild(t *testing.T) {
	target, err := NewTarget(Bait{Workspace: t.TempDir()}, Birth{})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for range 2 * runtime.NumCPU() {
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					runtime.GC()
				}
			}
		})
	}
	defer busy.Wait()
	defer close(stop)
	for i := range 200 {
		target.begin()
		bad := call{abi: foreign, code: target.bytes([]byte{0xc3})} // ret, where nothing may be executed
		if _, err := target.forked(bad); err != (killed{unix.SIGSEGV}) {
			t.Fatalf("child %d: %v, want it killed by SIGSEGV", i, err)
		}
	}
}
