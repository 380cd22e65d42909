package launcher

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/internal/kerneltest"
	"github.com/sharness/sharness/launcher/pin"
	"github.com/sharness/sharness/launcher/protect"
	"github.com/sharness/sharness/launcher/stage"
	"github.com/sharness/sharness/manifest"
)

// layersUID is the id of the domains here and of the files they work on: an ordinary user whom no session is given, and
// no other run of these tests either.
var layersUID = 1900090000 + os.Getpid()%9000

// layersSite is a session of which only the parts are there that make plans, and what it works on.
type layersSite struct {
	t         *testing.T
	s         *Session
	sp        *spawner
	base      string
	ws, probe string
	outside   *os.File // network namespace that stands for the host's
	groups    int
}

// helpersBeside puts the programs of the stage beside the test binary, where Helper looks. The go command removes the
// folder.
var helpersBeside = sync.OnceValue(func() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, name := range []string{"sharness-init", "sharness-bash", "sharness-box"} {
		if err := copyProgram(name, filepath.Join(filepath.Dir(self), name)); err != nil {
			return err
		}
	}
	return nil
})

func copyProgram(name, to string) error {
	data, err := os.ReadFile(filepath.Join("..", "bin", name))
	if err != nil {
		return fmt.Errorf("%w; run: make build", err)
	}
	return os.WriteFile(to, data, 0o755)
}

// newLayersSite makes the session around a build of the probe. The thread of the test moves into a network namespace of
// its own: what a domain without one reaches is that, and not the machine's.
func newLayersSite(t *testing.T, build string) *layersSite {
	t.Helper()
	kerneltest.RequireRoot(t)
	kerneltest.RequireLandlock(t, 6)
	kerneltest.RequireMemfdNoexec(t)
	if err := helpersBeside(); err != nil {
		t.Fatal(err)
	}
	// Not below /tmp or /var/tmp: a domain may write there, and a Landlock rule reaches what is mounted below.
	base, err := os.MkdirTemp("/var/lib", "sharness-layers-")
	if err != nil {
		t.Fatal(err)
	}
	x := &layersSite{t: t, base: base, ws: filepath.Join(base, "ws"), probe: filepath.Join(base, "probe"), sp: newSpawner()}
	t.Cleanup(func() { os.RemoveAll(base) })
	t.Cleanup(x.nothingLeft)
	t.Cleanup(func() { close(x.sp.work) })
	x.enterOutside()
	if err := errors.Join(os.Chmod(base, 0o755), os.Mkdir(x.ws, 0o755), os.Chown(x.ws, layersUID, layersUID), os.Mkdir(filepath.Join(base, "run"), 0o755),
		copyProgram(build, x.probe)); err != nil {
		t.Fatal(err)
	}
	x.session()
	return x
}

// nothingLeft looks for what is this site's own: other tests may run beside it.
func (x *layersSite) nothingLeft() {
	for _, where := range []struct{ glob, text string }{
		{"/proc/[0-9]*/status", fmt.Sprintf("Uid:\t%d\t", layersUID)}, {"/proc/self/mountinfo", x.base}, {"/proc/[0-9]*/cgroup", x.group("")},
	} {
		paths, err := filepath.Glob(where.glob)
		if err != nil {
			x.t.Fatal(err)
		}
		for _, p := range paths {
			if data, err := os.ReadFile(p); err == nil && strings.Contains(string(data), where.text) {
				x.t.Errorf("left behind: %s", p)
			}
		}
	}
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		if groups, err := filepath.Glob(pattern + x.group("*")); err != nil || len(groups) > 0 {
			x.t.Errorf("left behind: %v %v", groups, err)
		}
	}
}

// group stands beside the groups of sessions, whose garbage collection would take it for the leftover of a dead one.
func (x *layersSite) group(n string) string {
	return fmt.Sprintf("/sharness-layers-%d-%s", os.Getpid(), n)
}

// enterOutside locks the test to its thread, which ends with it.
func (x *layersSite) enterOutside() {
	x.t.Helper()
	runtime.LockOSThread()
	ns, _, err := makeNetNS(nil)
	if err != nil {
		x.t.Fatal(err)
	}
	x.outside = ns
	x.t.Cleanup(func() { ns.Close() })
}

func (x *layersSite) session() {
	x.t.Helper()
	c, err := pin.Resolve(x.probe, "")
	if err != nil {
		x.t.Fatal(err)
	}
	m := (&manifest.Manifest{Version: manifest.Version, Name: "layers", Command: []string{x.probe}, Exec: c.Exec, Libraries: c.Libraries, Read: []string{"/usr"},
		Workspace: manifest.Workspace{Path: x.ws, Orchestrator: manifest.AccessWrite}, Limits: manifest.Limits{Tmp: 32 << 20}}).WithDefaults()
	x.s = &Session{Manifest: m, ID: "layers", UID: layersUID, User: User{UID: layersUID, GID: layersUID}, Dir: filepath.Join(x.base, "run")}
	if x.s.Workspace, err = openWorkspace(x.ws); err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() {
		x.s.Workspace.Close()
		for _, ns := range x.s.userns.byUID {
			ns.close()
		}
	})
	if err := x.s.prepare(nil); err != nil {
		x.t.Fatal(err)
	}
	l, err := net.Listen("unix", x.s.socketPath())
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { l.Close() })
}

// orchestrator is the plan that a session would run the probe with.
func (x *layersSite) orchestrator(args ...string) (*stage.Plan, *view) {
	x.t.Helper()
	if err := x.s.pin(); err != nil {
		x.t.Fatal(err)
	}
	v, err := x.s.orchestratorView(nil)
	if err != nil {
		x.t.Fatal(err)
	}
	argv := append([]string{x.probe}, args...)
	p := x.s.orchestratorPlan(v, &protect.Set{}, argv, []string{"PATH=/usr/bin:/bin", "HOME=" + x.ws}, x.ws)
	x.sameUID(p)
	return p, v
}

// command is the plan of all commands, and the folders of the user's that go with it.
func (x *layersSite) command() (p *stage.Plan, v, own *view) {
	x.t.Helper()
	v, err := x.s.sharedView()
	if err != nil {
		x.t.Fatal(err)
	}
	if own, err = x.s.ownView(slotUID(x.s.UID, 0)); err != nil {
		x.t.Fatal(err)
	}
	return x.s.commandPlan(v, own), v, own
}

// sandboxes makes sandboxes from such a plan. netns nil is one of its own for each.
func (x *layersSite) sandboxes(p *stage.Plan, v, own *view, netns *os.File) (*sandboxes, *box) {
	x.t.Helper()
	sv := &server{s: x.s, sp: x.sp, set: &protect.Set{}, netns: netns}
	boxes := newSandboxes(sv)
	boxes.group = func(int, uint64) (*cgroup, error) {
		x.groups++
		return newCgroup(x.group(strconv.Itoa(x.groups)), cgroupLimits{pids: 512})
	}
	late := attached(own)
	own.close()
	b, err := x.sp.startBox(p, v)
	if err != nil {
		x.t.Fatal(err)
	}
	b.late = late
	boxes.box = b
	x.t.Cleanup(boxes.close)
	return boxes, b
}

// runCommand runs a script in a sandbox of its own and returns what it printed.
func (x *layersSite) runCommand(boxes *sandboxes, b *box, script string) (string, error) {
	x.t.Helper()
	request, err := wire.SealCommand(wire.Command{Path: viewBash, Argv: []string{"bash", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Cwd: x.ws})
	if err != nil {
		x.t.Fatal(err)
	}
	defer request.Close()
	r, w, err := os.Pipe()
	if err != nil {
		x.t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	sb, err := boxes.prepare(b, nil, nil)
	if err != nil {
		return "", err
	}
	err = boxes.run(sb, []*os.File{request, w, w, w})
	w.Close()
	if err != nil {
		return "", errors.Join(err, boxes.end(sb))
	}
	timer := time.AfterFunc(time.Minute, sb.kill)
	out, err := io.ReadAll(r)
	timer.Stop()
	sb.next()
	return string(out), errors.Join(err, boxes.end(sb))
}

// sameUID leaves out the one check that no domain here could pass: the files it works on are its own.
func (x *layersSite) sameUID(p *stage.Plan) {
	p.Probe = slices.DeleteFunc(p.Probe, func(c stage.Check) bool { return c.Try == stage.TryUID })
}

// start runs a plan to its end and returns what the target printed. netns nil is one of its own.
func (x *layersSite) start(p *stage.Plan, v *view, netns *os.File) (string, error) {
	x.t.Helper()
	x.groups++
	cg, err := newCgroup(x.group(strconv.Itoa(x.groups)), cgroupLimits{pids: 512})
	if err != nil {
		x.t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		x.t.Fatal(err)
	}
	defer r.Close()
	if err := x.s.within(p, v); err != nil {
		x.t.Fatal(err)
	}
	d, err := x.sp.startDomain(p, v, stdio{files: [3]*os.File{nil, w, w}}, cg, netns)
	w.Close()
	if err != nil {
		return "", errors.Join(err, cg.kill(), cg.delete())
	}
	timer := time.AfterFunc(time.Minute, d.kill)
	out, err := io.ReadAll(r)
	timer.Stop()
	d.next()
	return string(out), errors.Join(err, d.end())
}

func (x *layersSite) attributes(p *stage.Plan, v *view, set, clear uint64, targets ...string) {
	x.t.Helper()
	if err := x.s.setAttributes(p, v, set, clear, targets...); err != nil {
		x.t.Fatal(err)
	}
}
