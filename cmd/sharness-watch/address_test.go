package main

import (
	"os"
	"path/filepath"
	"testing"
)

const (
	// helper is a program of the person's that a scheme may start, in a folder of PATH.
	helper = `mkdir ../bin; printf '#!/bin/sh\ntouch "'$(dirname $PWD)'/PWNED"\n' > ../bin/git-remote-foo2; chmod 755 ../bin/*`

	helperRepository = `git init -q r; git -C r remote add origin foo2://bar/x`
	helperFetch      = `PATH=$(dirname $PWD)/bin:$PATH; git -C r fetch -q || true`
)

func TestSideDoor_FileGit_FetchOfANewRepositoryStartsNoHelper(t *testing.T) {
	s := start(t, helper, "")
	s.sh(helperRepository + `; git init -q h; git -C h remote add origin git@example.org:x/y.git; cp h/.git/config ../want`)
	if r := s.sweep(); r.A != 1 || r.C != 0 {
		t.Errorf("got %+v, want one configuration taken", r)
	}
	s.sh(`cmp h/.git/config ../want; ` + helperFetch)
	if _, err := os.Stat(filepath.Join(s.root, "../PWNED")); err == nil {
		t.Error("git fetch started what the address names")
	}
}

func TestFetchStartsAHelperWithoutTheSweep(t *testing.T) {
	s := prepared(t, helper, "")
	s.sh(helperRepository + `; ` + helperFetch)
	if _, err := os.Stat(filepath.Join(s.root, "../PWNED")); err != nil {
		t.Error("this git does not start it")
	}
}
