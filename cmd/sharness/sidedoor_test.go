package main

import (
	"testing"

	"github.com/sharness/sharness/internal/kerneltest"
	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/internal/sidedoor/attempt"
	"github.com/sharness/sharness/manifest"
)

// TestSideDoor runs sharness-probe as the orchestrator of a real session, beside bait, once for each build and once
// with a workspace that is only to be read, and wants every attempt refused, nothing arrived, and the workspace as it
// was. Each door is a subtest, TestSideDoor_ID.
func TestSideDoor(t *testing.T) {
	requireBait(t)
	for _, c := range []struct {
		name, build string
		access      manifest.Access
	}{
		{"static", "sharness-probe", manifest.AccessWrite},
		{"dynamic", "sharness-probe-dynamic", manifest.AccessWrite},
		{"workspace read-only", "sharness-probe", manifest.AccessRead},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSiege(t, c.build, c.access)
			got := s.run()
			for _, d := range sidedoor.Doors() {
				if tries := got[d.ID]; len(tries) > 0 {
					t.Run("TestSideDoor_"+d.ID, func(t *testing.T) { wantShut(t, tries) })
				}
			}
			s.checkAftermath()
		})
	}
}

// wantShut leaves out the one thing that resolve says stays open below Landlock ABI 6, which has the scope for it: a
// signal to the domain's own pid 1, which is the parent of the orchestrator and has its id.
func wantShut(t *testing.T, tries []attempt.Result) {
	t.Helper()
	unscoped := kerneltest.Running(t).Before(kerneltest.Kernel{Major: 6, Minor: 12})
	for _, r := range tries {
		if unscoped && r.Verdict == attempt.Open && (r.Door == "pid1" || r.ID == "sig/parent") {
			t.Logf("open without a Landlock scope: %s", r.ID)
			continue
		}
		switch r.Verdict {
		case attempt.Open, attempt.Error:
			t.Errorf("%s: %s %s %s", r.ID, r.Verdict, r.Errno, r.Detail)
		case attempt.Impossible:
			t.Logf("impossible here: %s: %s", r.ID, r.Detail)
		}
	}
}

// With a terminal the orchestrator has one to attack, which is not the user's.
func TestSideDoorOnATerminal(t *testing.T) {
	requireBait(t)
	for _, door := range []string{"tty", "inherit-fd"} {
		t.Run("TestSideDoor_"+door, func(t *testing.T) {
			s := newSiege(t, "sharness-probe", manifest.AccessWrite)
			screen := s.runOnTerminal("--door", door)
			tries := results(t, screen)[door]
			if len(tries) == 0 {
				t.Fatalf("no result on the terminal: %q", screen)
			}
			wantShut(t, tries)
			s.checkAftermath()
		})
	}
}

func requireBait(t *testing.T) {
	t.Helper()
	kerneltest.RequireRoot(t)
}

// What the siege would see of an open door: with memfd: true the loader takes a memfd, and nothing else opens. Executing
// one stays refused, by vm.memfd_noexec alone: a kernel that lacks it must not start such a session at all.
func TestMemfdInTheManifestOpensTheLoaderAndNothingElse(t *testing.T) {
	requireBait(t)
	s := newSiege(t, "sharness-probe-dynamic", manifest.AccessWrite)
	s.memfd = true
	if kerneltest.Running(t).Before(kerneltest.Kernel{Major: 6, Minor: 3}) {
		s.wantRefusal("door left open on this host: exec-memfd ")
		return
	}
	opened := 0
	for _, tries := range s.run() {
		for _, r := range tries {
			got, want := r.Verdict == attempt.Open, sidedoor.OpenedByMemfd(r.ID)
			if got != want {
				t.Errorf("%s: open %v, want %v: %s %s", r.ID, got, want, r.Errno, r.Detail)
			}
			if got {
				opened++
			}
		}
	}
	if opened != 5 {
		t.Errorf("%d attempts are open, want the 5 that need a memfd", opened)
	}
	s.checkAftermath()
}
