package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sharness/sharness/event"
)

// indexed writes an index by hand: `entered DIR HASH PATH…` puts the file f, 0755, at each path, as git does not.
const indexed = `entered() { python3 - "$@" <<'X'
import sys, struct, subprocess, hashlib
top, size, paths = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
run = lambda *a: subprocess.run(["git", "-C", top] + list(a), check=True, stdout=subprocess.PIPE).stdout.decode().strip()
blob = bytes.fromhex(run("hash-object", "-w", "hook"))
out = b"DIRC" + struct.pack(">II", 2, len(paths))
for p in sorted(p.encode() for p in paths):
    e = struct.pack(">10I", 0, 0, 0, 0, 0, 0, 0o100755, 0, 0, 0) + blob + struct.pack(">H", len(p)) + p
    out += e + b"\0" * (8 - len(e) % 8)
out += (hashlib.sha1 if size == 20 else hashlib.sha256)(out).digest()
open(run("rev-parse", "--absolute-git-dir") + "/index", "wb").write(out)
X
}; hooked() { printf '#!/bin/sh\ntouch "'$(cd ..; pwd)'/PWNED" "'$(cd ../..; pwd)'/PWNED"\n' > hook; }
`

// twofold writes an index by hand that has the file hook as one of git's for who reads names of 20 bytes, and nothing of harm for who reads 32.
const twofold = `twofold() { python3 - <<'X'
import struct, subprocess
def blob(text):
    return bytes.fromhex(subprocess.run(["git", "hash-object", "-w", "--stdin"], input=text, check=True, stdout=subprocess.PIPE).stdout.decode().strip())
path, n = b".git/hooks/post-checkout", 0
while True:
    evil, n = blob(open("hook", "rb").read() + b"# %d\n" % n), n + 1
    if 0 not in evil and 0x2f not in evil: break
def entry(stat, mode, name, flags, path):
    e = stat + struct.pack(">I", mode) + b"\1" * 12 + name + struct.pack(">H", flags) + path
    return e + b"\0" * (8 - len(e) % 8)
body = b"DIRC" + struct.pack(">II", 2, 2) + entry(b"\1" * 24, 0o100644, blob(b"plain\n"), 9, b"aaaaaaaaa")
body += entry(struct.pack(">H", 60 + len(path)) + b"\1" * 22, 0x01010000 | 0o100755, evil, 0x8000 | len(path), path)
rest = bytearray(entry(b"AAAA" + b"\0" * 4 + b"\1" * 16, 0o100644, b"\2" * 32, 1, b"b"))
struct.pack_into(">I", rest, 4, len(body) + len(rest) + 32 - 20 - (len(body) + 8))
open(".git/index", "wb").write(body + rest + b"\7" * 32)
X
}
`

// checkedOut are indexes that a session wrote: git checkout makes a hook, or a file beside the workspace, of them.
var checkedOut = map[string]struct{ session, typed, taken string }{
	"hook":                        {`hooked; entered . 20 f .git/hooks/post-index-change; rm f`, `git checkout -q . || true`, ".git/index"},
	"outside":                     {`hooked; entered . 20 f ../PWNED`, `git restore . || true`, ".git/index"},
	"linked worktree":             {`cd wt; hooked; entered . 20 f ../../PWNED`, `git -C wt checkout -q . || true`, ".git/worktrees/wt/index"},
	"submodule":                   {`cd sub; hooked; entered . 20 f ../../PWNED`, `git -C sub checkout -q . || true`, ".git/modules/a/b/index"},
	"new repository":              {`git init -q r; cd r; hooked; entered . 20 f .git/hooks/post-index-change; rm -f f`, `cd r; git checkout -q . || true`, "r/.git/index"},
	"sha256":                      {`git init -q --object-format=sha256 r; cd r; hooked; entered . 32 f ../../PWNED`, `cd r; git checkout -q . || true`, "r/.git/index"},
	"sha256 that git passes over": {twofold + `git init -q r; cd r; hooked; printf '[extensions]\n\tobjectformat = sha256\n' > .git/config; twofold`, `cd r; git checkout -q . || true`, "r/.git/index"},
	"shared": {`hooked; entered . 20 f ../PWNED; mv .git/index x; S=$(tail -c 20 x | od -An -tx1 | tr -d ' \n'); mv x .git/sharedindex.$S
python3 -c '
import sys, struct, hashlib
out = b"DIRC" + struct.pack(">II", 2, 0) + b"link" + struct.pack(">I", 44) + bytes.fromhex(sys.argv[1]) + b"\0" * 24
open(".git/index", "wb").write(out + hashlib.sha1(out).digest())' $S`, `git checkout -q . || true`, ".git/sharedindex.SHA"},
	"linked index": {`git init -q r; cd r; hooked; entered . 20 f ../../PWNED; mv .git/index x; ln -s ../x .git/index`, `cd r; git checkout -q . || true`, "r/.git/index"},
}

func TestSideDoor_FileGit_CheckoutOfAnIndexThatASessionWroteMakesNothing(t *testing.T) {
	for name, c := range checkedOut {
		t.Run(name, func(t *testing.T) {
			s := start(t, stateful, "")
			s.sh(indexed + c.session + `; rm -f "` + s.root + `"/../PWNED`)
			if r := s.sweep(); r.A == 0 || r.C != 0 {
				t.Errorf("sweep: got %+v, want something taken and nothing failed", r)
			}
			s.sh(`(` + c.typed + `); git reset -q; git status --short; git checkout -q .; git fsck`)
			if _, err := os.Stat(filepath.Join(s.root, "../PWNED")); err == nil {
				t.Error("git made, or ran, what the index says")
			}
			s.await("the event", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				for _, e := range s.events {
					at, _, shared := strings.Cut(c.taken, "SHA")
					if e.Type == event.FileQuarantined && e.Door == "file-git" && (strings.HasSuffix(e.Target.Asked, at) || shared && strings.Contains(e.Target.Asked, at)) {
						return strings.Contains(e.Hint.Person, "git reset")
					}
				}
				return false
			})
		})
	}
}

func TestCheckoutMakesWhatAnIndexSaysWithoutTheSweep(t *testing.T) {
	for name, c := range checkedOut {
		s := prepared(t, stateful, "")
		s.sh(indexed + c.session + `; cd "` + s.root + `"; rm -f ../PWNED; ` + c.typed)
		if _, err := os.Stat(filepath.Join(s.root, "../PWNED")); err != nil {
			t.Errorf("%s: this git does not make it", name)
		}
	}
}

func TestSweepLeavesHonestIndexesAsTheyAre(t *testing.T) {
	s := start(t, stateful, "")
	s.sh(`export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=protocol.file.allow GIT_CONFIG_VALUE_0=always
mk() { git init -q -b main $2 $1; cd $1; mkdir -p d/e .github; for i in 1 2 3 4 5; do echo $i | tee f$i d/f$i > d/e/f$i; done; touch .gitignore .gitattributes .github/w; git add .; git commit -qm x; }
(mk one); git clone -q one clone; git -C clone submodule --quiet add ../one sub; git -C clone worktree add -q ../wt2 -b o
git clone -q --depth 1 file://$PWD/one shallow
(mk split; git update-index --split-index; echo 9 >f1; git add f1; git rm -q --cached f2)
(mk split4; git update-index --index-version 4; git update-index --split-index; echo 9 >f1; echo > z; git add f1 z; git rm -q --cached d/f2)
(mk v4; git update-index --index-version 4)
(mk sparse; git sparse-checkout set --cone --sparse-index d/e)
(mk sha --object-format=sha256; echo n > new; git add -N new; git worktree add -q ../shawt -b o)
(mk conflict; git checkout -q -b o; echo o >f1; git commit -qam o; git checkout -q main; echo m >f1; git commit -qam m; git merge o || true)
(mk untracked; git update-index --force-untracked-cache; git status; git update-index --fsmonitor; git status)
(mk removed; git rm -qr --cached .)
(git init -q many; cd many; python3 -c '
import os
for i in range(20000):
    if i % 100 == 0: os.makedirs("d%d" % i); d = "d%d" % i
    open(d + "/file%d" % i, "w").close()'; git -c index.threads=4 add .; git -c index.threads=4 update-index --index-version 4)
(cd wt; echo more >> f; git add f)`)
	const all = `find . \( -name index -o -name 'sharedindex.*' \) -type f -exec sha256sum {} + | sort`
	before := s.sh(all)
	if strings.Count(before, "sharedindex") < 2 || strings.Count(before, "/index") < 16 {
		t.Fatalf("too few indexes:\n%s", before)
	}
	if r := s.sweep(); r.A != 0 || r.C != 0 {
		t.Errorf("got %+v, want nothing taken; the quarantine holds %s", r, s.sh(`ls "`+s.kept+`"`))
	}
	if after := s.sh(all); after != before {
		t.Errorf("was\n%s\nis\n%s", before, after)
	}
}
