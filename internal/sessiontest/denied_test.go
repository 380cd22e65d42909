package sessiontest

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharness/sharness/event"
)

// What a process of a session is refused is in the log once, with its door, its errno, what it asked for, byte by byte, and
// who it was, although it has ended at once.
func TestDenialsOfASessionNameWhoAndWhat(t *testing.T) {
	s := newSite(t, nil)
	s.user("git init -q .", "")
	x := s.sharness("enforce", "--events-files", "--", "bash", "-c", `
		echo '#!/bin/sh' >$'a\xff\nb'
		( ( exec $'./a\xff\nb' ) )
		( echo >>.git/config )
		( exec /usr/bin/id )
		exit 0`)
	var out bytes.Buffer
	x.cmd.Stdout = &out
	x.start()
	x.wait(time.Minute)
	if want := "sharness: programs were refused to start; which, and what to do about each: sharness events --type exec.denied " + s.base; strings.Count(x.stderr.String(), want) != 1 {
		t.Errorf("it said %q at the end, want %s… once", x.stderr, want)
	}
	for _, want := range []struct{ typ, door, errno, cause, resolved string }{
		{"exec.denied", "exec-workspace", "EACCES", "view", s.workspace + "/a\\xff\nb"},
		{"file.denied", "file-git", "EROFS", "protect", s.workspace + "/.git/config"},
		{"exec.denied", "exec-direct", "EACCES", "view", "/usr/bin/id"},
	} {
		var found []event.Event
		for _, e := range x.events() {
			if e.Phase == "" && e.Target != nil && e.Target.Resolved == want.resolved {
				found = append(found, e)
			}
		}
		if len(found) != 1 {
			t.Errorf("%s: %d events, want one\n%s", want.resolved, len(found), x.stderr)
			continue
		}
		e := found[0]
		if string(e.Type) != want.typ || e.Door != want.door || e.Errno != want.errno || e.Cause != want.cause || e.Target.Source != "user_memory" {
			t.Errorf("got %s %s %s by %s, %+v, want %+v", e.Type, e.Door, e.Errno, e.Cause, e.Target, want)
		}
		if p := e.Process; !strings.HasSuffix(p.Exe, "/bash") || p.StartNS == 0 || p.NSPID == 0 || !slices.Contains(e.Ancestors, "bash") || e.Ancestors[len(e.Ancestors)-1] != "sharness-init" {
			t.Errorf("%s: got %+v, by %q, want a bash that bash started", want.resolved, e.Process, e.Ancestors)
		}
	}
}
