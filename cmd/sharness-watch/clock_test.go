package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/sharness/sharness/internal/kerneltest"
	"github.com/sharness/sharness/launcher/protect"
	"golang.org/x/sys/unix"
)

// coarse mounts a file system whose stamps are whole seconds over the test's temporary folders. The mount is in a
// namespace of the test's thread, which ends with it.
func coarse(t *testing.T) {
	t.Helper()
	kerneltest.RequireRoot(t)
	kerneltest.RequireProgram(t, "/usr/sbin/mkfs.ext4")
	image, err := os.CreateTemp("", "sharness-coarse-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(image.Name()) // the mount holds it
	defer image.Close()
	if err := image.Truncate(32 << 20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("/usr/sbin/mkfs.ext4", "-q", "-I", "128", image.Name()).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v\n%s", err, out)
	}
	at := filepath.Dir(t.TempDir())
	runtime.LockOSThread() // and never given back
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("/bin/mount", "-o", "loop", image.Name(), at).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Errorf("umount: %v", err)
		}
	})
	if fi, err := os.Stat(t.TempDir()); err != nil || fi.ModTime().Nanosecond() != 0 {
		t.Fatalf("the clock of this file system is not coarse: %v, %v", fi.ModTime(), err)
	}
}

// The session comes in the second in which the user's own repository was made, and does its work in the same.
func TestSideDoor_FileGit_NothingOfTheFirstSecondCountsAsTheUsers(t *testing.T) {
	coarse(t)
	s := prepared(t, `git init -q .; git commit -q --allow-empty -m x`, "")
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1100 * time.Millisecond)))
	s.sh(`git init -q mine; git -C mine config alias.x '!mine'; mkfifo pipe; touch setuid; chmod 4755 setuid`)
	s.watch(protect.Config{})
	s.sh(gitlink + `git -C docs config core.fsmonitor "` + evil + `"; mkfifo docs/p; touch docs/s; chmod 4755 docs/s; rm -f ../PWNED`)
	if r := s.sweep(); r.A == 0 || r.C != 0 {
		t.Errorf("sweep: got %+v, want something taken and nothing failed", r)
	}
	s.sh(typed)
	if _, err := os.Stat(filepath.Join(s.root, "../PWNED")); err == nil {
		t.Error("git status ran what the agent had put there")
	}
	if got := s.sh(`git -C mine config alias.x; test -p pipe; test -u setuid; test ! -e docs/p; test ! -u docs/s; echo whole`); got != "!mine\nwhole" {
		t.Errorf("what the user made before the session: got %q", got)
	}
}
