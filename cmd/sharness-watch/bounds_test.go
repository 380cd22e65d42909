package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A bare repository stays in the next session's list: what is read there then must be short, and quickly read.
func TestSideDoor_FileGit_NoConfigurationOfASessionHoldsUpTheNext(t *testing.T) {
	s := start(t, `true`, "")
	s.sh(`for b in a b c; do git init -q --bare $b; done
python3 -c '
open("a/config", "a").write("[" + "a" * (900 << 10) + "]\n")
open("b/config", "a").write("[user]\n" + "name\n" * 100000)
open("c/config", "a").write("".join("[branch \"b%d\"]\n\tremote = origin\n\tmerge = refs/heads/b%d\n" % (i, i) for i in range(500)))'; cp c/config ../want`)
	if r := s.sweep(); r.A != 2 || r.C != 0 {
		t.Errorf("got %+v, want two configurations taken", r)
	}
	for _, name := range []string{"a", "b"} {
		if fi, err := os.Stat(filepath.Join(s.root, name, "config")); err != nil || fi.Size() > 64<<10 {
			t.Errorf("%s: %v, %v", name, fi, err)
		}
	}
	s.sh(`cmp c/config ../want; git -C a rev-parse --git-dir; git -C b rev-parse --git-dir`)
	s.next()
}

// Nor does what a new configuration names as folders of hooks hold up the last look: it is of nobody by then.
func TestSideDoor_FileGit_HooksOfANewConfigurationDoNotHoldUpTheSweep(t *testing.T) {
	s := start(t, `true`, "")
	s.sh(`git init -q r; mkdir -p r/$(printf 'a/%.0s' {1..2000})
python3 -c 'open("r/.git/config", "a").write("[core]\n" + "".join("hooksPath = %sx%d\n" % ("a/" * 2000, i) for i in range(250)))'
git init -q e; git -C e config core.fsmonitor evil`)
	if r := s.sweep(); r.C != 0 {
		t.Errorf("got %+v, want nothing failed", r)
	}
	if got := s.sh(`git -C e config core.fsmonitor || true`); got != "" {
		t.Errorf("left: %q", got)
	}
}
