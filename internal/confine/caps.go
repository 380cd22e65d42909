package confine

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// DropBounding empties the capability bounding set. It needs CAP_SETPCAP, and so comes before ClearCaps. The caller
// keeps the capabilities that it has.
func DropBounding() error { return dropBounding(prctlAll) }

func dropBounding(prctl prctlFunc) error {
	for c := 0; ; c++ {
		has, err := prctlGet("PR_CAPBSET_READ", unix.PR_CAPBSET_READ, c, 0)
		if errors.Is(err, unix.EINVAL) {
			return boundingEmpty(c) // the kernel has no capability of this number
		}
		if err != nil {
			return err
		}
		if has == 0 {
			continue
		}
		if err := prctl("PR_CAPBSET_DROP", unix.PR_CAPBSET_DROP, uintptr(c), 0); err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
}

func boundingEmpty(count int) error {
	for c := range count {
		has, err := prctlGet("PR_CAPBSET_READ", unix.PR_CAPBSET_READ, c, 0)
		if err != nil {
			return err
		}
		if has != 0 {
			return fmt.Errorf("drop capability %d from the bounding set: still there", c)
		}
	}
	return nil
}

// ClearCaps empties the permitted, effective, inheritable and ambient sets. It needs no privilege.
func ClearCaps() error { return clearCaps(prctlAll, syscall.AllThreadsSyscall) }

func clearCaps(prctl prctlFunc, call callFunc) error {
	if err := prctl("PR_CAP_AMBIENT_CLEAR_ALL", unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0); err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, errno := call(unix.SYS_CAPSET,
		uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0)
	runtime.KeepAlive(&header)
	runtime.KeepAlive(&none)
	if errno != 0 {
		return fmt.Errorf("capset: %w", errno)
	}
	return capsEmpty()
}

func capsEmpty() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var got [2]unix.CapUserData
	if err := unix.Capget(&header, &got[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	if got != [2]unix.CapUserData{} {
		return fmt.Errorf("capset: reads back %x", got)
	}
	return nil
}

// capable says whether the calling thread has the capability in its effective set.
func capable(c int) (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var got [2]unix.CapUserData
	if err := unix.Capget(&header, &got[0]); err != nil {
		return false, fmt.Errorf("capget: %w", err)
	}
	return got[c/32].Effective&(1<<(c%32)) != 0, nil
}

// Securebits of capabilities(7), from linux/securebits.h. KEEP_CAPS itself is left off.
const (
	secbitNoRoot               = 1 << 0
	secbitNoRootLocked         = 1 << 1
	secbitNoSetuidFixup        = 1 << 2
	secbitNoSetuidFixupLocked  = 1 << 3
	secbitKeepCapsLocked       = 1 << 5
	secbitNoAmbientRaise       = 1 << 6
	secbitNoAmbientRaiseLocked = 1 << 7

	securebits = secbitNoRoot | secbitNoRootLocked | secbitNoSetuidFixup | secbitNoSetuidFixupLocked |
		secbitKeepCapsLocked | secbitNoAmbientRaise | secbitNoAmbientRaiseLocked
)

// LockSecurebits makes uid 0 an ordinary uid for this process and all that it starts, for good. It needs CAP_SETPCAP.
// A change of uid no longer drops capabilities afterwards: ClearCaps must follow SetIDs.
func LockSecurebits() error { return lockSecurebits(prctlAll) }

func lockSecurebits(prctl prctlFunc) error {
	if err := prctl("PR_SET_SECUREBITS", unix.PR_SET_SECUREBITS, securebits, 0); err != nil {
		return err
	}
	got, err := prctlGet("PR_GET_SECUREBITS", unix.PR_GET_SECUREBITS, 0, 0)
	if err != nil {
		return err
	}
	if got != securebits {
		return fmt.Errorf("prctl PR_SET_SECUREBITS: reads back %#x", got)
	}
	return nil
}
