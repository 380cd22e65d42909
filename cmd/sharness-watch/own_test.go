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
	"link in a folder that git gc wrote in":  {`git init -q . && git commit -q --allow-empty -m x && ln -sf ../../mine .git/info/exclude`, `git gc -q`, `readlink .git/info/exclude`},
	"sources that look like a git directory": {`mkdir -p s/objects s/refs s/config && echo x > s/config/f && ln -s f s/config/l`, `echo x > s/new`, `cat s/config/f; readlink s/config/l`},
}

func TestSweepLeavesWhatIsTheUsersOwn(t *testing.T) {
	for name, r := range owned {
		t.Run(name, func(t *testing.T) {
			s := start(t, r.prepare+`; sleep 0.1`, "")
			before := s.sh(r.look)
			s.sh(r.script)
			if got := s.sweep(); got.C != 0 {
				t.Errorf("sweep: got %+v, want nothing failed", got)
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
	if got := s.sweep(); got.C != 0 {
		t.Errorf("sweep: got %+v, want nothing failed", got)
	}
	if after := s.sh(look); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}
