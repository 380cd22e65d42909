package main

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/launcher/protect"
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
	"outside":                    `git -C docs config core.fsmonitor "` + evil + `"; mv docs/.git ../state.git; echo "gitdir: ../../state.git" > docs/.git`,
	"outside by name":            `git -C docs config core.fsmonitor "` + evil + `"; mv docs/.git ../state.git; echo "gitdir: $(dirname $PWD)/state.git" > docs/.git`,
	"outside by a link":          `git -C docs config core.fsmonitor "` + evil + `"; mv docs/.git ../state.git; ln -s ../../state.git docs/.git`,
	"outside by a folder's link": `git -C docs config core.fsmonitor "` + evil + `"; mv docs/.git ../state.git; ln -s .. up; echo "gitdir: ../up/state.git" > docs/.git`,
	"outside by a link and back": `git -C docs config core.fsmonitor "` + evil + `"; mkdir -p ../a/b docs/g; mv docs/.git ../a/state.git; ln -s ../../a/b docs/l; echo "gitdir: l/../state.git" > docs/.git; mkdir docs/state.git`,
	"outside by commondir":       `git -C docs config core.fsmonitor "` + evil + `"; mkdir ../common; mv docs/.git/objects docs/.git/refs docs/.git/config ../common; echo ../../../common > docs/.git/commondir`,
	"long path": `git -C docs config core.fsmonitor "` + evil + `"; python3 -c '
import os
top, n = os.getcwd(), "d" * 250
def deep():
    for i in range(9): os.mkdir(n); os.chdir(n)
deep(); os.symlink("/".join([n] * 9), top + "/l1"); deep()
os.chdir(top + "/l1"); os.symlink("/".join([n] * 9), "l2"); os.chdir("l2")
os.rename(top + "/docs/.git", "g"); os.symlink("../l1/l2/g", top + "/docs/.git")'`,
	"worktrees of nothing": `git -C docs config core.fsmonitor "` + evil + `"; mkdir -p x/worktrees; mv docs/.git x/worktrees/y; echo "gitdir: ../x/worktrees/y" > docs/.git`,
	"locked":               `git -C docs config core.fsmonitor "` + evil + `"; chmod 0500 docs/.git; chmod 0400 docs/.git/config`,
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
					if e.Type == event.FileQuarantined && e.Door == "file-git" && (strings.Contains(e.Detail, "new repository") || strings.Contains(e.Detail, "outside") || strings.Contains(e.Detail, "out of")) {
						return true
					}
				}
				return false
			})
			if !strings.Contains(s.keptContents(), "PWNED") && !strings.HasPrefix(name, "linked") && !strings.HasPrefix(name, "outside") && name != "include" && name != "continued line" && name != "promised objects" {
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

// What the first session leaves, the second makes a repository of.
var laterRepositories = map[string]struct{ prepare, first, second string }{
	"folder of a worktree": {``, `mkdir -p .git/worktrees/x`,
		`git -C docs config core.fsmonitor "` + evil + `"; cp -r docs/.git/. .git/worktrees/x || true; rm -r docs/.git; echo "gitdir: ../.git/worktrees/x" > docs/.git`},
	"configuration before the rest": {``, `mkdir x; printf '[core]\nrepositoryformatversion = 0\nbare = false\nfsmonitor = "touch '$PWD'/../PWNED; false"\n' > x/config; mkdir docs; echo "gitdir: ../x" > docs/.git`,
		`mkdir n; git init -q n; git -C n commit -q --allow-empty -m x; mv n/.git/HEAD n/.git/objects n/.git/refs x; git update-index --add --cacheinfo 160000,$(git -C n rev-parse HEAD 2>/dev/null || cat x/refs/heads/*),docs`},
	"configuration in no repository": {``, `git init -q docs; git -C docs commit -q --allow-empty -m x; mkdir x; printf '[core]\nrepositoryformatversion = 0\nbare = false\nfsmonitor = "touch '$PWD'/../PWNED; false"\n' > x/config`,
		`C=$(git -C docs rev-parse HEAD); mv docs/.git n; echo "gitdir: ../x" > docs/.git; git update-index --add --cacheinfo 160000,$C,docs; cp -r n/HEAD n/objects n/refs x`},
	"configuration of a .git":          {``, `mkdir -p docs/.git; ` + written("docs/.git"), completed("docs/.git") + index("docs")},
	"configuration of a module":        {``, `mkdir -p .git/modules/x docs; ` + written(".git/modules/x"), completed(".git/modules/x") + `echo "gitdir: ../.git/modules/x" > docs/.git; ` + index("docs")},
	"configuration of a nested module": {``, `mkdir -p .git/modules/a/b/c docs; ` + written(".git/modules/a/b/c"), completed(".git/modules/a/b/c") + `echo "gitdir: ../.git/modules/a/b/c" > docs/.git; ` + index("docs")},
	"configuration of a worktree":      {``, `mkdir -p .git/worktrees/x docs; ` + written(".git/worktrees/x"), completed(".git/worktrees/x") + `echo "gitdir: ../.git/worktrees/x" > docs/.git; ` + index("docs")},
	"configuration beside a bare repository": {`git init -q --bare docs`, `true`,
		`mkdir ../state.git; ` + written("../state.git") + completed("../state.git") + `echo "gitdir: ../../state.git" > docs/.git; ` + index("docs")},
	"configuration's hooks below those of a new repository": {`git config core.hooksPath .husky/_; mkdir docs`,
		`git init -q --bare srv; mkdir -p srv/hooks/node_modules/t/.husky/_ node_modules/gw/objects node_modules/gw/refs; ` + hookAt("srv/hooks/node_modules/t/.husky/_") + `cp f srv/hooks/node_modules/t; touch -d 2001-01-01 srv/hooks/node_modules/t/f; cp .git/HEAD .git/index node_modules/gw; echo "gitdir: ../../../../node_modules/gw" > srv/hooks/node_modules/t/.git`,
		`echo ../../.git > node_modules/gw/commondir; ` + index("srv/hooks/node_modules/t")},
	"configuration's hooks, too many around the user's": {`mkdir -p src/hooks/x docs; git init -q src/hooks/x`, `true`,
		`git init -q n; cp f n; git -C n add f; git -C n commit -q -m x; cp -r n/.git/objects n/.git/refs n/.git/HEAD n/.git/index src; ` + hookAt("src/hooks") + `(cd src/hooks; seq 1100 | xargs touch); cp f docs; touch -d 2001-01-01 docs/f; echo "gitdir: ../src" > docs/.git`},
	"configuration where an old .git leads": {`mkdir docs ../state; echo "gitdir: ../gone/b/gd" > docs/.git; git init -q --bare ../state/gd; ` + index("docs"),
		`printf '[core]\nrepositoryformatversion = 0\nbare = false\nfsmonitor = "touch '$PWD'/../PWNED; false"\n' > ../state/gd/config; mkdir p; ln -s ../../state p/b`, `mv p gone`},
	"configuration behind a later link": {`mkdir node_modules docs`, `mkdir node_modules/x node_modules/sub; ` + completed("node_modules/x") + `cp .git/config node_modules/x; echo "gitdir: ../x" > node_modules/sub/.git`,
		`mkdir ../state.git; ` + written("../state.git") + completed("../state.git") + `rm -r node_modules/x; ln -s ../../state.git node_modules/x; ` + index("node_modules/sub")},
	"configuration for a worktree out of reach": {`git config core.hooksPath .githooks; mkdir node_modules docs`, `git worktree add -q --detach node_modules/wt`,
		`(mkdir node_modules/wt/.githooks; printf '#!/bin/sh\ntouch "'$PWD'/../PWNED"\n' > node_modules/wt/.githooks/post-index-change; chmod 755 node_modules/wt/.githooks/*) 2>/dev/null || true; touch -d 2001-01-01 node_modules/wt/f; ` + index("node_modules/wt")},
	"configuration's hook of another repository": {`git config core.hooksPath .githooks; mkdir docs`, `git init -q r; mkdir r/.githooks; printf '#!/bin/sh\ntouch "'$PWD'/../PWNED"\n' > r/.githooks/post-index-change; chmod 755 r/.githooks/*`,
		`git worktree add -q --detach wt; mkdir wt/.githooks; cp -p r/.githooks/* wt/.githooks; touch -d 2001-01-01 wt/f; ` + index("wt")},
	"configuration out of reach with a new worktree": {`mkdir node_modules docs; git init -q node_modules/r; echo x > node_modules/r/f; git -C node_modules/r add f; git -C node_modules/r commit -q -m x; git -C node_modules/r config core.hooksPath .hk`, `true`,
		`git -C node_modules/r worktree add -q --detach "$PWD/wt"; mkdir wt/.hk; printf '#!/bin/sh\ntouch "'$PWD'/../PWNED"\n' > wt/.hk/post-index-change; chmod 755 wt/.hk/*; touch -d 2001-01-01 wt/f; git update-index --add --cacheinfo 160000,$(git -C wt rev-parse HEAD),wt`},
	"configuration by a second name": {``, `git init -q docs; git -C docs commit -q --allow-empty -m x; ln docs/.git/config alias`,
		`printf '[core]\nfsmonitor = "touch '$PWD'/../PWNED; false"\n' >> alias; ` + index("docs")},
	"configuration's git file by a second name": {``, `git init -q docs; git -C docs commit -q --allow-empty -m x; mv docs/.git g; echo "gitdir: ../g" > docs/.git; ln docs/.git alias`,
		`mkdir ../state.git; ` + written("../state.git") + completed("../state.git") + `echo "gitdir: ../../state.git" > alias; ` + index("docs")},
	"configuration's hook by a second name": {`git config core.hooksPath .githooks`, `git worktree add -q --detach docs; mkdir docs/.githooks; printf '#!/bin/sh\ntouch "'$PWD'/../PWNED"\n' > docs/.githooks/post-index-change; ln docs/.githooks/post-index-change alias`,
		`chmod 755 alias; touch -d 2001-01-01 docs/f; ` + index("docs")},
	"configuration's own hook by a second name": {``, `git init -q docs; echo x > docs/f; git -C docs add f; git -C docs commit -q -m x; printf '#!/bin/sh\ntouch "'$PWD'/../PWNED"\n' > docs/.git/hooks/post-index-change; ln docs/.git/hooks/post-index-change alias`,
		`chmod 755 alias; touch -d 2001-01-01 docs/f; ` + index("docs")},
	"configuration's hooks in a renamed folder": {`git config core.hooksPath tools/hooks; mkdir node_modules docs`,
		worktreeOf("node_modules/sub", "node_modules/gw", "../../.git") + `mkdir -p node_modules/prep/hooks; ` + hookAt("node_modules/prep/hooks"),
		`mv node_modules/prep node_modules/sub/tools; touch -d 2001-01-01 node_modules/sub/f; ` + index("node_modules/sub")},
	"configuration's hooks behind an old link": {`git config core.hooksPath tools/hooks; mkdir node_modules docs ../hk`,
		worktreeOf("node_modules/sub", "node_modules/gw", "../../.git") + `mkdir node_modules/prep; ` + hookAt("../hk") + `ln -s "$PWD/../hk" node_modules/prep/hooks`,
		`mv node_modules/prep node_modules/sub/tools; touch -d 2001-01-01 node_modules/sub/f; ` + index("node_modules/sub")},
	"configuration's hooks of another git directory": {`git config core.hooksPath .husky/_; mkdir node_modules docs`,
		worktreeOf("node_modules/sub", "node_modules/p/gd", "../../../.git") + `mkdir -p node_modules/x/gd node_modules/sub/.husky/_; ` + completed("node_modules/x/gd") + hookAt("node_modules/sub/.husky/_") + `echo "gitdir: ../x/gd" > node_modules/sub/.git`,
		`mv node_modules/x node_modules/y; mv node_modules/p node_modules/x; touch -d 2001-01-01 node_modules/sub/f; ` + index("node_modules/sub")},
	"configuration behind an old link in a renamed folder": {`mkdir node_modules docs`,
		`mkdir -p node_modules/x/b/gd node_modules/sub node_modules/p ../state/gd; ` + written("../state/gd") + completed("../state/gd") + completed("node_modules/x/b/gd") + `echo "gitdir: ../x/b/gd" > node_modules/sub/.git; ln -s "$PWD/../state" node_modules/p/b`,
		`mv node_modules/x node_modules/y; mv node_modules/p node_modules/x; ` + index("node_modules/sub")},
	"configuration behind an old link beside a moved git file": {`mkdir node_modules docs`,
		`mkdir -p node_modules/q/gd node_modules/q/prep node_modules/p ../state/gd; ` + written("../state/gd") + completed("../state/gd") + completed("node_modules/q/gd") + `echo "gitdir: ../gd" > node_modules/q/prep/.git; ln -s "$PWD/../state/gd" node_modules/p/gd`,
		`mv node_modules/q/prep node_modules/p/prep; ` + index("node_modules/p/prep")},
	"configuration behind an old link beside a moved commondir": {`mkdir node_modules docs`,
		`mkdir -p node_modules/x/gd node_modules/c node_modules/r node_modules/sub ../state/c; ` + written("../state/c") + completed("../state/c") + completed("node_modules/c") + `cp .git/HEAD node_modules/x/gd; echo ../../c > node_modules/x/gd/commondir; echo "gitdir: ../x/gd" > node_modules/sub/.git; ln -s "$PWD/../state/c" node_modules/r/c`,
		`mv node_modules/x node_modules/sub node_modules/r; ` + index("node_modules/r/sub")},
	"configuration outside of a git file that was moved": {`mkdir node_modules`,
		`mkdir -p node_modules/state.git node_modules/a/docs ../state.git; ` + written("../state.git") + completed("../state.git") + completed("node_modules/state.git") + `echo "gitdir: ../../state.git" > node_modules/a/docs/.git`,
		`mv node_modules/a/docs docs; ` + index("docs")},
	"hooks of a new worktree": {`git config core.hooksPath .husky/_`, `true`,
		`mkdir -p gw docs/.husky/_; cp .git/HEAD .git/index gw; echo ../.git > gw/commondir; rm -rf docs/.git; echo "gitdir: ../gw" > docs/.git; printf '#!/bin/sh\ntouch "'$PWD'/../PWNED"\n' > docs/.husky/_/post-index-change; chmod 755 docs/.husky/_/*; cp f docs/f; touch -d 2001-01-01 docs/f`},
}

// written is a script that makes a configuration which runs a program, completed one that makes the rest of a git directory,
// index one that makes a gitlink.
func written(dir string) string {
	return `printf '[core]\nrepositoryformatversion = 0\nbare = false\nfsmonitor = "touch '$PWD'/../PWNED; false"\n' > ` + dir + `/config; `
}

func completed(dir string) string {
	return `mkdir ` + dir + `/objects ` + dir + `/refs; echo "ref: refs/heads/main" > ` + dir + `/HEAD; `
}

// worktreeOf is a script that makes a worktree at dir of the repository that common names, seen from its git directory; hookAt one that makes
// a hook which runs.
func worktreeOf(dir, gitDir, common string) string {
	return `mkdir -p ` + dir + ` ` + gitDir + `; cp .git/HEAD .git/index ` + gitDir + `; echo ` + common + ` > ` + gitDir + `/commondir; cp f ` + dir +
		`; echo "gitdir: ../` + path.Base(gitDir) + `" > ` + dir + `/.git; `
}

func hookAt(dir string) string {
	return `printf '#!/bin/sh\ntouch "'$PWD'/../PWNED"\n' > ` + dir + `/post-index-change; chmod 755 ` + dir + `/post-index-change; `
}

func index(dir string) string {
	return `git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),` + dir
}

func TestSideDoor_FileGit_WhatOneSessionPreparesRunsNothingAfterTheNext(t *testing.T) {
	for name, r := range laterRepositories {
		t.Run(name, func(t *testing.T) {
			s := start(t, `git init -q . && echo x > f && git add f && git commit -q -m x; `+r.prepare, "")
			s.sh(r.first)
			s.sweep()
			s.next()
			s.sh(linked(name) + r.second + `; rm -f ../PWNED`)
			s.sweep()
			s.sh(typed)
			if _, err := os.Stat(filepath.Join(s.root, "../PWNED")); err == nil {
				t.Error("git status ran what the agent had put there")
			}
		})
	}
}

// linked makes the repository and the gitlink where the row does not do it itself.
func linked(name string) string {
	if strings.HasPrefix(name, "configuration") {
		return ""
	}
	return gitlink
}

func TestStatusRunsALaterRepositoryWithoutTheSweep(t *testing.T) {
	for name, r := range laterRepositories {
		s := prepared(t, `git init -q . && echo x > f && git add f && git commit -q -m x; `+r.prepare, "")
		s.sh(r.first + "\n" + linked(name) + r.second + `; rm -f ../PWNED; ` + typed)
		if _, err := os.Stat(filepath.Join(s.root, "../PWNED")); err != nil {
			t.Errorf("%s: this git does not run it", name)
		}
	}
}

// What only the third session completes: the second has the .git file alone.
func TestSideDoor_FileGit_ThreeSessionsMakeNoRepository(t *testing.T) {
	s := start(t, `git init -q . && git commit -q --allow-empty -m x`, "")
	s.sh(`mkdir x; printf '[core]\nrepositoryformatversion = 0\nbare = false\nfsmonitor = "touch '$PWD'/../PWNED; false"\n' > x/config`)
	s.sweep()
	s.next()
	s.sh(`mkdir docs; echo "gitdir: ../x" > docs/.git`)
	s.sweep()
	if !s.gone("docs/.git") {
		t.Error("the third session would protect what the .git file names")
	}
	s.next()
	s.sh(completed("x") + `git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),docs; echo "gitdir: ../x" > docs/.git`)
	s.sweep()
	if got := s.sh(`cat x/config`); strings.Contains(got, "fsmonitor") {
		t.Errorf("git obeys %q", got)
	}
}

// plainFolder is a folder of the user's sources that has names of a git directory's, and is none.
const plainFolder = `git init -q . && mkdir -p src/hooks src/branches src/remotes src/objects && echo a > src/branches/main.ts && echo b > src/remotes/api.ts && echo c > src/config && echo d > src/hooks/useX.ts &&
chmod 755 src/hooks/useX.ts && echo e > src/objects/o && git add . && git commit -q -m x && mkdir t && sleep 0.1`

// A .git file, or a commondir, that names a folder which is no git directory is taken, and the folder left as it is.
func TestSideDoor_FileGit_DotGitFileDoesNotMakeAPlainFolderAGitDirectory(t *testing.T) {
	for file, script := range map[string]string{
		"t/.git":        `echo "gitdir: ../src" > t/.git; echo f >> src/config`,
		"t/g/commondir": `mkdir t/g; cp .git/HEAD t/g; echo ../../src > t/g/commondir; mkdir t/w; echo "gitdir: ../g" > t/w/.git; echo f >> src/config`,
	} {
		t.Run(file, func(t *testing.T) {
			s := start(t, plainFolder, "")
			s.sh(script)
			if r := s.sweep(); r.A == 0 || r.C != 0 {
				t.Errorf("got %+v, want something taken and nothing failed", r)
			}
			if got := s.sh(`git status --short src`); got != "M src/config" || !s.gone(file) {
				t.Errorf("git status: %q; the file is gone: %v", got, s.gone(file))
			}
			s.next()
			for _, e := range s.set.Existing {
				if strings.HasPrefix(e.Rel, "src") {
					t.Errorf("the next session protects %s", e.Rel)
				}
			}
			s.sh(`echo g >> src/hooks/useX.ts`)
			if r := s.sweep(); r.A != 0 || r.C != 0 {
				t.Errorf("an honest session: got %+v, want nothing taken", r)
			}
		})
	}
}

// A worktree of a repository that the search did not reach leaves that one as it was.
func TestSweepLeavesTheRepositoryOfANewWorktreeAlone(t *testing.T) {
	s := start(t, `mkdir node_modules && git init -q node_modules/r && git -C node_modules/r commit -q --allow-empty -m x && git -C node_modules/r config core.fsmonitor mine && mkdir -p node_modules/r/.git/worktrees && sleep 0.1`, "")
	s.sh(`git -C node_modules/r -c core.fsmonitor=false worktree add -q "$PWD/wt" -b side`)
	s.sweep()
	if got := s.sh(`git -C wt config core.fsmonitor`); got != "mine" {
		t.Errorf("got %q", got)
	}
}

// A worktree that git makes of a repository with hooks has the same hooks as the one that was there, and keeps them.
func TestSweepKeepsTheHooksOfAnHonestWorktree(t *testing.T) {
	s := start(t, `git init -q . && mkdir -p .githooks && printf '#!/bin/sh\ntrue\n' > .githooks/pre-commit && chmod 755 .githooks/pre-commit && git add . && git commit -q -m x && git config core.hooksPath .githooks && sleep 0.1`, "")
	s.sh(`git worktree add -q wt -b side`)
	if r := s.sweep(); r.A != 0 || r.C != 0 {
		t.Errorf("got %+v, want nothing taken", r)
	}
	s.sh(`test -x wt/.githooks/pre-commit && git -C wt status --short`)
}

// husky 9 runs the scripts beside _, whatever their mode. Those that a worktree of the user's has may stay.
func TestSideDoor_FileGit_ScriptsOfHuskyInANewWorktreeAreTheUsers(t *testing.T) {
	s := start(t, `git init -q . && mkdir -p .husky/_ && echo true > .husky/pre-commit && echo true > .husky/_/h && git add -f . && git commit -q -m x && git config core.hooksPath .husky/_ && sleep 0.1`, "")
	s.sh(`git worktree add -q --detach wt; echo evil > wt/.husky/post-checkout`)
	s.sweep()
	if got := s.sh(`cd wt/.husky; echo *; git status --short`); got != "_ pre-commit" {
		t.Errorf("left: %q", got)
	}
}

// Remotes may stand in files beside the configuration.
func TestSideDoor_FileGit_FilesOfRemotesAreTaken(t *testing.T) {
	s := start(t, `git init -q .`, "")
	s.sh(`git init -q r; mkdir -p x .git/remotes r/.git/branches; echo foo::bar > r/.git/branches/origin; echo "URL: foo::bar" > .git/remotes/origin; echo foo::bar > x/y; sleep 0.1`)
	s.sweep()
	s.next()
	s.sh(`rm -rf r/.git/remotes; mv x r/.git/remotes`)
	s.sweep()
	if got := s.sh(`find . -path '*/branches/*' -o -path '*/remotes/*'`); got != "" {
		t.Errorf("left: %q", got)
	}
}

// A next session could not take such a path.
func TestSideDoor_FileGit_PathThatIsTooLongForTheNextSessionIsTaken(t *testing.T) {
	s := start(t, `git init -q .`, "")
	s.sh(`python3 -c '
import os
n, w = "d" * 250, os.getcwd()
for i in range(10): os.mkdir(n); os.chdir(n)
os.mkdir("sub"); f = os.open("sub/.git", os.O_CREAT | os.O_WRONLY); os.write(f, ("gitdir: ../" + "/".join(["e" * 250] * 8) + "\n").encode())
for i in range(8): os.mkdir("e" * 250); os.chdir("e" * 250)'`)
	if r := s.sweep(); r.A != 1 || r.C != 0 {
		t.Errorf("got %+v, want the .git taken", r)
	}
	s.next()
}

// atTheEnd makes sub, whose git directory has a path that fits, and whose configuration has one that does not.
const atTheEnd = `python3 -c '
import os
os.mkdir("sub"); top = os.getcwd() + "/sub/.git"; os.chdir("sub"); n = "d" * 250
for i in range(16): os.mkdir(n); os.chdir(n)
g = "g" * (4088 - 3 - 16 * 251 - 1)
os.mkdir(g); os.mkdir(g + "/objects"); os.mkdir(g + "/refs"); open(g + "/HEAD", "w").write("ref: refs/heads/main\n"); open(g + "/config", "w").write("[core]\n\trepositoryformatversion = 0\n")
open(top, "w").write("gitdir: " + (n + "/") * 16 + g + "\n")'; `

// No session chooses that the next one fails.
func TestSideDoor_FileGit_GitDirectoryWithoutRoomForItsNamesIsTaken(t *testing.T) {
	s := start(t, `git init -q .`, "")
	s.sh(atTheEnd)
	if r := s.sweep(); r.A != 1 || r.C != 0 || !s.gone("sub/.git") {
		t.Errorf("got %+v, want the .git taken", r)
	}
	s.next()
}

func TestDiscoverSaysThatAGitDirectoryHasNoRoomForItsNames(t *testing.T) {
	s := start(t, `git init -q .; `+atTheEnd+`git init -q other-repository && printf '[core]\n\thooksPath = '"$(printf 'h/%.0s' $(seq 2045))"'\n' > other-repository/.git/config`, "")
	if notes := strings.Join(s.set.Notes, "\n"); !strings.Contains(notes, "4079 bytes") || !strings.Contains(notes, "4095 bytes") {
		t.Errorf("notes: %s", notes)
	}
}

// The file .jj/repo of a workspace of Jujutsu's is the path of its repository.
func TestSideDoor_FileConfig_PathInPlaceOfAFolderIsTaken(t *testing.T) {
	s := start(t, `true`, "")
	s.sh(`mkdir .jj evilrepo; echo EVIL > evilrepo/config.toml; printf ../evilrepo > .jj/repo`)
	s.sweep()
	if !s.gone(".jj/repo") {
		t.Error(".jj/repo is still there")
	}
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

// A workspace that is a linked worktree has a .git file at its top, and is no submodule for that.
func TestSideDoor_FileGit_WorkspaceIsNoWorkTreeOfANewRepository(t *testing.T) {
	s := start(t, `git init -q ../main && git -C ../main commit -q --allow-empty -m x && git -C ../main worktree add -q ../wt && mv ../wt/.git .git`, "")
	s.sh(`git init -q sub && printf '[core]\n\trepositoryformatversion = 0\n\tworktree = ../..\n' > sub/.git/config`)
	s.sweep()
	if got := s.sh(`cat sub/.git/config`); strings.Contains(got, "worktree") {
		t.Errorf("left: %q", got)
	}
}

// Nobody in a session can make such a folder: it is told, and the session does not fail for it.
func TestSweepTellsOfAFolderThatItCannotList(t *testing.T) {
	s := prepared(t, `mkdir -p node_modules/c/own`, "")
	c := filepath.Join(s.root, "node_modules/c")
	if err := errors.Join(os.Chown(c, 0, 0), os.Chmod(c, 0o711)); err != nil {
		t.Fatal(err)
	}
	s.watch(protect.Config{})
	if r := s.sweep(); r.A != 0 || r.C != 0 {
		t.Errorf("got %+v, want nothing taken and nothing failed", r)
	}
	s.await("the event", func() bool { return s.saw(event.LayerOpen, "file-git", "node_modules/c") })
}

// What the person had where the search does not reach stays, whatever came beside it, or in the folders above.
func TestSweepLeavesOldWorktreesOutOfReachAlone(t *testing.T) {
	for _, in := range []string{"node_modules", "1/2/3/4/5/6/7/8"} {
		s := start(t, `mkdir -p `+in+` && git init -q r && cd r && mkdir .hk && echo one > .hk/lib && echo '#!/bin/sh' > .hk/pre-commit && chmod 755 .hk/pre-commit && git add . && git commit -q -m x && git config core.hooksPath .hk && git config alias.st status &&
git worktree add -q ../`+in+`/wt -b side && cd .. && rm -rf r/.git/worktrees/*/gitdir && echo two > `+in+`/wt/.hk/lib && mv r `+in+`/r && ln -s r `+in+`/link && mkdir `+in+`/linked && echo "gitdir: ../link/.git" > `+in+`/linked/.git &&
echo "gitdir: ../r/.git/worktrees/wt" > `+in+`/wt/.git && echo "gitdir: ../nowhere" > `+in+`/linked/x && sleep 0.1`, "")
		s.sh(`echo x > new; echo x > ` + in + `/new; mkdir ` + in + `/other; mkdir other`)
		if r := s.sweep(); r.A != 0 || r.C != 0 {
			t.Errorf("%s: got %+v, want nothing taken", in, r)
		}
		s.await("word of the link", func() bool { return s.saw(event.LayerOpen, "file-git", in+"/linked/.git") })
		if got := s.sh(`git -C ` + in + `/wt config alias.st; git -C ` + in + `/linked config alias.st; cat ` + in + `/wt/.hk/lib`); got != "status\nstatus\ntwo" {
			t.Errorf("%s: got %q", in, got)
		}
	}
}

func TestSweepTellsOfEveryRepositoryThatItChanged(t *testing.T) {
	s := start(t, `true`, "")
	s.sh(`for i in 1 2 3 4 5 6 7; do git init -q r$i; git -C r$i config core.fsmonitor "touch x"; done`)
	s.sweep()
	for _, i := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		s.await("the event of r"+i, func() bool { return s.saw(event.FileQuarantined, "file-git", "r"+i+"/.git/config") })
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
