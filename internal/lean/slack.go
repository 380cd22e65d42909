package lean

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Slack is by how much the kernel may let a thread of a long-lived process of ours sleep longer than it asked for, in
// nanoseconds. While a goroutine runs, the Go runtime's monitor looks every 20 µs whether another thread is needed
// (runtime, sysmon); that took a tenth of the processor time of a command. Nothing here waits for less than some
// milliseconds.
const Slack = 1_000_000

// Drowse gives the slack to the threads of this process, and so to those that they start, and returns the slack that the
// process was started with. Threads other than the calling one take CAP_SYS_NICE: a helper without it inherits the slack
// from the thread that starts it.
var Drowse = sync.OnceValue(func() (usual uintptr) {
	usual = ThreadSlack()
	threads, err := filepath.Glob("/proc/self/task/[0-9]*")
	if err != nil {
		return usual // the pattern is well-formed
	}
	for _, t := range threads {
		// By the number alone: below task/ the kernel has no such file. An error leaves the thread as it was.
		_ = os.WriteFile(filepath.Join("/proc", filepath.Base(t), "timerslack_ns"), []byte(strconv.Itoa(Slack)), 0)
	}
	return usual
})

// ThreadSlack is the slack of the calling thread (prctl(2)).
func ThreadSlack() uintptr {
	ns, _, _ := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_GET_TIMERSLACK, 0, 0)
	return ns
}

// SetThreadSlack sets it, for the processes too that the thread starts from then on.
func SetThreadSlack(ns uintptr) {
	_, _, _ = unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, ns, 0)
}
