package main

import "testing"

// owned are files of the user's that no session can write, or would, and what a session makes around them so that they look like
// its own repository's. look prints what must be as it was.
var owned = map[string]struct{ prepare, script, look string }{
	"hooks path into the user's .git": {`git init -q . && git config a.b c && printf '#!/bin/sh\n' > .git/hooks/pre-push && chmod 755 .git/hooks/pre-push && git commit -q --allow-empty -m x`,
		`git init -q lib && git -C lib config core.hooksPath ../.git`, `cat .git/config .git/HEAD .git/hooks/pre-push`},
	"hooks path into settings": {`mkdir .vscode src && echo '{}' > .vscode/settings.json && echo x > src/f`,
		`git init -q lib && git -C lib config core.hooksPath ../.vscode && git -C lib config --add core.hooksPath ../src`, `cat .vscode/settings.json src/f`},
	"workspace as a git directory": {`git init -q . && git config core.hooksPath hooks && mkdir hooks config && echo x > hooks/pre-push && chmod 755 hooks/pre-push && echo x > config/app.yaml`,
		`mkdir objects refs`, `cat hooks/pre-push config/app.yaml`},
	"submodule that is called config": {`git init -q ../l && git -C ../l commit -q --allow-empty -m l; git init -q . && mkdir app && git -c protocol.file.allow=always submodule --quiet add ../l app/config && git commit -q -m s`,
		`true`, `cat .git/modules/app/config/config .git/modules/app/config/HEAD`},
	"submodule that is called branches": {`git init -q ../l && git -C ../l commit -q --allow-empty -m l; git init -q . && mkdir app && git -c protocol.file.allow=always submodule --quiet add ../l app/branches && git commit -q -m s`,
		`git -C app/branches commit -q --allow-empty -m more`, `cat .git/modules/app/branches/config .git/modules/app/branches/HEAD; test -s .git/modules/app/branches/index`},
	"branches of a submodule that are called as what git obeys": {`git init -q ../l && git -C ../l commit -q --allow-empty -m l; git init -q . && git -c protocol.file.allow=always submodule --quiet add ../l lib && git commit -q -m s && for b in config hooks branches/x remotes/y; do git -C lib branch $b; done`,
		`true`, `git -C lib for-each-ref; find .git/modules/lib/refs .git/modules/lib/logs -type f | sort`},
	"submodule beside one that is called config": {`git init -q ../l && git -C ../l commit -q --allow-empty -m l; git init -q . && mkdir app && for n in branches config; do git -c protocol.file.allow=always submodule --quiet add ../l app/$n; done && git commit -q -m s && git submodule --quiet deinit -f app/branches`,
		`true`, `cat .git/modules/app/branches/config .git/modules/app/branches/HEAD`},
	"submodule that is called index": {`git init -q ../l && git -C ../l commit -q --allow-empty -m l; git init -q . && mkdir app && for n in index commondir; do git -c protocol.file.allow=always submodule --quiet add ../l app/$n; done && git commit -q -m s`,
		`git -C app/index commit -q --allow-empty -m more; git -C app/commondir commit -q --allow-empty -m more`, `cat .git/modules/app/index/HEAD .git/modules/app/commondir/HEAD`},
	"worktree in a bare repository": {`git init -q -b main ../l && ln -s a ../l/link && git -C ../l add . && git -C ../l commit -q -m l && git clone -q --bare ../l user && git -C user worktree add -q main`,
		`touch user/main/new; git -C user/main add . && git -C user/main commit -q -m new; rm user/main/link; git -C user/main checkout -q link; mkdir -p user/main/node_modules/.bin`, `readlink user/main/link`},
	"branch that is a link":                  {`git init -q -b main . && git commit -q --allow-empty -m x && ln -s main .git/refs/heads/alias`, `echo x > f; git add f; git stash -q; git stash pop -q; git commit -q -m y`, `readlink .git/refs/heads/alias`},
	"link in a folder that git gc wrote in":  {`git init -q . && git commit -q --allow-empty -m x && ln -sf ../../mine .git/info/exclude`, `git gc -q`, `readlink .git/info/exclude`},
	"sources that look like a git directory": {`mkdir -p s/objects s/refs s/config && echo x > s/config/f && ln -s f s/config/l`, `echo x > s/new`, `cat s/config/f; readlink s/config/l`},
}

func TestSweepLeavesWhatIsTheUsersOwn(t *testing.T) {
	for name, r := range owned {
		t.Run(name, func(t *testing.T) {
			s := start(t, r.prepare+`; sleep 0.1`, "")
			before := s.sh(r.look)
			s.sh(r.script)
			want := uint64(0)
			if name == "workspace as a git directory" { // it is told that git may obey them
				want = 1
			}
			if got := s.sweep(); got.C != want {
				t.Errorf("sweep: got %+v, want %d told as left", got, want)
			}
			if after := s.sh(r.look); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
		})
	}
}

// A git directory that was none for one session has the user's own configuration and hooks.
func TestSweepLeavesAGitDirectoryAloneThatWasNoneForASession(t *testing.T) {
	const look = `cat .git/config .git/hooks/pre-push`
	s := start(t, `git init -q . && git config core.pager less && printf '#!/bin/sh\n' > .git/hooks/pre-push && chmod 755 .git/hooks/pre-push && git commit -q --allow-empty -m x; sleep 0.1`, "")
	before := s.sh(look)
	s.sh(`mv .git/refs .git/r`)
	s.sweep()
	s.next()
	s.sh(`mv .git/r .git/refs`)
	if got := s.sweep(); got.A != 0 || got.C != 2 {
		t.Errorf("sweep: got %+v, want both told and nothing taken", got)
	}
	if after := s.sh(look); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}
