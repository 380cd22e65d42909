package stage

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"

	"github.com/sharness/sharness/internal/confine"
	"golang.org/x/sys/unix"
)

// The descriptors that Enter starts with, besides 0-2. The last is there for sharness-box alone, as are the two before it
// (its errand.h).
const (
	enterPlanFD    = 3
	enterReportFD  = 4
	enterReleaseFD = 5
	enterBoxFD     = 8
)

// Enter is the child of pid 1: it gives up everything, proves it, and executes the target. It returns only on failure.
func Enter() int {
	runtime.LockOSThread()
	unix.CloseOnExec(enterReportFD)
	plan, err := readPlan(enterPlanFD)
	if err == nil {
		err = enter(plan)
	}
	report := os.NewFile(enterReportFD, "report")
	if _, werr := io.WriteString(report, err.Error()); werr != nil {
		fmt.Fprintln(os.Stderr, "sharness-init:", err)
	}
	return 125
}

func enter(p *Plan) error {
	// Nothing above the standard streams may cross the exec; the EOF of the report pipe is what tells of it.
	if err := confine.CloexecAbove(); err != nil {
		return err
	}
	uid, gid := p.UID, p.GID
	if p.Inside != nil {
		uid, gid = p.Inside.UID, p.Inside.GID
	}
	if err := giveUp(confine.Thread{}, uid, gid); err != nil {
		return err
	}
	// Landlock after the ids: a rule is bound to a file that the target itself can reach. Before seccomp, whose
	// allowlist need not hold what only the stage calls.
	if err := p.Landlock.Restrict(); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	for i, prog := range p.Seccomp {
		if err := (confine.Thread{}).LoadSeccomp(prog); err != nil {
			return fmt.Errorf("seccomp: filter %d: %w", i, err)
		}
	}
	// The probe comes once pid 1 has given up its privileges too: against a pid 1 with another uid, file permissions
	// would answer for Landlock.
	if err := waitRelease(enterReleaseFD); err != nil {
		return err
	}
	for _, c := range p.Probe {
		if err := c.run(); err != nil {
			return err
		}
	}
	if err := changeDir(p.Cwd, p.CwdBelow); err != nil {
		return fmt.Errorf("cwd %s: %w", p.Cwd, err)
	}
	if err := resetSignals(); err != nil {
		return err
	}
	// A dumpable target again: exec resets it, as it resets signal handlers.
	return fmt.Errorf("exec %s: %w", p.Path, syscall.Exec(p.Path, p.Argv, p.Env))
}

// waitRelease waits for pid 1's word that it is ready. EOF without it means that pid 1 could not get ready.
func waitRelease(fd int) error {
	f := os.NewFile(uintptr(fd), "release")
	defer f.Close()
	if n, err := io.ReadFull(f, make([]byte, 1)); n != 1 {
		return fmt.Errorf("pid 1 did not get ready: %w", err)
	}
	return nil
}

// changeDir enters the working directory and asks the kernel where it is: the text of a path proves nothing, links in
// it may lead anywhere in the view.
func changeDir(dir string, below []string) error {
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	if len(below) == 0 {
		return nil
	}
	got, err := unix.Getwd()
	if err != nil {
		return err
	}
	for _, b := range below {
		b = strings.TrimSuffix(b, "/")
		if got == b || strings.HasPrefix(got, b+"/") {
			return nil
		}
	}
	return fmt.Errorf("outside %s: %w", strings.Join(below, ", "), unix.EACCES)
}
