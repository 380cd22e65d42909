package host

import (
	"slices"
	"testing"

	"github.com/sharness/sharness/launcher/mountinfo"
)

func TestLayoutNamesTheHierarchies(t *testing.T) {
	const (
		v1  = "36 31 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n40 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
		cpu = "37 31 0:37 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
		v2  = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	)
	for name, c := range map[string]struct {
		mounts, own, controllers string
		want                     CgroupMode
		version                  int
		path                     string
	}{
		"unified":            {v2, "0::/user.slice\n", "cpu memory pids", CgroupUnified, 2, "/user.slice"},
		"v1":                 {v1 + cpu, "8:pids:/a\n4:memory:/b\n", "", CgroupV1, 1, "/a"},
		"hybrid":             {v1 + v2, "8:pids:/a\n0::/c\n", "", CgroupHybrid, 1, "/a"},
		"nothing":            {"", "", "", CgroupNone, 0, ""},
		"no pids controller": {v2, "0::/\n", "cpu", CgroupUnified, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			mounts, err := mountinfo.Parse(c.mounts)
			if err != nil {
				t.Fatal(err)
			}
			got := layout(mounts, c.own, func(string) string { return c.controllers }, func(string) bool { return true })
			if got.Mode != c.want {
				t.Errorf("mode: got %s, want %s", got.Mode, c.want)
			}
			if p := got.Controllers["pids"]; p.Version != c.version || p.Own != c.path {
				t.Errorf("pids: got %+v, want version %d path %q", p, c.version, c.path)
			}
		})
	}
}

func TestKeyctlErratumEndsWhereStableSeriesWereFixed(t *testing.T) {
	for release, want := range map[string]bool{
		"5.15.164": true, "5.15.165": false,
		"6.1.102": true, "6.1.103": false, "6.1.176": false,
		"6.2.16": true, // ended before the fix
		"6.6.43": true, "6.6.44-foo": false,
		"6.10.2": true, "6.10.3": false,
		"6.11.0": false, "6.18.44-fc": false, "7.2.13": false,
		"6.1.0-48-amd64": true, // a module ABI hides the patch level: the doubt stands
		"strange":        true,
	} {
		if got := keyctlErratum(release, "#1 SMP"); got != want {
			t.Errorf("%s: got %v, want %v", release, got, want)
		}
	}
}

func TestKeyctlErratumReadsDebiansPatchLevel(t *testing.T) {
	const release = "6.1.0-48-amd64"
	for version, want := range map[string]bool{
		"#1 SMP PREEMPT_DYNAMIC Debian 6.1.176-1 (2026-09-01)": false,
		"#1 SMP PREEMPT_DYNAMIC Debian 6.1.99-1 (2024-07-15)":  true,
		"#1 SMP PREEMPT_DYNAMIC Debian 6.6.99-1 (2024-07-15)":  true, // another series says nothing
	} {
		if got := keyctlErratum(release, version); got != want {
			t.Errorf("%s: got %v, want %v", version, got, want)
		}
	}
}

func TestParseCapabilitiesReadsTheEffectiveSet(t *testing.T) {
	got, err := parseCapabilities("Name:\tx\nCapPrm:\tffffffff\nCapEff:\t0000020000200001\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"CAP_CHOWN", "CAP_SYS_ADMIN", "CAP_41"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := parseCapabilities("Name:\tx\n"); err == nil {
		t.Error("a status without CapEff was accepted")
	}
}

func TestFixedDoubtsAKernelThatCannotSay(t *testing.T) {
	bits := 0b101
	l := Landlock{ABI: 6, Errata: &bits}
	for n, want := range map[int]bool{1: true, 2: false, 3: true} {
		if got := l.Fixed(n); got != want {
			t.Errorf("erratum %d: got %v, want %v", n, got, want)
		}
	}
	if (Landlock{ABI: 6}).Fixed(1) {
		t.Error("no errata interface counted as fixed")
	}
}

func TestChosenReadsLockdown(t *testing.T) {
	for line, want := range map[string]string{"none [integrity] confidentiality": "integrity", "[none] integrity": "none", "": ""} {
		if got := chosen(line); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}
