package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Drop is what a helper process gives up for good once it is set up.
type Drop struct {
	Keep     []int    // inherited descriptors to keep; all other inherited ones above 2 are closed
	Landlock Landlock // must have an ABI; no Paths means no file, no TCP no port
	Seccomp  [][]byte // filter.Compile of a helper
}

// Self confines the calling process: descriptors, capabilities, Landlock, seccomp, on every thread. The ids are not its
// business: the supervisor started the helper with them. A process that Self failed on must end.
func Self(d Drop) error {
	if d.Landlock.ABI == 0 || len(d.Seccomp) == 0 {
		return errors.New("confine: a helper without Landlock or without seccomp is not confined")
	}
	if err := self(d); err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	return nil
}

func self(d Drop) error {
	// Started by descriptor, the process bears its number; tools that list processes should show the program's name.
	if err := os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0); err != nil {
		return err
	}
	// Reads /proc, which the Landlock domain closes.
	if err := CloseAbove(d.Keep...); err != nil {
		return err
	}
	// A helper started with an ordinary uid has no capability, and then cannot empty the bounding set either;
	// no_new_privs makes what is left in it worthless.
	privileged, err := capable(unix.CAP_SETPCAP)
	if err != nil {
		return err
	}
	if privileged {
		if err := errors.Join(DropBounding(), LockSecurebits()); err != nil {
			return err
		}
	}
	if err := ClearCaps(); err != nil {
		return err
	}
	if err := NoNewPrivs(); err != nil {
		return err
	}
	if err := NotDumpable(); err != nil {
		return err
	}
	if err := d.Landlock.Restrict(); err != nil {
		return err
	}
	// Last: a helper's filter allows none of the calls above.
	for _, prog := range d.Seccomp {
		if err := LoadSeccomp(prog); err != nil {
			return err
		}
	}
	return nil
}
