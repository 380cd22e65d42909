package launcher

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/internal/sidedoor/attempt"
	"github.com/sharness/sharness/internal/sidedoor/bait"
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
	p, err := bait.Plant(bait.Config{Dir: outside, Workspace: x.ws, State: state, UID: layersUID, GID: layersUID, Probe: static, Unlisted: "/usr/bin/env"})
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
	// ABI 6 whatever the kernel has: the table must not depend on it.
	p.Landlock.ABI, p.Outer.ABI = 6, 6
	x.s.proof = &Proof{Without: []sidedoor.Layer{sidedoor.Rlimit}}
	defer func() { x.s.proof = nil }()
	for _, l := range aloneLayers {
		if !has(l) {
			x.s.proof.Without = append(x.s.proof.Without, l)
		}
	}
	v, err := x.s.strip(p, v)
	if err != nil {
		x.t.Fatal(err)
	}
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
