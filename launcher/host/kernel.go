package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/launcher/mountinfo"
)

// readKernel fills what the kernel says about itself and about this process.
func (f *Features) readKernel() error {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return fmt.Errorf("uname: %w", err)
	}
	f.Kernel = unix.ByteSliceToString(uts.Release[:])
	f.Version = unix.ByteSliceToString(uts.Version[:])
	f.Machine = unix.ByteSliceToString(uts.Machine[:])
	f.UID = unix.Geteuid()
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return err
	}
	if f.Capabilities, err = parseCapabilities(string(status)); err != nil {
		return err
	}
	f.MaxUserNS = readInt("/proc/sys/user/max_user_namespaces")
	f.LegacyTIOCSTI = readInt("/proc/sys/dev/tty/legacy_tiocsti")
	f.CorePattern = CorePattern()
	f.YamaScope = readInt("/proc/sys/kernel/yama/ptrace_scope")
	if lsms := readWord("/sys/kernel/security/lsm"); lsms != "" {
		f.LSMs = strings.Split(lsms, ",")
	}
	f.Lockdown = chosen(readWord("/sys/kernel/security/lockdown"))
	return nil
}

// readTracing fills what the event agent needs.
func (f *Features) readTracing(mounts []mountinfo.Mount) {
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	f.BTF = fileOutcome(err)
	f.Tracefs = Trial{State: No, Cause: "not mounted"}
	for _, m := range mounts {
		if m.FSType == "tracefs" {
			f.Tracefs = yes
		}
	}
}

func fileOutcome(err error) Trial {
	switch {
	case err == nil:
		return yes
	case errors.Is(err, fs.ErrNotExist):
		return Trial{State: No, Cause: "no such file"}
	default:
		return outcome(err, false)
	}
}

// readInt returns the number in a one-line file, or nil when there is none to be read.
func readInt(path string) *int {
	n, err := strconv.Atoi(readWord(path))
	if err != nil {
		return nil
	}
	return &n
}

func readWord(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// chosen is the bracketed word of "none [integrity] confidentiality".
func chosen(line string) string {
	_, rest, ok := strings.Cut(line, "[")
	if !ok {
		return ""
	}
	word, _, _ := strings.Cut(rest, "]")
	return word
}

// CorePattern reads kernel.core_pattern (core(5)), which may change at any time. It is nil where it cannot be read.
func CorePattern() *string {
	data, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil {
		return nil
	}
	return new(strings.TrimSuffix(string(data), "\n"))
}
