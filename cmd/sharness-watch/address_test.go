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

// A remote without an address is taken for one itself.
func TestSideDoor_FileGit_NameOfARemoteStartsNoHelper(t *testing.T) {
	const typed = `PATH=$(dirname $PWD)/bin:$PATH; git -C r fetch --all -q || true`
	started := func(s *session) bool { _, err := os.Stat(filepath.Join(s.root, "../PWNED")); return err == nil }
	for name, remote := range map[string]string{
		"helper": `[remote "foo2::x"]\n\tfetch = +refs/heads/*:refs/remotes/x/*\n`,
		"option": `[remote "origin"]\n\turl = .\n[remote "--upload-pack=touch ../../PWNED; git-upload-pack"]\n\turl = .\n`,
	} {
		agent := `git init -q r; git -C r commit -q --allow-empty -m x; printf '` + remote + `' >> r/.git/config`
		s := prepared(t, helper, "")
		if s.sh(agent + `; ` + typed); !started(s) {
			t.Errorf("%s: this git does not start it", name)
		}
		s = start(t, helper, "")
		s.sh(agent)
		s.sweep()
		if s.sh(typed); started(s) {
			t.Errorf("%s: git fetch started what the name says", name)
		}
	}
}

// Git reads what lies in branches and remotes of a git directory, whatever else they look like.
func TestSideDoor_FileGit_FolderOfRemotesThatLooksLikeAGitDirectory(t *testing.T) {
	const first = `mkdir -p .git/branches/objects .git/branches/refs; mkdir .git/branches/HEAD x || true; echo "gitdir: ../.git/branches" > x/.git`
	for _, first := range []string{first, first + `; rm -rf .git/branches/HEAD; cp .git/HEAD .git/branches`} {
		const second, typed = `mkdir -p .git/branches; echo foo2::x > .git/branches/origin`, `PATH=$(dirname $PWD)/bin:$PATH; git fetch -q || true`
		started := func(s *session) bool { _, err := os.Stat(filepath.Join(s.root, "../PWNED")); return err == nil }
		s := prepared(t, `git init -q .; `+helper, "")
		if s.sh(first + `; ` + second + `; ` + typed); !started(s) {
			t.Errorf("%s: this git does not start it", first)
		}
		s = start(t, `git init -q .; `+helper, "")
		s.sh(first)
		s.sweep()
		s.next()
		s.sh(second)
		s.sweep()
		if s.sh(typed); started(s) {
			t.Errorf("%s: git fetch started what a file there says", first)
		}
	}
}

func TestFetchStartsAHelperWithoutTheSweep(t *testing.T) {
	s := prepared(t, helper, "")
	s.sh(helperRepository + `; ` + helperFetch)
	if _, err := os.Stat(filepath.Join(s.root, "../PWNED")); err != nil {
		t.Error("this git does not start it")
	}
}
