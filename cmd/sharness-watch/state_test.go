package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sharness/sharness/event"
)

// states are what a session leaves in a git directory, and what the person types then. PWNED, beside the workspace, says
// that the session's choice was run or written.
var states = map[string]struct{ session, typed, taken string }{
	"record of conflicts": {recorded(`.git`), `git commit -qam x; git status -s`, ".git/MERGE_RR"},
	"record of conflicts of a worktree": {recorded(`.git/worktrees/wt`) + `; echo more >>wt/f; rm -f ../PWNED`,
		`git -C wt commit -qam x; git status -s`, ".git/worktrees/wt/MERGE_RR"},
	"record of conflicts of a new repository": {`git init -q r; cd r; echo x >f; git add f; git commit -qm x; ` + recorded(`.git`) + `; cp -r .git/rr-cache rr`,
		`git -C r commit -qam x; git -C r status -s`, "r/.git/MERGE_RR"},
	"stash of a merge": {`B=$(printf '#!/bin/sh\ntouch "%s/../PWNED"\n' "$PWD" | git hash-object -w --stdin); export GIT_INDEX_FILE=.git/another; git read-tree HEAD
git update-index --add --cacheinfo 100755,$B,.githooks/post-index-change; T=$(git write-tree); unset GIT_INDEX_FILE; rm .git/another
S=$(git commit-tree -p HEAD -p $(git commit-tree -p HEAD -m index HEAD^{tree}) -m WIP $T); echo $S > .git/MERGE_AUTOSTASH; echo more >>f`,
		`git -c core.hooksPath=.githooks commit -qam x; git -c core.hooksPath=.githooks status -s`, ".git/MERGE_AUTOSTASH"},
	"steps of a rebase": {steps(`.git/rebase-merge`, "msgnum", "end"), prompt, ".git/rebase-merge/msgnum"},
	"end of a rebase":   {steps(`.git/rebase-merge`, "end", "msgnum"), prompt, ".git/rebase-merge/end"},
	"steps of git am":   {steps(`.git/rebase-apply`, "next", "last"), prompt, ".git/rebase-apply/next"},
	"end of git am":     {steps(`.git/rebase-apply`, "last", "next"), prompt, ".git/rebase-apply/last"},
	"steps in a linked worktree": {steps(`.git/worktrees/wt/rebase-merge`, "msgnum", "end"), `cd wt; ` + prompt,
		".git/worktrees/wt/rebase-merge/msgnum"},
	"steps in a module":         {steps(`.git/modules/a/b/rebase-merge`, "msgnum", "end"), `cd sub; ` + prompt, ".git/modules/a/b/rebase-merge/msgnum"},
	"steps in a new repository": {`git init -q r; ` + steps(`r/.git/rebase-merge`, "msgnum", "end"), `cd r; ` + prompt, "r/.git/rebase-merge/msgnum"},
	"linked state":              {`git init -q r; mkdir x; ` + steps(`x`, "msgnum", "end") + `; ln -s ../../x r/.git/rebase-merge`, `cd r; ` + prompt, "r/.git/rebase-merge"},
	"linked steps": {`git init -q r; mkdir r/.git/rebase-merge; ` + steps(`r/x`, "msgnum", "end") + `; ln -s ../../x/msgnum ../../x/end r/.git/rebase-merge`,
		`cd r; ` + prompt, "r/.git/rebase-merge/msgnum"},
}

// recorded makes rerere resolve the configuration of the repository that the shell is in.
func recorded(gitDir string) string {
	return `I=1111111111111111111111111111111111111111; mkdir -p .git/rr-cache/$I; cp .git/config .git/rr-cache/$I/preimage
(cat .git/config; printf '[core]\n\tfsmonitor = "touch '$PWD'/../PWNED '$PWD'/../../PWNED; false"\n') > .git/rr-cache/$I/postimage
if [ ` + gitDir + ` = .git ]; then at=.git/config; else at=../.git/config; fi; printf "$I.-1\t$at\0" > ` + gitDir + `/MERGE_RR; echo more >>f`
}

// steps makes a number that a shell expands to a command, and another that is one.
func steps(dir, evil, other string) string {
	return `mkdir -p ` + dir + `; echo "1\$(touch ` + `$PWD/../PWNED)" > ` + dir + `/` + evil + `; echo 2 > ` + dir + `/` + other + `; echo refs/heads/main > ` + dir + `/head-name; : > ` + dir + `/applying`
}

// prompt is what a shell does with PROMPT_COMMAND='__git_ps1 …', a form that git-prompt.sh documents.
const prompt = `bash -c '. /usr/lib/git-core/git-sh-prompt; __git_ps1 x "\\\$ "; echo "${PS1@P}"'`

// stateful is the person's repository, with a linked worktree and a submodule.
const stateful = `git init -q -b main . && echo x > f && git add f && git commit -q -m x && git worktree add -q wt -b side && mkdir -p sub .git/modules/a && git init -q --separate-git-dir .git/modules/a/b sub && sleep 0.1`

func TestSideDoor_FileGit_StateThatASessionLeftRunsNothing(t *testing.T) {
	for name, c := range states {
		t.Run(name, func(t *testing.T) {
			s := start(t, stateful, "")
			s.sh(c.session + `; cd "` + s.root + `"; rm -f ../PWNED`)
			if r := s.sweep(); r.A == 0 || r.C != 0 {
				t.Errorf("sweep: got %+v, want something taken and nothing failed", r)
			}
			s.sh(c.typed)
			if _, err := os.Stat(filepath.Join(s.root, "../PWNED")); err == nil {
				t.Error("what the session had left was run")
			}
			s.await("the event", func() bool { return s.saw(event.FileQuarantined, "file-git", c.taken) })
		})
	}
}

func TestGitOrAPromptRunsStateWithoutTheSweep(t *testing.T) {
	for name, c := range states {
		s := prepared(t, stateful, "")
		s.sh(c.session + `; cd "` + s.root + `"; rm -f ../PWNED; ` + c.typed)
		if _, err := os.Stat(filepath.Join(s.root, "../PWNED")); err != nil {
			t.Errorf("%s: this git does not run it", name)
		}
	}
}

// A session may stop in the middle of its work: the person goes on with it.
func TestSweepLeavesARebaseThatStoppedAlone(t *testing.T) {
	for name, how := range map[string]string{"merge": "--merge", "apply": "--apply"} {
		t.Run(name, func(t *testing.T) {
			s := start(t, stateful, "")
			s.sh(`git -C wt config --local --get rerere.enabled || true; cd wt; echo side > f; git commit -qam side; echo 2 > g; git add g; git commit -qm g; cd ..; echo main > f; git commit -qam main
git -C wt rebase -q ` + how + ` main || true; git -C wt status | grep -q "rebase in progress"`)
			state := `cd .git/worktrees/wt; find . -type f -exec sha256sum {} + | sort`
			before := s.sh(state)
			if r := s.sweep(); r.A != 0 || r.C != 0 {
				t.Errorf("got %+v, want nothing taken", r)
			}
			if after := s.sh(state); after != before {
				t.Errorf("was %s\nis %s", before, after)
			}
			s.sh(`cd wt; git status; echo both > f; git add f; GIT_EDITOR=true git rebase --continue; test -z "$(git status --short)"`)
			if got := s.sh(`git log --format=%s side`); got != "g\nside\nmain\nx" {
				t.Errorf("got %q", strings.Fields(got))
			}
		})
	}
}

// Of a person with rerere an honest conflict's record is taken too, and the merge goes on.
func TestSweepLeavesAMergeOfAPersonWithRerereToGoOn(t *testing.T) {
	s := start(t, stateful+` && mkdir .git/rr-cache`, "")
	s.sh(`cd wt; echo side > f; git commit -qam side; cd ..; echo main > f; git commit -qam main; git merge side || true; test -s .git/MERGE_RR`)
	if r := s.sweep(); r.A != 1 || r.C != 0 {
		t.Errorf("got %+v, want one file taken", r)
	}
	s.sh(`git status | grep -q "unmerged paths"; echo both > f; git add f; git commit -q -m merged; test -f .git/MERGE_RR -a ! -s .git/MERGE_RR; test -z "$(git status --short -uno)"`)
	s.next()
	s.sh(`rm -f .git/MERGE_RR; : > .git/MERGE_RR`)
	if r := s.sweep(); r.A != 0 {
		t.Errorf("an empty one: got %+v, want nothing taken", r)
	}
}
