package filter

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	scmp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// subtracted are calls that the maintained profile allows to a container without capabilities and a domain must not
// have. They get EPERM, the allowlist's default.
var subtracted = []string{
	"ptrace", "process_vm_readv", "process_vm_writev", // one domain is one uid: only this stops it looking into pid 1
	"process_mrelease",  // ends another process's memory; outside callers are oom daemons
	"name_to_handle_at", // only good for open_by_handle_at, which is not allowed either
	"fanotify_mark",     // fanotify_init is not allowed, so a mark could only go to a descriptor received
	"modify_ldt",        // 16-bit segments: kernel surface that only DOS emulation wants
	"socket",            // replaced by socketRules
}

// absent are calls that must look unimplemented, each because of who falls back from ENOSYS and gives up on EPERM.
func absent(o Options) []string {
	names := []string{
		"clone3",                                                // flags behind a pointer; glibc and musl then use clone (speed.md's third trap: EPERM is final)
		"openat2",                                               // flags and mode behind a pointer: O_CREAT with 06000 could not be seen
		"memfd_secret",                                          // memory that nobody else can inspect
		"io_uring_setup", "io_uring_enter", "io_uring_register", // operations that no filter sees; libuv and Bun probe
		"statmount", "listmount", // libmount reads mountinfo instead
		"file_getattr", "file_setattr", // inode flags; the ioctl remains, with its own checks
		"rseq_slice_yield",
		"io_setup", // contexts come out of fs.aio-max-nr, one number for the whole host; databases and nginx go without
		// libnuma asks it as soon as it is loaded, which pgrep and pkill do by way of libproc2, and takes the machine for one without
		// memory nodes; after any other answer it tries to set a policy, too.
		"get_mempolicy",
	}
	if o.Kind == Orchestrator && !o.Memfd {
		names = append(names, "memfd_create") // JITs fall back to a file or to anonymous memory
	}
	return names
}

// profileRules evaluates the profile that container engines maintain, for a process without any capability on this
// architecture and kernel.
func profileRules() ([]rule, error) {
	kernel, err := kernelVersion()
	if err != nil {
		return nil, err
	}
	var rules []rule
	for _, call := range seccomp.DefaultProfile().Syscalls {
		if !applies(call, kernel) {
			continue
		}
		action, err := profileAction(call)
		if err != nil {
			return nil, err
		}
		conds, err := profileConds(call.Args)
		if err != nil {
			return nil, err
		}
		for _, name := range call.Names {
			rules = append(rules, rule{name: name, action: action, conds: conds})
		}
	}
	return rules, nil
}

// applies says whether a rule holds without capabilities: one that needs any does not, one that excludes some does.
func applies(call *seccomp.Syscall, kernel seccomp.KernelVersion) bool {
	if in := call.Includes; in != nil {
		if len(in.Caps) > 0 || (len(in.Arches) > 0 && !slices.Contains(in.Arches, runtime.GOARCH)) {
			return false
		}
		if in.MinKernel != nil && less(kernel, *in.MinKernel) {
			return false
		}
	}
	if ex := call.Excludes; ex != nil {
		if slices.Contains(ex.Arches, runtime.GOARCH) {
			return false
		}
		if ex.MinKernel != nil && !less(kernel, *ex.MinKernel) {
			return false
		}
	}
	return true
}

func less(a, b seccomp.KernelVersion) bool {
	return a.Kernel < b.Kernel || (a.Kernel == b.Kernel && a.Major < b.Major)
}

func profileAction(call *seccomp.Syscall) (scmp.ScmpAction, error) {
	switch {
	case call.Action == specs.ActAllow:
		return scmp.ActAllow, nil
	case call.Action == specs.ActErrno && call.ErrnoRet != nil:
		return scmp.ActErrno.SetReturnCode(int16(*call.ErrnoRet)), nil
	}
	return 0, fmt.Errorf("profile has an action that is not understood for %v: %s", call.Names, call.Action)
}

func profileConds(args []specs.LinuxSeccompArg) ([]scmp.ScmpCondition, error) {
	var conds []scmp.ScmpCondition
	for _, a := range args {
		switch a.Op {
		case specs.OpEqualTo:
			conds = append(conds, equal(a.Index, a.Value))
		case specs.OpMaskedEqual:
			conds = append(conds, masked(a.Index, a.Value, a.ValueTwo))
		case specs.OpLessThan:
			conds = append(conds, scmp.ScmpCondition{Argument: a.Index, Op: scmp.CompareLess, Operand1: a.Value})
		default:
			return nil, fmt.Errorf("profile has a comparison that is not understood: %s", a.Op)
		}
	}
	return conds, nil
}

// keep drops the rules for the names that this package decides itself.
func keep(rules []rule, lists ...[]string) []rule {
	drop := slices.Concat(lists...)
	return slices.DeleteFunc(rules, func(r rule) bool { return slices.Contains(drop, r.name) })
}

func kernelVersion() (seccomp.KernelVersion, error) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return seccomp.KernelVersion{}, fmt.Errorf("uname: %w", err)
	}
	release := unix.ByteSliceToString(uts.Release[:])
	var v seccomp.KernelVersion
	if _, err := fmt.Sscanf(release, "%d.%d", &v.Kernel, &v.Major); err != nil {
		return v, fmt.Errorf("uname: read release %q: %w", release, err)
	}
	return v, nil
}
