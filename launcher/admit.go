package launcher

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// peer is who is at the other end of an accepted connection.
type peer struct {
	unix.Ucred
	pidfd int // -1 below kernel 6.5
}

// peerOf asks the kernel who connected. The pidfd pins the process while its cgroup is looked up, so that the number
// cannot mean another one (SO_PEERPIDFD, kernel 6.5).
func peerOf(fd int) (peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return peer{pidfd: -1}, fmt.Errorf("peer credentials: %w", err)
	}
	p := peer{Ucred: *cred, pidfd: -1}
	if n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
		p.pidfd = n
	}
	return p, nil
}

// admitGroup admits processes of one uid in one cgroup.
func admitGroup(uid int, cg *cgroup) func(peer) error {
	return func(p peer) error {
		if int(p.Uid) != uid {
			return fmt.Errorf("uid %d is not the orchestrator's", p.Uid)
		}
		in, err := cg.contains(int(p.Pid))
		if err != nil {
			return fmt.Errorf("cgroup of pid %d: %w", p.Pid, err)
		}
		if !in {
			return fmt.Errorf("pid %d is not of this session", p.Pid)
		}
		if p.pidfd >= 0 {
			// Still the process that connected: signal 0 through its pidfd.
			if err := unix.PidfdSendSignal(p.pidfd, 0, nil, 0); err != nil {
				return fmt.Errorf("pid %d: %w", p.Pid, err)
			}
		}
		return nil
	}
}

// admitRoot admits root alone: a session without orchestrator serves its host.
func admitRoot(p peer) error {
	if p.Uid != 0 {
		return fmt.Errorf("uid %d is not root", p.Uid)
	}
	return nil
}
