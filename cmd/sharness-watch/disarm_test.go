package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sharness/sharness/event"
)

// gitlink makes a repository docs in the workspace, and a gitlink to it in the index of the one around it.
const gitlink = `git init -q docs && git -C docs commit -q --allow-empty -m x && git update-index --add --cacheinfo 160000,$(git -C docs rev-parse HEAD),docs; `

const evil = `touch $PWD/../PWNED; false`

// newRepositories run a program when the person types git status at the top, or in docs. PWNED says that it ran.
var newRepositories = map[string]string{
	"fsmonitor":           `git -C docs config core.fsmonitor "` + evil + `"`,
	"include":             `printf '[core]\nfsmonitor = "touch '$PWD'/../PWNED; false"\n' > docs/i; git -C docs config include.path ../i`,
	"key after a bracket": `printf '[core] fsmonitor = "touch '$PWD'/../PWNED; false"\n[core]repositoryformatversion=0\n' > docs/.git/config`,
	"continued line":      `printf '[core]\nbare = false\nfsmonitor = "touch '$PWD'/../PW\\\nNED; false"\n' > docs/.git/config`,
	"carriage return":     `printf '[core]\r\n\tfsmonitor = "touch '$PWD'/../PWNED; false"\r\n' > docs/.git/config`,
	"linked config":       `printf '[core]\nfsmonitor = "touch '$PWD'/../PWNED; false"\n' > docs/c; ln -sf ../c docs/.git/config`,
	"config.worktree":     `git -C docs config extensions.worktreeConfig true; printf '[core]\nfsmonitor = "touch '$PWD'/../PWNED; false"\n' > docs/.git/config.worktree`,
	"filter":              `echo x > docs/f; git -C docs add f; echo 'f filter=e' > docs/.gitattributes; git -C docs config filter.e.clean "touch $PWD/../PWNED; cat"; touch -d 2001-01-01 docs/f`,
	"hook":                `printf '#!/bin/sh\ntouch "'$PWD'/../PWNED"\n' > docs/.git/hooks/post-index-change; chmod 755 docs/.git/hooks/post-index-change; echo x > docs/f; git -C docs add f; touch docs/f`,
	"linked hooks":        `mkdir docs/h; printf '#!/bin/sh\ntouch "'$PWD'/../PWNED"\n' > docs/h/post-index-change; chmod 755 docs/h/*; rm -r docs/.git/hooks; ln -s ../h docs/.git/hooks; echo x > docs/f; git -C docs add f; touch docs/f`,
	"git file":            `git -C docs config core.fsmonitor "` + evil + `"; mv docs/.git elsewhere; echo "gitdir: ../elsewhere" > docs/.git`,
	"common directory":    `git -C docs config core.fsmonitor "` + evil + `"; mkdir docs/common; mv docs/.git/objects docs/.git/refs docs/.git/config docs/common; echo ../common > docs/.git/commondir`,
	"promised objects": `cd docs; echo x > f; git add f; git commit -qm f; T=$(git rev-parse HEAD^{tree}); rm -f .git/index .git/objects/$(echo $T | cut -c-2)/$(echo $T | cut -c3-)
git config core.repositoryformatversion 1; git config extensions.partialClone o; git config remote.o.url ssh://host.example/x; git config remote.o.promisor true
cd ..; git update-index --cacheinfo 160000,$(git -C docs rev-parse HEAD),docs`,
	"locked": `git -C docs config core.fsmonitor "` + evil + `"; chmod 0500 docs/.git; chmod 0400 docs/.git/config`,
}

// typed is what the person types. PWNED is made by whatever of the agent's runs then, and by ssh if git starts it.
const typed = `chmod -R u+rwX docs; export GIT_SSH_COMMAND="touch '$PWD/../PWNED'; false"; git status --short || true; git -C docs status --short || true`

func TestSideDoor_FileGit_StatusRunsNothingOfANewRepository(t *testing.T) {
	for name, script := range newRepositories {
		t.Run(name, func(t *testing.T) {
			s := start(t, `git init -q . && git commit -q --allow-empty -m x`, "")
			s.sh(gitlink + script + `; rm -f ../PWNED`) // what the agent itself ran ran in its sandbox
			swept := s.sweep()
			if swept.A == 0 || swept.C != 0 {
				t.Errorf("sweep: got %+v, want something taken and nothing failed", swept)
			}
			s.sh(typed)
			if _, err := os.Stat(filepath.Join(s.root, "../PWNED")); err == nil {
				t.Error("git status ran what the agent had put there")
			}
			s.await("the event", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				for _, e := range s.events {
					if e.Type == event.FileQuarantined && e.Door == "file-git" && strings.Contains(e.Detail, "new repository") {
						return true
					}
				}
				return false
			})
			if !strings.Contains(s.keptContents(), "PWNED") && !strings.HasPrefix(name, "linked") && name != "include" && name != "continued line" && name != "promised objects" {
				t.Error("the quarantine does not hold what was taken")
			}
		})
	}
}

// Without the last look each of them works: the rows above show something.
func TestStatusRunsANewRepositoryWithoutTheSweep(t *testing.T) {
	for name, script := range newRepositories {
		s := prepared(t, `git init -q . && git commit -q --allow-empty -m x`, "")
		s.sh(gitlink + script + `; rm -f ../PWNED; ` + typed)
		if _, err := os.Stat(filepath.Join(s.root, "../PWNED")); err != nil {
			t.Errorf("%s: this git does not run it", name)
		}
	}
}

func TestSweepLeavesHonestRepositoriesAlone(t *testing.T) {
	s := start(t, `git init -q -b main ../lib && cd ../lib && echo l > l && git add l && git commit -q -m l`, "")
	s.sh(`export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=protocol.file.allow GIT_CONFIG_VALUE_0=always
git clone -q ../lib clone && git clone -q --bare ../lib bare.git && git clone -q --depth 1 file://$PWD/../lib shallow && git clone -q --mirror ../lib mirror.git
mkdir -p node_modules && git clone -q ../lib node_modules/dep
git init -q -b main new && cd new && mkdir d && echo f > d/f && git add d && git commit -q --allow-empty -m x && git submodule --quiet add ../../lib sub && git commit -q -m sub
git worktree add -q ../wt -b side && git config user.name me && git config user.email me@x && git remote add o https://example.org/x.git
git checkout -q -b feature && git config branch.feature.remote o && git config branch.feature.merge refs/heads/f && git sparse-checkout set --cone d
git config filter.lfs.clean "git-lfs clean -- %f" && git config filter.lfs.required true`)
	all := `for f in $(find . -path '*/hooks' -prune -o \( -name config -o -name config.worktree \) -print | sort); do echo "$f"; cat $f; done`
	before := s.sh(all)
	if strings.Count(before, "[core]") < 7 {
		t.Fatalf("too few configurations:\n%s", before)
	}
	if r := s.sweep(); r.A != 0 || r.C != 0 {
		t.Errorf("got %+v, want nothing taken", r)
	}
	if after := s.sh(all); after != before {
		t.Errorf("a configuration was changed:\n%s", after)
	}
	s.sh(`for d in clone shallow new wt new/sub node_modules/dep; do git -C $d status --short >/dev/null; git -C $d log -1 --oneline >/dev/null; done; git -C clone pull -q`)
}

// What is harmless in a configuration that was taken stays, so that the repository is still one.
func TestSweepKeepsTheHarmlessPartOfAConfiguration(t *testing.T) {
	s := start(t, `true`, "")
	s.sh(`git init -q r --object-format=sha256 && git -C r remote add origin https://example.org/x.git && git -C r commit -q --allow-empty -m x
git -C r config core.sshCommand evil && git -C r config alias.x '!evil' && git -C r config credential.helper evil && git -C r config submodule.s.update '!evil'`)
	s.sweep()
	if got := s.sh(`git -C r log -1 --format=%s; git -C r remote get-url origin; git -C r config --list --local | grep -c evil || true`); got != "x\nhttps://example.org/x.git\n0" {
		t.Errorf("got %q", got)
	}
	if kept := s.keptContents(); !strings.Contains(kept, "sshCommand = evil") {
		t.Errorf("the quarantine holds %q", kept)
	}
}

// What is written anew is ours: no key may come below a header that it did not have.
func TestSideDoor_FileGit_WhatIsWrittenAnewStartsNothing(t *testing.T) {
	s := start(t, `true`, "")
	s.sh(`git init -q r; printf '[core]\n\trepositoryformatversion = 0\n[pager]\n[submodule "a\001b"]\n\tbranch = touch x\n[alias]\n[remote "\001"]\n\tpush = !touch x\n' > r/.git/config`)
	s.sweep()
	if got := s.sh(`git -C r config --list --local`); got != "core.repositoryformatversion=0" {
		t.Errorf("git reads %q", got)
	}
}

func TestSweepKeepsAWorkTreeOnlyOfASubmodule(t *testing.T) {
	s := start(t, `mkdir ../home && ln -s ../home away`, "")
	s.sh(`i=0; for at in $PWD/../home ../../../home ../../away ../../away/../x ../hooks "\"../../../home\"" ../..; do i=$((i+1)); git init -q r$i; printf '[core]\n\tworktree = %s\n' "$at" > r$i/.git/config; done`)
	s.sweep()
	if got := s.sh(`cat r*/.git/config | grep worktree || true`); got != "" {
		t.Errorf("left: %q", got)
	}
}

// A repository that was there and was not touched is the person's, even where the search does not reach.
func TestSweepLeavesAnOldConfigurationAlone(t *testing.T) {
	s := start(t, `mkdir -p node_modules && git init -q node_modules/x && git -C node_modules/x config core.fsmonitor mine && sleep 0.1`, "")
	s.sweep()
	if got := s.sh(`git -C node_modules/x config core.fsmonitor`); got != "mine" {
		t.Errorf("got %q", got)
	}
}
