package launcher

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sharness/sharness/internal/confine"
	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/internal/sidedoor/attempt"
	"github.com/sharness/sharness/internal/sidedoor/bait"
	"github.com/sharness/sharness/launcher/stage"
	"golang.org/x/sys/unix"
)

// siteBait lies out in the network namespace that the test's thread is in. With the second file the probe knows that it
// may signal pid 1, and waits for a watcher that no plan has; with the first it does neither.
func (x *layersSite) siteBait() (file, private string) {
	x.t.Helper()
	outside, state := filepath.Join(x.base, "bait"), filepath.Join(x.base, "state")
	if err := errors.Join(os.Chown(x.ws, 0, 0), bait.Repository(x.ws, layersUID, layersUID), os.Mkdir(outside, 0o755), os.Mkdir(state, 0o755), os.Chown(state, layersUID, layersUID)); err != nil {
		x.t.Fatal(err)
	}
	static := filepath.Join(x.base, "static")
	if err := copyProgram("sharness-probe", static); err != nil {
		x.t.Fatal(err)
	}
	p, err := bait.Plant(bait.Config{Dir: outside, Workspace: x.ws, State: state, UID: layersUID, GID: layersUID, Probe: static})
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() {
		if err := p.Close(); err != nil {
			x.t.Error(err)
		}
	})
	var st unix.Stat_t
	if err := unix.Fstat(int(x.outside.Fd()), &st); err != nil {
		x.t.Fatal(err)
	}
	p.Bait.HostNetNS = st.Ino // Plant saw the machine's, which is not where its sockets are
	file, private = filepath.Join(x.ws, "bait.json"), filepath.Join(x.ws, "private.json")
	if err := p.Write(private); err != nil {
		x.t.Fatal(err)
	}
	p.Bait.HostPIDNS = 0
	if err := p.Write(file); err != nil {
		x.t.Fatal(err)
	}
	return file, private
}

// attack runs the probe with these layers and no other besides the pid namespace and an ordinary id, and returns what
// it found.
func (x *layersSite) attack(layers []sidedoor.Layer, args ...string) []attempt.Result {
	x.t.Helper()
	has := func(l sidedoor.Layer) bool { return slices.Contains(layers, l) }
	p, v := x.orchestrator(args...)
	p.Probe, p.Rlimits = nil, nil
	if !has(sidedoor.Mount) {
		v.close()
		v = x.hostView(p)
	}
	switch {
	case !has(sidedoor.View):
		x.attributes(p, v, 0, unix.MOUNT_ATTR_NOEXEC)
	case !has(sidedoor.Mount):
		x.attributes(p, v, unix.MOUNT_ATTR_NOEXEC, 0)
	}
	// The rules of the orchestrator's own view, as far as the host's shows what they name. ABI 6 whatever the kernel has:
	// the table must not depend on it.
	p.Landlock.ABI, p.Outer.ABI = 6, 6
	if !has(sidedoor.Mount) {
		p.Landlock.Paths = slices.DeleteFunc(p.Landlock.Paths, func(r confine.PathRule) bool { return below(r.Path, "/run") })
	}
	if !has(sidedoor.Landlock) {
		p.Landlock, p.Outer = confine.Landlock{}, confine.Landlock{}
	}
	if !has(sidedoor.Seccomp) {
		p.Seccomp = nil
	}
	// tcp_fastopen belongs to the network namespace.
	p.Sysctls = slices.DeleteFunc(p.Sysctls, func(s stage.Sysctl) bool {
		return strings.HasPrefix(s.Path, "vm/") && !has(sidedoor.Memfd) || strings.HasPrefix(s.Path, "net/") && !has(sidedoor.Net)
	})
	ns := x.outside
	if has(sidedoor.Net) {
		ns = nil
	}
	out, err := x.start(p, v, ns)
	if err != nil {
		x.t.Fatalf("%v: %v", layers, err)
	}
	var results []attempt.Result
	for line := range strings.Lines(out) {
		var r attempt.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			x.t.Fatalf("%v: %q: %v", layers, line, err)
		}
		results = append(results, r)
	}
	return results
}

// hostView replaces the view of a plan by the host's own trees, as they are: everything exists and may be executed, and
// what an ordinary user may write can be written. Folders that others use have a private tmpfs in their place.
func (x *layersSite) hostView(p *stage.Plan) *view {
	x.t.Helper()
	v := &view{}
	fail := func(err error) {
		if err != nil {
			v.close()
			x.t.Fatal(err)
		}
	}
	for _, dir := range []string{"/usr", "/etc", x.base} {
		m, err := cloneMount(dir, clone{recursive: true})
		fail(err)
		v.attach(m, dir, false)
	}
	for _, link := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		if _, err := os.Readlink(link); err == nil {
			fail(v.link(link))
		}
	}
	fail(v.devices("mode=1777"))
	for _, dir := range []string{"/tmp", "/var/tmp", "/run"} {
		v.mounts = append(v.mounts, stage.Mount{Target: dir, Fstype: "tmpfs", Data: "mode=1777"})
	}
	// Pinned files stay what they are: executable, on mounts of their own.
	fail(x.s.pin())
	for _, e := range x.s.Manifest.Exec {
		x.s.attachPinned(v, e.Path, 0)
	}
	for _, l := range x.s.Manifest.Libraries {
		x.s.attachPinned(v, l.Path, 0)
	}
	p.Mounts, p.Files, p.Links, p.MaskProc, p.ReadProc = v.mounts, nil, v.links, nil, nil
	return v
}
