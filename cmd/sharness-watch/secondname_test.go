package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sharness/sharness/event"
)

// secondNames are protected files that have another name when the session begins, and what writes them by it.
var secondNames = map[string]struct{ prepare, script, file string }{
	"configuration": {`ln .git/config alias`, `printf '[core]\nfsmonitor = "touch '$PWD'/../PWNED; false"\n' >> alias`, ".git/config"},
	"removed after": {`ln .git/config alias`, `printf '[core]\nfsmonitor = "touch '$PWD'/../PWNED; false"\n' >> alias; touch -d 2001-01-01 alias; rm alias`, ".git/config"},
	"included file": {`echo > inc; git config include.path ../inc; ln inc alias`, `printf '[core]\nfsmonitor = "touch '$PWD'/../PWNED; false"\n' > alias`, "inc"},
	"hook": {`printf '#!/bin/sh\n' > .git/hooks/post-index-change; chmod 755 .git/hooks/post-index-change; ln .git/hooks/post-index-change alias`,
		`echo 'touch "$PWD/../PWNED"' >> alias; touch -d 2001-01-01 f`, ".git/hooks/post-index-change"},
	"mode of a hook": {`printf '#!/bin/sh\ntouch "$PWD/../PWNED"\n' > .git/hooks/post-index-change; ln .git/hooks/post-index-change alias`,
		`chmod 755 alias; touch -d 2001-01-01 f`, ".git/hooks/post-index-change"},
}

const oneFile = `git init -q . && echo x > f && git add f && git commit -q -m x; `

func TestSideDoor_FileGit_WhatAnotherNameWroteOfAProtectedFileRunsNothing(t *testing.T) {
	for name, r := range secondNames {
		t.Run(name, func(t *testing.T) {
			s := start(t, oneFile+r.prepare+`; sleep 0.1`, "")
			s.sh(r.script + `; rm -f ../PWNED`)
			if got := s.sweep(); got.A == 0 || got.C != 0 {
				t.Errorf("sweep: got %+v, want something taken and nothing failed", got)
			}
			s.sh(`git status --short`)
			if _, err := os.Stat(filepath.Join(s.root, "../PWNED")); err == nil {
				t.Error("git status ran what the agent had written by another name")
			}
			s.await("the event", func() bool {
				return s.saw(event.FileQuarantined, "file-git", r.file) || s.saw(event.FileQuarantined, "file-config", r.file)
			})
		})
	}
}

func TestStatusRunsWhatAnotherNameWroteWithoutTheSweep(t *testing.T) {
	for name, r := range secondNames {
		s := prepared(t, oneFile+r.prepare, "")
		s.sh(r.script + `; rm -f ../PWNED; git status --short`)
		if _, err := os.Stat(filepath.Join(s.root, "../PWNED")); err != nil {
			t.Errorf("%s: this git does not run it", name)
		}
	}
}

// A second name that nobody wrote by, and a file that the user changed in place, are the user's.
func TestSweepLeavesSecondNamesOfTheUserAlone(t *testing.T) {
	s := start(t, oneFile+`git config alias.st status; ln .git/config alias; echo a > .envrc; ln .envrc b; echo c > .mcp.json; sleep 0.1`, "")
	s.sh(`touch alias; rm alias; echo d > .mcp.json`)
	if r := s.sweep(); r.A != 0 || r.C != 0 {
		t.Errorf("got %+v, want nothing taken", r)
	}
	if got := s.sh(`git config alias.st; cat .envrc .mcp.json; stat -c %h .envrc`); got != "status\na\nd\n2" {
		t.Errorf("got %q", got)
	}
}

// What is made a file of its own keeps its text and its mode.
func TestSweepKeepsANewConfigurationThatHadASecondName(t *testing.T) {
	s := start(t, oneFile, "")
	s.sh(`git init -q r; git -C r config user.name me; chmod 640 r/.git/config; ln r/.git/config alias`)
	s.sweep()
	if got := s.sh(`echo '[user]' > alias; git -C r config user.name; stat -c '%a %h' r/.git/config; ls -A r/.git | grep sharness || true`); got != "me\n640 1" {
		t.Errorf("got %q", got)
	}
	s.await("the event", func() bool { return s.saw(event.FileQuarantined, "file-git", "r/.git/config") })
}

// What a person read in the quarantine is what is put back.
func TestSideDoor_FileConfig_NoSecondNameWritesToTheQuarantine(t *testing.T) {
	for _, in := range []string{"", shm} {
		s := start(t, `true`, in)
		s.sh(`echo harmless > alias; ln alias .envrc; while [ -e .envrc ]; do :; done`)
		if r := s.sweep(); r.A == 0 || r.C != 0 {
			t.Errorf("got %+v", r)
		}
		s.sh(`echo EVIL >> alias`)
		if kept := s.keptContents(); strings.Contains(kept, "EVIL") || !strings.Contains(kept, "harmless") {
			t.Errorf("the quarantine holds %q", kept)
		}
	}
}
