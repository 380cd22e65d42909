package confine

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// SetIDs empties the supplementary groups and sets real, effective and saved ids, groups first because they need the
// capabilities that go with uid 0. It clears PDEATHSIG and the dumpable flag's off state (setresuid(2)): whoever needs
// them sets them again. Id 0 is refused, and so is -1, which means "leave as is" to the kernel.
func SetIDs(uid, gid int) error {
	if err := droppable(uid, gid); err != nil {
		return err
	}
	// These three of package syscall act on every thread.
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	if err := syscall.Setresgid(gid, gid, gid); err != nil {
		return fmt.Errorf("setresgid %d: %w", gid, err)
	}
	if err := syscall.Setresuid(uid, uid, uid); err != nil {
		return fmt.Errorf("setresuid %d: %w", uid, err)
	}
	return idsAre(uid, gid)
}

func droppable(uid, gid int) error {
	const unchanged = 1<<32 - 1
	if uid <= 0 || gid <= 0 || uid >= unchanged || gid >= unchanged {
		return fmt.Errorf("set ids %d:%d: not ids to drop to", uid, gid)
	}
	return nil
}

func idsAre(uid, gid int) error {
	// The calls of package unix give a C int.
	if r, e, s := unix.Getresuid(); uint32(r) != uint32(uid) || uint32(e) != uint32(uid) || uint32(s) != uint32(uid) {
		return fmt.Errorf("setresuid %d: reads back %d,%d,%d", uid, r, e, s)
	}
	if r, e, s := unix.Getresgid(); uint32(r) != uint32(gid) || uint32(e) != uint32(gid) || uint32(s) != uint32(gid) {
		return fmt.Errorf("setresgid %d: reads back %d,%d,%d", gid, r, e, s)
	}
	groups, err := unix.Getgroups()
	if err != nil {
		return fmt.Errorf("getgroups: %w", err)
	}
	if len(groups) != 0 {
		return errors.New("setgroups: supplementary groups are left")
	}
	return nil
}
