package attempt

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Child is what the probe does when it is started with a word in place of flags: by its own attempts as a listed
// program to inject into, and by the harness as bait. It returns the exit status.
func Child(word string) int {
	switch word {
	case "noop":
		return 0
	case "mark":
		Mark()
		return 0
	case "payload": // a script of the workspace got this far
		return PayloadStatus
	case "sleep":
		unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
		for {
			unix.Pause()
		}
	case "victim":
		return victim()
	}
	fmt.Fprintf(os.Stderr, "sharness-probe: unknown word %q\n", word)
	return 2
}

// victim stands outside and counts the signals that reach it. It lets anyone of its uid trace it (yama asks that), and
// listens on the socket its SHARNESS_BAIT_SOCKET names. It says "ready", ends when its standard input does, and prints
// its counts.
func victim() int {
	unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0)
	unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	var got atomic.Int64
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, winch)
	go func() {
		for range signals {
			got.Add(1)
		}
	}()
	if path := os.Getenv("SHARNESS_BAIT_SOCKET"); path != "" {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
		}
		if err == nil {
			err = unix.Listen(fd, 64)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "sharness-probe: victim: listen on %s: %v\n", path, err)
			return 2
		}
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	fmt.Println(got.Load())
	return 0
}
