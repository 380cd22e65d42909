package stage

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// loopbackUp brings lo up in the network namespace of the calling process: programs that talk to themselves need it,
// and nothing else exists there.
func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("net: socket: %w", err)
	}
	defer unix.Close(s)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("net: lo: %w", err)
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("net: bring lo up: %w", err)
	}
	return nil
}
