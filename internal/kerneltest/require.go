// Package kerneltest helps tests that ask the kernel instead of a mock: what a test needs of the machine, children
// that confine themselves, and a check that nothing was left behind.
//
// A requirement skips only when the running kernel is older than the feature. On a kernel that should have it, its
// absence is a failure: a suite that skips its walls would pass on a machine without any.
package kerneltest

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Kernel is a version of Linux.
type Kernel struct{ Major, Minor int }

func (k Kernel) String() string { return fmt.Sprintf("%d.%d", k.Major, k.Minor) }

// Before says whether k is older than other.
func (k Kernel) Before(other Kernel) bool {
	return k.Major < other.Major || (k.Major == other.Major && k.Minor < other.Minor)
}

// Running returns the version of the running kernel.
func Running(t testing.TB) Kernel {
	t.Helper()
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatalf("uname: %v", err)
	}
	release := unix.ByteSliceToString(uts.Release[:])
	var k Kernel
	if _, err := fmt.Sscanf(release, "%d.%d", &k.Major, &k.Minor); err != nil {
		t.Fatalf("uname: read release %q: %v", release, err)
	}
	return k
}

// RequireRoot fails without root: enforcement cannot be tested without it, and a green run without those tests would
// say nothing.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes namespaces and drops ids: run it as root")
	}
}

// landlockSince is the release that brought each ABI (landlock(7)).
var landlockSince = []Kernel{
	1: {5, 13}, 2: {5, 19}, 3: {6, 2}, 4: {6, 7}, 5: {6, 10}, 6: {6, 12}, 7: {6, 15}, 8: {7, 0}, 9: {7, 1}, 10: {7, 2},
}

// RequireLandlock wants a Landlock ABI of at least this number.
func RequireLandlock(t testing.TB, abi int) {
	t.Helper()
	have, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno == 0 && int(have) >= abi {
		return
	}
	missing(t, landlockSince[abi], "Landlock ABI %d (the kernel has %d, %v)", abi, have, errno)
}

// RequireSysctl wants a file below /proc/sys, which came with the release since.
func RequireSysctl(t testing.TB, path string, since Kernel) {
	t.Helper()
	_, err := os.Stat("/proc/sys/" + path)
	if err == nil {
		return
	}
	if !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("ask for sysctl %s: %v", path, err)
	}
	missing(t, since, "sysctl %s", path)
}

// RequireMemfdNoexec wants vm.memfd_noexec.
func RequireMemfdNoexec(t testing.TB) {
	t.Helper()
	RequireSysctl(t, "vm/memfd_noexec", Kernel{6, 3})
}

// RequireExecveCheck wants AT_EXECVE_CHECK.
func RequireExecveCheck(t testing.TB) {
	t.Helper()
	const atExecveCheck = 0x10000
	path, err := unix.BytePtrFromString("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := execveat(path, atExecveCheck); err != nil {
		missing(t, Kernel{6, 14}, "AT_EXECVE_CHECK (%v)", err)
	}
}

// RequireProgram wants a program of the machine; tests of real tools cannot do without them.
func RequireProgram(t testing.TB, path string) {
	t.Helper()
	if err := unix.Access(path, unix.X_OK); err != nil {
		t.Fatalf("this test runs %s: %v", path, err)
	}
}

func missing(t testing.TB, since Kernel, format string, args ...any) {
	t.Helper()
	what := fmt.Sprintf(format, args...)
	if running := Running(t); running.Before(since) {
		t.Skipf("kernel %v is older than %s, which came with %v", running, what, since)
	}
	t.Fatalf("the kernel should have %s since %v", what, since)
}
