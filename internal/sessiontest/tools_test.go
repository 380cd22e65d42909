package sessiontest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sharness/sharness/manifest"
)

// tool is one tool of a day's work, inside one command after another.
type tool struct {
	name  string
	files map[string]string // made outside, by the user
	setup string            // run outside, as the user
	run   []string          // one command each
	want  string            // in the output of the last
}

var tools = []tool{
	{
		name:  "git",
		setup: `git init -q -b trunk . && echo one > a && git add . && git commit -q -m first`,
		run: []string{
			gitUser + `git status --porcelain && echo two >> a && git commit -q -am second && git log --oneline | wc -l`,
			gitUser + `git worktree add -q ../git-wt -b side HEAD~1 && cd ../git-wt && echo side > b && git add b && git commit -q -m side && git rebase -q trunk && git log --format=%s | tr '\n' ' '`,
			gitUser + `echo dirty >> a && git stash -q && git diff --exit-code && git stash pop -q && grep dirty a && git checkout -q a`,
			gitUser + `git clone -q . ../git-clone && cd ../git-clone && git log --format=%s | tr '\n' ' ' && git -C ../git worktree remove ../git-wt && git -C ../git gc -q && git -C ../git fsck`,
		},
		want: "second first",
	},
	{
		name: "npm ci",
		files: map[string]string{
			"dep/package.json": `{"name":"dep","version":"1.0.0","main":"i.js","scripts":{"postinstall":"node -e 1"}}`,
			"dep/i.js":         `module.exports = 'from the tarball'`,
			"package.json":     `{"name":"app","version":"1.0.0","dependencies":{"dep":"file:dep-1.0.0.tgz"}}`,
		},
		setup: `(cd dep && npm pack --silent --pack-destination .. >/dev/null) && npm install --silent --offline --no-audit --no-fund >/dev/null && rm -rf node_modules .npm .cache && test -f package-lock.json`,
		run:   []string{`npm ci --offline --no-audit --no-fund && node -p 'require("dep")'`},
		want:  "from the tarball",
	},
	{
		name: "go",
		files: map[string]string{
			"go.mod":    "module example.com/m\n\ngo 1.24\n",
			"m.go":      "package main\n\nimport \"os\"\n\nfunc double(n int) int { return 2 * n }\n\nfunc main() { os.Stdout.WriteString(\"built\\n\"); os.Exit(double(0)) }\n",
			"m_test.go": "package main\n\nimport \"testing\"\n\nfunc TestDouble(t *testing.T) {\n\tif double(2) != 4 {\n\t\tt.Fail()\n\t}\n}\n",
		},
		run:  []string{`export GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local; go build -o m . && ./m && go test ./... && go vet ./...`},
		want: "ok  \texample.com/m",
	},
	{
		name: "python asyncio and multiprocessing",
		files: map[string]string{"p.py": `
import asyncio, multiprocessing as mp, multiprocessing.shared_memory as shm, sys
def square(n): return n * n
def put(q, lock, v):
    with lock:
        v.value += 1
        q.put(v.value)
async def child():
    p = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(6*7)", stdout=asyncio.subprocess.PIPE)
    out, _ = await p.communicate()
    server = await asyncio.start_server(lambda r, w: (w.write(b"hi"), w.close()), "127.0.0.1", 0)
    r, w = await asyncio.open_connection(*server.sockets[0].getsockname())
    return out.strip(), await r.read()
if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        ctx = mp.get_context(method)
        with ctx.Pool(4) as pool:
            assert pool.map(square, range(20)) == [n * n for n in range(20)]
        q, lock, v = ctx.Queue(), ctx.Lock(), ctx.Value("i", 0)
        ps = [ctx.Process(target=put, args=(q, lock, v)) for _ in range(4)]
        [p.start() for p in ps]; got = sorted(q.get() for _ in ps); [p.join() for p in ps]
        assert got == [1, 2, 3, 4], got
    s = shm.SharedMemory(create=True, size=4096); s.buf[0] = 7; s.close(); s.unlink()
    assert asyncio.run(child()) == (b"42", b"hi")
    print("python well")
`},
		run:  []string{`/usr/bin/python3 p.py`},
		want: "python well",
	},
	{
		name: "make -j4",
		files: map[string]string{
			"Makefile": "all: a b c d\n\tcat $^\n%: %.in\n\tsleep 0.1; cp $< $@\n",
			"a.in":     "A\n", "b.in": "B\n", "c.in": "C\n", "d.in": "D\n",
		},
		run:  []string{`make -j4`},
		want: "A\nB\nC\nD\n",
	},
	{
		name: "sqlite3",
		run: []string{`for f in here.db /tmp/there.db; do for mode in delete wal; do
sqlite3 $f "pragma journal_mode=$mode; create table if not exists t(x); insert into t values(1),(2); select 'sum', sum(x) from t;"; done; done
sqlite3 here.db 'pragma integrity_check'`},
		want: "sum|6",
	},
	{
		name: "POSIX semaphores, shared memory and threads",
		files: map[string]string{"s.c": `
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>
static int n; static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static void *add(void *p) { (void)p; for (int i = 0; i < 1000; i++) { pthread_mutex_lock(&m); n++; pthread_mutex_unlock(&m); } return 0; }
int main(void) {
	sem_t *s = sem_open("/sem", O_CREAT | O_EXCL, 0600, 0);
	if (s == SEM_FAILED) return perror("sem_open"), 1;
	int fd = shm_open("/mem", O_CREAT | O_RDWR, 0600);
	if (fd < 0 || ftruncate(fd, 4096)) return perror("shm_open"), 1;
	int *v = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (v == MAP_FAILED) return perror("mmap"), 1;
	int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
	if (id < 0 || shmat(id, 0, 0) == (void *)-1 || shmctl(id, IPC_RMID, 0)) return perror("shmget"), 1;
	if (!fork()) { *v = 42; sem_post(s); _exit(0); }
	sem_wait(s); wait(0);
	pthread_t t[8];
	for (int i = 0; i < 8; i++) if (pthread_create(&t[i], 0, add, 0)) return perror("pthread_create"), 1;
	for (int i = 0; i < 8; i++) pthread_join(t[i], 0);
	printf("shared %d counted %d\n", *v, n);
	return sem_unlink("/sem") || shm_unlink("/mem");
}`},
		run:  []string{`gcc -Wall -o s s.c -pthread -lrt && ./s && gcc -o /tmp/s s.c -pthread -lrt && /tmp/s`},
		want: "shared 42 counted 8000",
	},
	{
		name: "node workers and children",
		files: map[string]string{"n.js": `
const { Worker, isMainThread, parentPort } = require('worker_threads')
const { spawnSync, fork, execFileSync } = require('child_process')
if (!isMainThread) { parentPort.postMessage(1); return }
if (process.send) { process.send('forked'); return }
Promise.all([...Array(4)].map(() => new Promise((ok, no) => new Worker(__filename).on('message', ok).on('error', no)))).then(r => {
  const s = spawnSync('sh', ['-c', 'cat; exit 3'], { input: 'in' })
  fork(__filename).on('message', m => {
    const w = new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]))
    console.log('workers', r.length, 'child', s.status, s.stdout.toString(), execFileSync('uname').toString().trim(), m, w instanceof WebAssembly.Module)
  })
})`},
		run:  []string{`node n.js`},
		want: "workers 4 child 3 in Linux forked true",
	},
	{
		name: "a terminal of its own",
		run: []string{`script -qec 'test -t 0 && test -t 1 && stty size && echo on a terminal' /dev/null < /dev/null
/usr/bin/python3 -c '
import os, pty
m, s = pty.openpty(); os.write(s, b"x\n"); assert os.read(m, 9) == b"x\r\n"
pid, fd = pty.fork()
if pid == 0: os.execlp("sh", "sh", "-c", "tty; exit 5")
print(os.read(fd, 99).strip()); assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5'`},
		want: "on a terminal",
	},
	{
		name: "archives, find and xargs",
		run: []string{`mkdir -p d/e && for i in $(seq 40); do echo $i > d/e/f$i; done && ln -s f1 d/e/l && tar czf d.tgz d && mkdir x && tar xzf d.tgz -C x && diff -r d x/d &&
gzip -k d/e/f1 && zcat d/e/f1.gz && find d -type f -name 'f*' -print0 | xargs -0 -P4 -n5 cat | sort -n | tail -1 && cp -a d y && mv y z && rm -rf z x && touch -d 2020-01-01 d/e/f2 && stat -c %y d/e/f2`},
		want: "40\n2020-01-01",
	},
	{
		name: "a web server within one command",
		run:  []string{`echo served > index.txt; /usr/bin/python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 & for i in $(seq 100); do curl -sf http://127.0.0.1:8123/index.txt && break; sleep 0.1; done; kill $!; curl -sf http://localhost:8123/ || echo gone`},
		want: "served\ngone",
	},
	{
		name: "sockets and pipes in the private folders",
		run: []string{`mkfifo /tmp/p && { echo through > /tmp/p & } && cat /tmp/p && /usr/bin/python3 -c '
import socket, threading
a = socket.socket(socket.AF_UNIX); a.bind("/tmp/s"); a.listen()
threading.Thread(target=lambda: a.accept()[0].send(b"unix")).start()
b = socket.socket(socket.AF_UNIX); b.connect("/tmp/s"); print(b.recv(9).decode())'`},
		want: "through\nunix",
	},
}

const gitUser = `export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com; set -e; `

// TestToolsOfADaysWorkRunInsideCommands has the limits of a manifest that says nothing about them.
func TestToolsOfADaysWorkRunInsideCommands(t *testing.T) {
	s := newSite(t, func(m *manifest.Manifest) { m.Sandbox.Memory = 2 * manifest.GiB })
	for _, c := range tools {
		dir := folder(c.name)
		for rel, content := range c.files {
			s.write(filepath.Join(dir, rel), content)
		}
		s.user(fmt.Sprintf("mkdir -p %s && cd %s && export HOME=$PWD\n%s", dir, dir, c.setup), "")
	}
	x := s.serve()
	for _, c := range tools {
		t.Run(c.name, func(t *testing.T) {
			x := x.on(t)
			var last reply
			var all strings.Builder
			for _, script := range c.run {
				last = x.run(folder(c.name), script)
				all.WriteString(last.Stdout)
				if last.ExitCode != 0 || last.Signal != 0 || len(last.LimitsHit) > 0 {
					t.Fatalf("%.70q: exit %d signal %d limits %v\n%.3000s\n%.3000s", script, last.ExitCode, last.Signal, last.LimitsHit, last.Stdout, last.Stderr)
				}
			}
			if !strings.Contains(all.String(), c.want) {
				t.Errorf("want %q in %.1500q; stderr %.500q", c.want, all.String(), last.Stderr)
			}
		})
	}
	x.stop()
	x.wantNoDenials()
	wantUsers(t, s.workspace)
}

// folder is the tool's own, below the workspace.
func folder(name string) string { return strings.Fields(name)[0] }

// wantUsers checks that a tree belongs to the user, and holds nothing that acts by itself.
func wantUsers(t *testing.T, dir string) {
	t.Helper()
	for path, what := range tree(t, dir) {
		fi, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode()&(os.ModeSetuid|os.ModeSetgid|os.ModeNamedPipe|os.ModeSocket|os.ModeDevice|os.ModeIrregular) != 0 {
			t.Errorf("%s is %s: a set-id bit or a special file", path, what)
		}
		if !strings.Contains(what, fmt.Sprintf(" %d:%d ", userID, userID)) {
			t.Errorf("%s is %s: want the user's, %d", path, what, userID)
		}
	}
}
