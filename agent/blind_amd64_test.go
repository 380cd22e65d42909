package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/confine"
	"github.com/sharness/sharness/internal/kerneltest"
)

func init() { children["broadcast"] = broadcastChild }

type broadcast struct {
	Errno            syscall.Errno
	Inside, Outsider string // how the two others ended
}

// broadcastChild signals everybody in a pid namespace of its own: one process of its domain, which may be signalled, and one
// with the same ids outside of it, which may not.
func broadcastChild(json.RawMessage) (any, error) {
	if os.Getpid() != 1 {
		return nil, fmt.Errorf("pid %d: this signals everybody, and must be in a namespace of its own", os.Getpid())
	}
	start := func() (*exec.Cmd, error) {
		cmd := exec.Command("/bin/sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody, NoSetGroups: os.Getuid() != 0}}
		return cmd, cmd.Start()
	}
	outsider, err := start()
	if err != nil {
		return nil, err
	}
	if err := confine.SetIDs(nobody, nobody); err != nil {
		return nil, err
	}
	if err := confine.ClearCaps(); err != nil {
		return nil, err
	}
	if err := (confine.Landlock{ABI: 6, Scoped: true}).Restrict(); err != nil {
		return nil, err
	}
	inside, err := start()
	if err != nil {
		return nil, err
	}
	b := broadcast{Errno: raw(unix.SYS_KILL, ^uintptr(0), uintptr(unix.SIGTERM))}
	_ = inside.Wait() // its state says how
	b.Inside = inside.ProcessState.String()
	// The kernel asks for every target before it returns: a signal would have ended this one too. It goes with the namespace.
	if left, err := unix.Wait4(outsider.Process.Pid, nil, unix.WNOHANG, nil); err != nil || left != 0 {
		b.Outsider = fmt.Sprintf("ended: %d, %v", left, err)
	}
	return b, nil
}

// What docs/tracing.md says of signals to everybody: the call succeeds when one target may be signalled, so nothing shows;
// and nobody else got it.
func TestBroadcastThatReachesOneShowsNothingAndReachesNobodyElse(t *testing.T) {
	kerneltest.RequireLandlock(t, 6)
	g := newGroup(t, "")
	var got broadcast
	r := traced(t, g, Options{}, policy, func() {
		kerneltest.Child{Name: "broadcast", Reply: &got, Setup: g.into(t, func(cmd *exec.Cmd) { cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID })}.Run(t)
	})
	if got.Errno != 0 || got.Inside != "signal: terminated" || got.Outsider != "" {
		t.Fatalf("got %+v, want the signal to end the process of the domain and no other", got)
	}
	if events := r.denials(); len(events) != 0 {
		t.Errorf("got %d events: the refusal shows after all, and the documents are wrong", len(events))
	}
}

// A loader that is not closed runs a file, and nothing was refused: what shows is that it ran.
func TestLoaderThatRunsAFileShowsAsARunOnly(t *testing.T) {
	g := newGroup(t, "")
	const loader = "/lib64/ld-linux-x86-64.so.2"
	r := traced(t, g, Options{}, policy, func() { inGroup(t, g, loader, "/bin/true") })
	if events := r.denials(); len(events) != 0 {
		t.Errorf("got %d events of denials, want none: no errno says so", len(events))
	}
	ran := false
	for _, e := range r.raw {
		ran = ran || e.Kind == Exec && rules.loader(e.Exe.Text)
	}
	if !ran {
		t.Errorf("the run of %s was not seen", loader)
	}
}
