package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sharness/sharness/event"
)

// The hooks of the user's own worktree, and of a new one wt, run what lies beside them: husky 9 its _/h, others a library, or the parts
// in a folder.
const besideHooks = `git init -q . && echo x > f && mkdir -p .githooks/post-checkout.d .githooks/lib .husky/_ &&
printf '#!/bin/sh\n. "$(dirname "$0")/lib.sh"\nfor p in "$0".d/*; do test -x "$p" && "$p"; done\n. "$(dirname "$0")/lib/x"\n' > .githooks/post-checkout &&
echo true > .githooks/lib.sh && echo true > .githooks/lib/x && echo read > .githooks/post-checkout.d/README && chmod 755 .githooks/post-checkout &&
printf '#!/bin/sh\n. "$(dirname "$0")/h"\n' > .husky/_/post-checkout && echo true > .husky/_/h && chmod 755 .husky/_/post-checkout && git add -f . && git commit -q -m x; sleep 0.1; git config core.hooksPath `

var filesBesideHooks = map[string]struct{ hooks, script, file string }{
	"husky":         {".husky/_", `echo 'touch "$PWD/../../PWNED"' > wt/.husky/_/h`, "wt/.husky/_/h"},
	"library":       {".githooks", `echo 'touch "$PWD/../../PWNED"' > wt/.githooks/lib.sh`, "wt/.githooks/lib.sh"},
	"library below": {".githooks", `echo 'touch "$PWD/../../PWNED"' > wt/.githooks/lib/x`, "wt/.githooks/lib/x"},
	"part":          {".githooks", `printf '#!/bin/sh\ntouch "$PWD/../../PWNED"\n' > wt/.githooks/post-checkout.d/10-x; chmod 755 wt/.githooks/post-checkout.d/10-x`, "wt/.githooks/post-checkout.d/10-x"},
	"linked parts": {".githooks", `mkdir parts; printf '#!/bin/sh\ntouch "$PWD/../../PWNED"\n' > parts/10-x; chmod 755 parts/10-x; rm -r wt/.githooks/post-checkout.d; ln -s ../../parts wt/.githooks/post-checkout.d`,
		"wt/.githooks/post-checkout.d"},
	"renamed parts": {".githooks", `mkdir parts; printf '#!/bin/sh\ntouch "$PWD/../../PWNED"\n' > parts/10-x; chmod 755 parts/10-x; rm -r wt/.githooks/post-checkout.d; mv parts wt/.githooks/post-checkout.d`,
		"wt/.githooks/post-checkout.d/10-x"},
}

func TestSideDoor_FileGit_FilesBesideTheHooksOfANewWorktreeAreTheUsers(t *testing.T) {
	for name, r := range filesBesideHooks {
		t.Run(name, func(t *testing.T) {
			s := start(t, besideHooks+r.hooks, "")
			s.sh(`git worktree add -q --detach wt; rm -f ../PWNED; ` + r.script)
			if got := s.sweep(); got.A == 0 || got.C != 0 {
				t.Errorf("sweep: got %+v, want something taken and nothing failed", got)
			}
			s.sh(`git -C wt checkout -q --detach || true`)
			if _, err := os.Stat(filepath.Join(s.root, "../PWNED")); err == nil {
				t.Error("git checkout ran what the agent had put there")
			}
			s.await("the event", func() bool { return s.saw(event.FileQuarantined, "file-git", r.file) })
		})
	}
}

func TestCheckoutRunsFilesBesideTheHooksWithoutTheSweep(t *testing.T) {
	for name, r := range filesBesideHooks {
		s := prepared(t, besideHooks+r.hooks, "")
		s.sh(`git worktree add -q --detach wt; rm -f ../PWNED; ` + r.script + `; git -C wt checkout -q --detach || true`)
		if _, err := os.Stat(filepath.Join(s.root, "../PWNED")); err != nil {
			t.Errorf("%s: this git does not run it", name)
		}
	}
}

// All that the user's hooks have beside them stays in a worktree that git made.
func TestSweepKeepsFilesBesideTheHooksOfAnHonestWorktree(t *testing.T) {
	for _, hooks := range []string{".githooks", ".husky/_"} {
		s := start(t, besideHooks+hooks, "")
		s.sh(`git worktree add -q --detach wt`)
		if r := s.sweep(); r.A != 0 || r.C != 0 {
			t.Errorf("got %+v, want nothing taken", r)
		}
		if got := s.sh(`git -C wt status --short`); got != "" {
			t.Errorf("git status: %s", got)
		}
	}
}
