package main

import (
	"path/filepath"
	"testing"

	"github.com/sharness/sharness/event"
	"golang.org/x/sys/unix"
)

// Who may write in a git directory may put a configuration there, which the user's git obeys whoever owns it.
func TestSideDoor_FileGit_OthersDoNotGetToWriteWhereToolsObey(t *testing.T) {
	s := start(t, `umask 022; git init -q .; git init -q shared; chmod 2775 shared/.git; git init -q open; chmod 0777 open/.git; mkdir .claude build`, "")
	s.sh(`umask 022; chmod 0777 .git .claude build; touch shared/.git/x open/.git/x; chmod 0775 shared
git init -q new; chmod 0777 new/.git new/.git/hooks; chmod 0666 new/.git/config; git init -q --bare bare; chmod 0733 bare; mkdir -p .config/nvim; chmod 0777 .config
mkdir pretend; ln -s ../build pretend/config; mkdir pretend/objects pretend/refs`)
	if r := s.sweep(); r.A == 0 || r.C != 0 {
		t.Errorf("sweep: got %+v, want something taken back and nothing failed", r)
	}
	want := "755 .git\n755 .claude\n777 build\n2775 shared/.git\n755 shared\n777 open/.git\n775 new/.git\n775 new/.git/hooks\n664 new/.git/config\n731 bare"
	if got := s.sh(`stat -c '%a %n' .git .claude build shared/.git shared open/.git new/.git new/.git/hooks new/.git/config bare`); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, rel := range []string{"/.git", "/.claude", "new/.git/config"} {
		s.await("the event of "+rel, func() bool {
			return s.saw(event.FileQuarantined, "file-git", rel) || s.saw(event.FileQuarantined, "file-config", rel)
		})
	}
}

// everybody is an access control list in the kernel's form (linux/posix_acl_xattr.h): version 2, then tag, rights and id of
// owner, group and others, who may all do anything.
const everybody = "\x02\x00\x00\x00\x01\x00\x07\x00\xff\xff\xff\xff\x04\x00\x07\x00\xff\xff\xff\xff\x20\x00\x07\x00\xff\xff\xff\xff"

// Where a folder has a default list, no umask keeps from others what the user makes in it.
func TestSideDoor_FileGit_OthersGetNoListWhereToolsObey(t *testing.T) {
	const list = "system.posix_acl_default"
	s := start(t, `umask 022; git init -q .; git init -q own; mkdir -p .claude plain`, "")
	set := func(rel string) {
		t.Helper()
		if err := unix.Setxattr(filepath.Join(s.root, rel), list, []byte(everybody), 0); err != nil {
			t.Fatalf("default list of %s: %v", rel, err)
		}
	}
	s.sh(`git init -q new`)
	for _, rel := range []string{"", ".git", ".claude", "plain", "new/.git", "new/.git/hooks"} {
		set(rel)
	}
	if r := s.sweep(); r.A < 5 || r.C != 0 {
		t.Errorf("sweep: got %+v, want five taken away and nothing failed", r)
	}
	for rel, want := range map[string]bool{"": false, ".git": false, ".claude": false, "plain": true, "new/.git": false, "new/.git/hooks": false} {
		n, err := unix.Getxattr(filepath.Join(s.root, rel), list, nil)
		if has := err == nil && n > 0; has != want {
			t.Errorf("%q has a default list: %v (%v), want %v", rel, has, err, want)
		}
	}
	s.sh(`umask 022; mkdir .git/later; touch .git/later/x`)
	if got := s.sh(`stat -c %a .git/later .git/later/x`); got != "755\n644" {
		t.Errorf("what the user makes then has the modes %q, want the umask's", got)
	}
}
