package main

import (
	"testing"

	"github.com/sharness/sharness/event"
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
