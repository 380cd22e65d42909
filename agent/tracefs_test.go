package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
)

func init() { children["untracefs"] = untracefsChild }

// untracefsChild hides tracefs, as containers and hardened hosts do, and traces a program that is refused an exec.
func untracefsChild(input json.RawMessage) (any, error) {
	dir, err := decodeInput[string](input)
	if err != nil {
		return nil, err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("private mounts: %w", err)
	}
	for _, place := range []string{"/sys/kernel/tracing", "/sys/kernel/debug"} {
		if _, err := os.Stat(place); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := unix.Mount("none", place, "tmpfs", 0, ""); err != nil {
			return nil, fmt.Errorf("hide %s: %w", place, err)
		}
	}
	for _, place := range []string{"/sys/kernel/tracing/events", "/sys/kernel/debug/tracing"} {
		if _, err := os.Stat(place); err == nil {
			return nil, fmt.Errorf("%s is still there", place)
		}
	}
	tracer, err := Load(Options{Cgroups: []string{dir}})
	if err != nil {
		return nil, err
	}
	r := newRecorder(policy)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error)
	go func() { done <- tracer.Run(ctx, r) }()
	group, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/bin/sh", "-c", "exec /etc/passwd")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	if err := cmd.Run(); err == nil {
		return nil, errors.New("/etc/passwd was executed")
	}
	cancel()
	if err := errors.Join(<-done, tracer.Close()); err != nil {
		return nil, err
	}
	r.Finish(time.Now())
	return len(r.denials()), nil
}

func TestTracesWhereTracefsIsHidden(t *testing.T) {
	g := newGroup(t, "")
	var events int
	kerneltest.Child{Name: "untracefs", Input: g.dir, Reply: &events, Setup: func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	}}.Run(t)
	if events != 1 {
		t.Errorf("%d events, want the one denial", events)
	}
}
