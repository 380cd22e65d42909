package resolve

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/launcher/host"
	"github.com/sharness/sharness/manifest"
)

var yes = host.Trial{State: host.Yes}

func missing(cause string) host.Trial { return host.Trial{State: host.No, Cause: cause} }

// newest is Debian's 7.2 as it was measured, with root's capabilities.
func newest() *host.Features {
	errata := 0xf
	f := &host.Features{
		Kernel: "7.2.13+deb-amd64",
		Capabilities: []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP",
			"CAP_NET_ADMIN", "CAP_SYS_ADMIN"},
		Landlock:   host.Landlock{ABI: 10, Errata: &errata},
		Seccomp:    host.Seccomp{Filter: yes, Actions: []string{"kill_process", "errno", "log", "allow"}},
		Namespaces: map[string]host.Trial{},
		Cgroup: host.Cgroup{Mode: host.CgroupUnified, Unified: "/sys/fs/cgroup", Controllers: map[string]host.Controller{
			"pids": {Version: 2, Writable: true}, "memory": {Version: 2, Writable: true},
		}},
		Idmap:       []host.Idmap{{Path: "/", Fstype: "ext4", Trial: yes}},
		MemfdNoexec: yes, MountNoSymfollow: yes, OpenTree: yes, Openat2: yes, CloseRange: yes, Pidfd: yes, PeerPidfd: yes,
		ExecveCheck: yes, MemfdCreate: yes, CgroupKill: yes, BTF: yes, Tracefs: yes,
		CorePattern: new("core"),
	}
	for _, ns := range []string{"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"} {
		f.Namespaces[ns] = yes
	}
	return f
}

// at is a kernel with this Landlock ABI; errata nil: it has no errata interface.
func at(abi int, errata *int, change func(*host.Features)) *host.Features {
	f := newest()
	f.Landlock = host.Landlock{ABI: abi, Errata: errata}
	if change != nil {
		change(f)
	}
	return f
}

func bits(n int) *int { return &n }

func decide(t *testing.T, m *manifest.Manifest, f *host.Features, allow ...string) *Decision {
	t.Helper()
	d, err := Resolve(m, f, allow)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func find(t *testing.T, d *Decision, id string) Door {
	t.Helper()
	for _, door := range d.Doors {
		if door.ID == id {
			return door
		}
	}
	t.Fatalf("no door %s", id)
	return Door{}
}

func TestEveryKernelWeKnowClosesEveryDoor(t *testing.T) {
	noMemfd := func(f *host.Features) { f.MemfdNoexec = missing("ENOENT") }
	for name, c := range map[string]struct {
		f      *host.Features
		abi    int
		scoped bool
	}{
		"6.1":  {at(2, nil, noMemfd), 2, false},
		"6.12": {at(6, bits(0xf), nil), 6, true},
		"6.18": {at(7, bits(0x7), nil), 7, true},
		"7.2":  {newest(), 10, true},
		// A kernel newer than this program is used at the newest ABI the program knows.
		"future": {at(14, bits(0xff), nil), 10, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := decide(t, nil, c.f)
			if err := d.Err(); err != nil {
				t.Errorf("got %v, want a start", err)
			}
			if d.Landlock.ABI != c.abi || d.Landlock.Scoped != c.scoped {
				t.Errorf("landlock: got %+v, want ABI %d scoped %v", d.Landlock, c.abi, c.scoped)
			}
		})
	}
}

func TestErratum2TakesTheScopesLoudly(t *testing.T) {
	for name, errata := range map[string]*int{"not fixed": bits(0b101), "cannot say": nil} {
		t.Run(name, func(t *testing.T) {
			d := decide(t, nil, at(6, errata, nil))
			if d.Landlock.ABI != 5 || d.Landlock.Scoped {
				t.Errorf("got %+v, want ABI 5 without scopes", d.Landlock)
			}
			if !strings.Contains(strings.Join(d.Landlock.Lacks, "\n"), "erratum 2") {
				t.Errorf("got %q, want the erratum named", d.Landlock.Lacks)
			}
			if sig := find(t, d, "sig"); !sig.Closed || slices.Contains(sig.By, sidedoor.Landlock) {
				t.Errorf("sig: got %+v, want closed, but not by landlock", sig)
			}
		})
	}
}

func TestWhatOneMissingFeatureOpens(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*host.Features)
		open   []string // doors that stop the start, exactly
	}{
		"landlock":     {func(f *host.Features) { f.Landlock = host.Landlock{Cause: "not started"} }, []string{"exec-interp", "file-fifo", "cmd-reach"}},
		"memfd_noexec": {func(f *host.Features) { f.MemfdNoexec = missing("ENOENT") }, nil},
		"nosymfollow":  {func(f *host.Features) { f.MountNoSymfollow = missing("EINVAL") }, nil},
		"execve_check": {func(f *host.Features) { f.ExecveCheck = missing("EINVAL") }, nil},
		"peer_pidfd":   {func(f *host.Features) { f.PeerPidfd = missing("ENOPROTOOPT") }, nil},
		"btf":          {func(f *host.Features) { f.BTF = missing("no such file") }, nil},
		"tracefs":      {func(f *host.Features) { f.Tracefs = missing("not mounted") }, nil},
		"cgroup_kill":  {func(f *host.Features) { f.CgroupKill = missing("no such file") }, nil},
		"seccomp": {func(f *host.Features) { f.Seccomp.Filter = missing("EINVAL") },
			[]string{"exec-ldso", "exec-abi", "ns", "file-suid", "kernel", "net-family", "file-lease", "core-helper", "orch-bomb", "cmd-reach", "cmd-bomb"}},
		"seccomp errno": {func(f *host.Features) { f.Seccomp.Actions = []string{"allow", "kill_process"} },
			[]string{"exec-ldso", "exec-abi", "ns", "file-suid", "kernel", "net-family", "file-lease", "core-helper", "orch-bomb", "cmd-reach", "cmd-bomb"}},
		"net namespace": {func(f *host.Features) { f.Namespaces["net"] = missing("EINVAL") },
			[]string{"exec-interp", "net-host", "net-udp", "net-listen", "net-sni", "cmd-reach"}},
		"pid namespace": {func(f *host.Features) { f.Namespaces["pid"] = missing("EINVAL") }, []string{"exec-interp", "cmd-reach"}},
		"mount namespace": {func(f *host.Features) { f.Namespaces["mnt"] = missing("EPERM") },
			[]string{"exec-ldso", "exec-inject", "unix-path", "file-git", "file-meta", "cmd-reach"}},
		"open_tree":         {func(f *host.Features) { f.OpenTree = missing("ENOSYS") }, []string{"exec-ldso", "exec-inject", "unix-path", "file-git", "file-meta", "cmd-reach"}},
		"pids controller":   {func(f *host.Features) { delete(f.Cgroup.Controllers, "pids") }, []string{"orch-bomb", "cmd-bomb"}},
		"memory controller": {func(f *host.Features) { f.Cgroup.Controllers["memory"] = host.Controller{Version: 2} }, []string{"orch-bomb", "cmd-bomb"}},
		"close_range":       {func(f *host.Features) { f.CloseRange = missing("ENOSYS") }, []string{"inherit-fd"}},
		"core handler":      {func(f *host.Features) { f.CorePattern = new("|/usr/lib/systemd/systemd-coredump %P") }, nil},
		"core socket":       {func(f *host.Features) { f.CorePattern = new("@/run/core.sock") }, []string{"core-helper"}},
		"core socket, v2":   {func(f *host.Features) { f.CorePattern = new("@@/run/core.sock") }, []string{"core-helper"}},
		"core_pattern":      {func(f *host.Features) { f.CorePattern = nil }, []string{"core-helper"}},
		// An answer that nobody could get does not count as a wall.
		"unknown": {func(f *host.Features) { f.CloseRange = host.Trial{State: host.Unknown, Cause: "EPERM"} }, []string{"inherit-fd"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newest()
			c.change(f)
			d := decide(t, nil, f)
			var open []string
			for _, door := range d.Open() {
				open = append(open, door.ID)
				if door.Reason() == "" {
					t.Errorf("%s is open without a reason", door.ID)
				}
				if door.Fix() == "" {
					t.Errorf("%s is open without a way to close it", door.ID)
				}
			}
			if !slices.Equal(open, c.open) {
				t.Errorf("open: got %v, want %v", open, c.open)
			}
			if (d.Err() == nil) != (len(c.open) == 0) {
				t.Errorf("error: got %v", d.Err())
			}
		})
	}
}

func TestOpenDoorStopsTheStartUntilItIsAllowedByName(t *testing.T) {
	f := newest()
	f.CloseRange = missing("ENOSYS")
	err := decide(t, nil, f).Err()
	var open *OpenError
	if !errors.As(err, &open) {
		t.Fatalf("got %v, want an OpenError", err)
	}
	const want = "door left open on this host: inherit-fd (close_range: ENOSYS); to start all the same: --allow-open inherit-fd"
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	d := decide(t, nil, f, "inherit-fd")
	if err := d.Err(); err != nil {
		t.Errorf("allowed by name: got %v, want a start", err)
	}
	if door := find(t, d, "inherit-fd"); door.Closed || door.Allowed != AllowedByFlag {
		t.Errorf("got %+v, want it open and allowed by the flag", door)
	}
	if gaps := d.Gaps(); len(gaps) != 1 || gaps[0].Name != sidedoor.FD {
		t.Errorf("gaps: got %+v, want the layer that is missing", gaps)
	}
}

func TestSocketForCoresStopsTheStartByTheDoorsName(t *testing.T) {
	f := newest()
	f.CorePattern = new("@/run/core.sock")
	const want = "door left open on this host: core-helper (kernel.core_pattern is a socket, which no limit keeps a core from); to start all the same: --allow-open core-helper"
	if err := decide(t, nil, f).Err(); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := decide(t, nil, f, "core-helper").Err(); err != nil {
		t.Errorf("allowed by name: got %v, want a start", err)
	}
}

func TestAllowOpenRefusesUnknownDoors(t *testing.T) {
	if _, err := Resolve(nil, newest(), []string{"exec-dircet"}); err == nil || !strings.Contains(err.Error(), "exec-dircet") {
		t.Errorf("got %v, want the name", err)
	}
}

func TestAllowOpenDoesNotOpenAClosedDoor(t *testing.T) {
	if door := find(t, decide(t, nil, newest(), "ns"), "ns"); !door.Closed || door.Allowed != "" {
		t.Errorf("got %+v, want closed", door)
	}
}

func TestMemfdInTheManifestOpensOnlyItsDoors(t *testing.T) {
	m := &manifest.Manifest{Memfd: true}
	d := decide(t, m, newest())
	if err := d.Err(); err != nil {
		t.Fatal(err)
	}
	if door := find(t, d, "exec-memfd"); !door.Closed || !slices.Equal(door.By, []sidedoor.Layer{sidedoor.Memfd}) {
		t.Errorf("exec-memfd: got %+v, want closed by memfd alone", door)
	}
	if door := find(t, d, "exec-ldso"); door.Closed || door.Allowed != AllowedByManifest {
		t.Errorf("exec-ldso: got %+v, want open by the manifest", door)
	}
	old := at(2, nil, func(f *host.Features) { f.MemfdNoexec = missing("ENOENT") })
	const want = "door left open on this host: exec-memfd"
	if err := decide(t, m, old).Err(); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("without memfd_noexec: got %v, want %s", err, want)
	}
	if err := decide(t, m, old, "exec-memfd").Err(); err != nil {
		t.Errorf("without memfd_noexec, allowed by name: got %v, want a start", err)
	}
	// The manifest speaks of memfds, not of a root that cannot be built.
	noView := newest()
	noView.OpenTree = missing("ENOSYS")
	if door := find(t, decide(t, m, noView), "exec-ldso"); door.Allowed != "" {
		t.Errorf("exec-ldso without a view: got %+v, want it to stop the start", door)
	}
}

func TestKeyctlErratumNeedsTheFilter(t *testing.T) {
	f := newest()
	f.Landlock.KeyctlErratum = true
	if d := decide(t, nil, f); !d.Holds(sidedoor.Landlock) {
		t.Error("with the filter: landlock does not hold, want it to")
	}
	f.Seccomp.Filter = missing("EINVAL")
	if d := decide(t, nil, f); d.Holds(sidedoor.Landlock) {
		t.Error("without the filter: landlock holds, want it not to")
	}
}

func TestRequirementsNoFlagReplaces(t *testing.T) {
	every := func() []string {
		var ids []string
		for _, door := range sidedoor.Doors() {
			ids = append(ids, door.ID)
		}
		return ids
	}()
	zero := 0
	for name, c := range map[string]struct {
		change func(*host.Features)
		want   string
	}{
		"not root": {func(f *host.Features) { f.UID, f.Capabilities = 1000, nil }, "running as uid 1000"},
		"no CAP_KILL": {func(f *host.Features) {
			f.Capabilities = slices.DeleteFunc(f.Capabilities, func(c string) bool { return c == "CAP_KILL" })
		}, "CAP_KILL"},
		"no ipc":         {func(f *host.Features) { f.Namespaces["ipc"] = missing("EINVAL") }, "ipc namespace"},
		"no pidfd":       {func(f *host.Features) { f.Pidfd = missing("ENOSYS") }, "pidfd_open: ENOSYS"},
		"no idmap":       {func(f *host.Features) { f.Idmap[0] = host.Idmap{Path: "/w", Fstype: "nfs4", Trial: missing("EINVAL")} }, "/w lies on nfs4"},
		"no user ns":     {func(f *host.Features) { f.MaxUserNS = &zero; f.Idmap[0].Trial = missing("ENOSPC") }, "max_user_namespaces is 0"},
		"nothing at all": {func(f *host.Features) { *f = host.Features{} }, "this host cannot run a session"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newest()
			c.change(f)
			err := decide(t, nil, f, every...).Err()
			var lack *LackError
			if !errors.As(err, &lack) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want a LackError with %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, want one line", err)
			}
		})
	}
}

func TestEveryLayerOfTheCatalogueIsDecided(t *testing.T) {
	known := walls(newest())
	for _, door := range sidedoor.Doors() {
		for _, l := range door.Layers {
			if _, ok := known[l]; !ok || !slices.Contains(layerOrder, l) {
				t.Errorf("door %s: layer %s is not decided", door.ID, l)
			}
		}
	}
	if len(known) != len(layerOrder) {
		t.Errorf("got %d layers decided and %d shown, want the same", len(known), len(layerOrder))
	}
}

func TestUnixPathNamesTheSocketsBelowABI9(t *testing.T) {
	if door := find(t, decide(t, nil, at(7, bits(7), nil)), "unix-path"); !strings.Contains(door.Rest, "workspace") {
		t.Errorf("ABI 7: got %q, want the rest named", door.Rest)
	}
	if door := find(t, decide(t, nil, newest()), "unix-path"); door.Rest != "" {
		t.Errorf("ABI 10: got %q, want nothing left", door.Rest)
	}
}
