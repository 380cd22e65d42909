package launcher

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/launcher/stage"
	"golang.org/x/sys/unix"
)

// newCommands is a site with sandboxes of commands.
func newCommands(t *testing.T) (*layersSite, *sandboxes, *box) {
	t.Helper()
	x := newLayersSite(t, "sharness-probe")
	p, v, own := x.command()
	boxes, b := x.sandboxes(p, v, own, nil)
	return x, boxes, b
}

// refuses gives a sandbox a request and returns why it did not run.
func (x *layersSite) refuses(boxes *sandboxes, b *box, request *os.File) error {
	x.t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		x.t.Fatal(err)
	}
	defer null.Close()
	sb, err := boxes.prepare(b, nil, nil)
	if err != nil {
		x.t.Fatal(err)
	}
	err = boxes.run(sb, []*os.File{request, null, null, null})
	return errors.Join(err, boxes.end(sb))
}

func TestCommandOutsideTheWorkspaceIsRefused(t *testing.T) {
	x, boxes, b := newCommands(t)
	if err := os.Symlink("/usr", filepath.Join(x.ws, "out")); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/", "/usr", "/tmp", x.ws + "/..", x.ws + "/out", x.ws + "/gone", x.ws + "-beside", "/proc/self/root"} {
		request, err := wire.SealCommand(wire.Command{Path: viewBash, Argv: []string{"bash"}, Cwd: dir})
		if err != nil {
			t.Fatal(err)
		}
		err = x.refuses(boxes, b, request)
		request.Close()
		if err == nil || !errors.Is(asCwd(err), errCwd) || strings.Contains(err.Error(), dir) && dir != "/" {
			t.Errorf("%s: want it refused, and not repeated, got %v", dir, err)
		}
	}
}

func TestSandboxTakesNothingButARequest(t *testing.T) {
	x, boxes, b := newCommands(t)
	good, err := wire.Command{Path: viewBash, Argv: []string{"bash"}, Cwd: x.ws}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"nothing": nil, "garbage": []byte(strings.Repeat("garbage\x00", 40)), "one byte less": good[:len(good)-1]} {
		fd, err := stage.SealedMemfd("test", data)
		if err != nil {
			t.Fatal(err)
		}
		request := os.NewFile(uintptr(fd), "request")
		err = x.refuses(boxes, b, request)
		request.Close()
		if err == nil || !strings.Contains(err.Error(), "stage: request") || strings.Contains(err.Error(), "garbage") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for path, want := range map[string]string{"/usr/bin/no-such-program": "no such file", "/etc/hosts": "permission denied"} {
		request, err := wire.SealCommand(wire.Command{Path: path, Argv: []string{"x"}, Cwd: x.ws})
		if err != nil {
			t.Fatal(err)
		}
		err = x.refuses(boxes, b, request)
		request.Close()
		if err == nil || !strings.Contains(err.Error(), "stage: exec: "+want) {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

func TestSandboxThatCannotBeMadeNamesTheStepThatFailed(t *testing.T) {
	x := newLayersSite(t, "sharness-probe")
	for _, c := range []struct {
		name    string
		without func(p *stage.Plan)
		want    string
	}{
		{"the last filter", func(p *stage.Plan) { p.Seccomp[len(p.Seccomp)-1] = []byte("garbage!") }, "stage: seccomp: invalid argument"},
		{"a limit", func(p *stage.Plan) { p.Rlimits = append(p.Rlimits, stage.Rlimit{Resource: 99}) }, "stage: rlimit 99: invalid argument"},
	} {
		p, v, own := x.command()
		p.Seccomp = slices.Clone(p.Seccomp)
		c.without(p)
		boxes, b := x.sandboxes(p, v, own, nil)
		if _, err := boxes.prepare(b, nil, nil); err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%s: want %q, got %v", c.name, c.want, err)
		}
	}
}

func TestNothingOfACommandIsLeftWhenItsEndIsTold(t *testing.T) {
	x, boxes, b := newCommands(t)
	request, err := wire.SealCommand(wire.Command{Path: viewBash, Argv: []string{"bash", "-c", "setsid sleep 1000 & (sleep 1000 & trap '' TERM HUP; sleep 1000) & exit 3"},
		Env: []string{"PATH=/usr/bin"}, Cwd: x.ws})
	if err != nil {
		t.Fatal(err)
	}
	defer request.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	sb, err := boxes.prepare(b, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer boxes.end(sb)
	if err := boxes.run(sb, []*os.File{request, null, null, null}); err != nil {
		t.Fatal(err)
	}
	if got := sb.next(); got != (exit{status: 3, left: true, told: true}) {
		t.Errorf("got %+v", got)
	}
	for _, dir := range sb.cgroup.dirs[:1] {
		procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil && !errors.Is(err, unix.ENODEV) {
			t.Fatal(err)
		}
		if n := len(strings.Fields(string(procs))); n > 1 { // pid 1 itself may not have gone yet
			t.Errorf("%d processes are left", n)
		}
	}
}

func TestSandboxThatDiedWhileItWaitedIsNotTaken(t *testing.T) {
	_, boxes, b := newCommands(t)
	var waits []*sandbox
	for range 2 {
		sb, err := boxes.prepare(b, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		waits = append(waits, sb)
	}
	boxes.ready = append(boxes.ready, waits...)
	if err := unix.Kill(waits[0].pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-waits[0].reaped
	if got := boxes.pop(b); got != waits[1] {
		t.Fatalf("got %p, want the one that lives, %p", got, waits[1])
	}
	boxes.filler.Wait()
	if err := boxes.end(waits[1]); err != nil {
		t.Error(err)
	}
}

func TestSandboxesOutliveTheirMakerAndItIsReplaced(t *testing.T) {
	x, boxes, b := newCommands(t)
	sb, err := boxes.prepare(b, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.kill()
	select {
	case <-sb.reaped:
		t.Error("the sandbox ended with sharness-box")
	default:
	}
	if err := boxes.run(sb, []*os.File{x.outside, x.outside, x.outside, x.outside}); !errors.Is(err, errBoxGone) {
		t.Errorf("got %v", err)
	}
	if err := boxes.end(sb); err != nil {
		t.Error(err)
	}
}
