package launcher

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
)

// Under systemd every mount of the host is shared. A machine without it would never show the difference.
func TestCloneOfASharedMountIsNobodysPeer(t *testing.T) {
	kerneltest.RequireRoot(t)
	base := t.TempDir()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never given back: the thread ends with its mount namespace
		done <- peerless(t, base)
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func peerless(t *testing.T, base string) error {
	shared, view := filepath.Join(base, "shared"), filepath.Join(base, "view")
	if err := errors.Join(os.Mkdir(shared, 0o755), os.Mkdir(view, 0o755), unix.Unshare(unix.CLONE_NEWNS),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("tmpfs", shared, "tmpfs", 0, ""), unix.Mount("", shared, "", unix.MS_SHARED, ""),
		os.Mkdir(shared+"/ours", 0o755), os.Mkdir(shared+"/hosts", 0o755)); err != nil {
		return err
	}
	for name, c := range map[string]clone{"one": {set: attrData}, "recursive": {set: attrData, recursive: true}} {
		f, err := cloneMount(shared, c)
		if err != nil {
			return err
		}
		if err := errors.Join(unix.MoveMount(int(f.Fd()), "", unix.AT_FDCWD, view, unix.MOVE_MOUNT_F_EMPTY_PATH), f.Close(),
			unix.Mount("tmpfs", view+"/ours", "tmpfs", 0, ""), unix.Mount("tmpfs", shared+"/hosts", "tmpfs", 0, "")); err != nil {
			return err
		}
		if device(t, shared+"/ours") != device(t, shared) {
			t.Errorf("%s: what is mounted in the view appears outside", name)
		}
		if device(t, view+"/hosts") != device(t, view) {
			t.Errorf("%s: what is mounted outside appears in the view", name)
		}
		if err := errors.Join(unix.Unmount(view+"/ours", 0), unix.Unmount(view, unix.MNT_DETACH), unix.Unmount(shared+"/hosts", 0)); err != nil {
			return err
		}
	}
	return nil
}

func device(t *testing.T, path string) uint64 {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Errorf("stat %s: %v", path, err)
	}
	return st.Dev
}
