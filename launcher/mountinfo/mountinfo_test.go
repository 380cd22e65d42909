package mountinfo

import "testing"

func TestParseUndoesEscapes(t *testing.T) {
	mounts, err := Parse(`28 27 0:25 / /mnt/a\040b\134c ro shared:1 master:2 - tmpfs none ro` + "\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := `/mnt/a b\c`; mounts[0].Point != want {
		t.Errorf("got %q, want %q", mounts[0].Point, want)
	}
	if _, err := Parse("28 27 0:25 /\n"); err == nil {
		t.Error("a short line was accepted")
	}
}

func TestOfPrefersTheLatestAndDeepest(t *testing.T) {
	mounts := []Mount{{Point: "/", FSType: "ext4"}, {Point: "/dev/shm", FSType: "tmpfs"}, {Point: "/dev/shm", FSType: "ramfs"}}
	for path, want := range map[string]string{"/": "ext4", "/dev/shm/x": "ramfs", "/dev/shmx": "ext4"} {
		if m, ok := Of(mounts, path); !ok || m.FSType != want {
			t.Errorf("%s: got %q, want %q", path, m.FSType, want)
		}
	}
}
