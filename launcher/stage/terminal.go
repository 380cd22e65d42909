package stage

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openTerminal makes a pty in the view's own devpts, so that its name means the same inside as /proc says, makes it
// the controlling terminal of pid 1's session and sends its master home. It returns the slave.
//
// Pid 1 is the session leader and the target gets a process group of its own in that session: a target that led the
// session itself would be an orphaned group, and the kernel drops its SIGTSTP (setpgid(2), "orphaned process group").
func openTerminal(uid, gid uint32) (*os.File, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("terminal: open ptmx: %w", err)
	}
	defer master.Close()
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, fmt.Errorf("terminal: unlock pty: %w", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, fmt.Errorf("terminal: pty number: %w", err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("terminal: open pty: %w", err)
	}
	if err := slave.Chown(int(uid), int(gid)); err != nil {
		slave.Close()
		return nil, fmt.Errorf("terminal: owner of pty: %w", err)
	}
	if err := unix.IoctlSetInt(int(slave.Fd()), unix.TIOCSCTTY, 0); err != nil {
		slave.Close()
		return nil, fmt.Errorf("terminal: take as controlling terminal: %w", err)
	}
	if err := Send(StatusFD, Message{Type: MsgTerminal}, fd); err != nil {
		slave.Close()
		return nil, err
	}
	// The target must not run before the pty looks like the user's terminal: what it sets itself would be undone.
	m, err := receiveOrder(StatusFD)
	if err == nil && m.Type != MsgDressed {
		err = fmt.Errorf("terminal: order %d instead of MsgDressed", m.Type)
	}
	if err != nil {
		slave.Close()
		return nil, err
	}
	return slave, nil
}
