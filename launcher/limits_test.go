package launcher

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/cgroups/v3"
)

func TestShareOfAGroupIsWhatTheKernelSaysOfIt(t *testing.T) {
	dir, err := os.Open("/var/tmp")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	s, err := shareFor(50, 150, 0, 50<<20, dir)
	if err != nil {
		t.Fatal(err) // the tests want /var/tmp on a disk
	}
	want := map[string]string{"cpu.weight": "50", "cpu.max": "150000 100000", "io.max": s.io.device + " rbps=max wbps=52428800 riops=max wiops=max"}
	if cgroups.Mode() != cgroups.Unified {
		want = map[string]string{"cpu.shares": "512", "cpu.cfs_quota_us": "150000", "blkio.throttle.write_bps_device": s.io.device + " 52428800"}
	}
	c := testGroup(t, "share", cgroupLimits{pids: 8, share: &s})
	for name, value := range want {
		got := ""
		for _, dir := range c.dirs {
			if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				got = strings.TrimSpace(string(data))
			}
		}
		if got != value {
			t.Errorf("%s: got %q, want %q", name, got, value)
		}
	}
	if out, err := runIn(c, "/bin/echo", "in"); err != nil || out != "in\n" {
		t.Errorf("a member: %q, %v", out, err)
	}
}

func TestLimitOnTheDiskIsRefusedWhereThereIsNone(t *testing.T) {
	shm, err := os.Open("/dev/shm")
	if err != nil {
		t.Fatal(err)
	}
	defer shm.Close()
	if _, err := shareFor(0, 0, 1<<20, 0, shm); err == nil || !strings.Contains(err.Error(), "no block device of its own") {
		t.Errorf("a tmpfs: got %v", err)
	}
	if _, err := shareFor(0, 50, 0, 0, shm); err != nil {
		t.Errorf("without a limit on io: %v", err)
	}
}

func TestDeviceOfAPartitionIsItsDisk(t *testing.T) {
	sys := t.TempDir()
	for path, content := range map[string]string{"disk/dev": "8:0\n", "disk/part/dev": "8:1\n", "disk/part/partition": "1\n"} {
		file := filepath.Join(sys, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"8:0": "disk", "8:1": "disk/part"} {
		if err := os.Symlink(to, filepath.Join(sys, link)); err != nil {
			t.Fatal(err)
		}
	}
	for minor := range uint32(2) {
		if got, err := wholeDevice(sys, 8, minor); err != nil || got != "8:0" {
			t.Errorf("8:%d: got %q, %v, want 8:0", minor, got, err)
		}
	}
	if got, err := wholeDevice(sys, 0, 45); err == nil {
		t.Errorf("0:45: got %q, want an error", got)
	}
}
