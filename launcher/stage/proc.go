package stage

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// writeSysctls writes the sysctls of the new namespaces and reads each back. It comes before maskProc: behind a mask
// they cannot be written any more, and a value that was not taken would leave a door open in silence.
func writeSysctls(list []Sysctl) error {
	for _, s := range list {
		path := "/proc/sys/" + s.Path
		if err := os.WriteFile(path, []byte(s.Value), 0); err != nil {
			return fmt.Errorf("sysctl: write %s: %w", s.Path, err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("sysctl: read back %s: %w", s.Path, err)
		}
		if strings.TrimSpace(string(got)) != s.Value {
			return fmt.Errorf("sysctl: %s is %q after %q was written", s.Path, strings.TrimSpace(string(got)), s.Value)
		}
	}
	return nil
}

// maskProc hides and write-protects what of /proc reaches beyond the namespaces. A path that this kernel does not have
// needs no mask.
func maskProc(mask, readOnly []string) error {
	for _, p := range mask {
		p = strings.TrimSuffix(p, "/")
		fi, err := os.Lstat(p)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("proc: look at %s: %w", p, err)
		}
		m := Mount{Target: p, Bind: "/dev/null", IsFile: true}
		if fi.IsDir() {
			const attr = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
			m = Mount{Target: p, Fstype: "tmpfs", Data: "mode=0555,size=4k,nr_inodes=2", Set: attr}
		}
		if err := attach(m); err != nil {
			return err
		}
	}
	for _, p := range readOnly {
		if _, err := os.Lstat(p); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := attach(Mount{Target: p, Bind: p, Set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return err
		}
	}
	return nil
}
