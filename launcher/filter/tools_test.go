package filter

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sharness/sharness/internal/kerneltest"
)

// execInput is a program to become under filters.
type execInput struct {
	Filters [][]byte
	Argv    []string
	Env     []string
}

func execChild(input json.RawMessage) (any, error) {
	var in execInput
	if err := json.Unmarshal(input, &in); err != nil {
		return nil, err
	}
	if err := load(in.Filters); err != nil {
		return nil, err
	}
	return nil, syscall.Exec(in.Argv[0], in.Argv, in.Env)
}

// runTool runs a program as an ordinary user in a folder of its own, and returns what it wrote to its standard output.
func runTool(t *testing.T, o Options, argv ...string) string {
	t.Helper()
	kerneltest.RequireRoot(t)
	kerneltest.RequireProgram(t, argv[0])
	var out bytes.Buffer
	home := ownFolder(t)
	in := execInput{
		Filters: mustCompile(t, o),
		Argv:    argv,
		Env:     []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/go/bin", "HOME=" + home, "LANG=C.UTF-8"},
	}
	kerneltest.Child{Name: "exec", Input: in, Setup: func(c *exec.Cmd) {
		c.Dir, c.Stdout = home, &out
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testUID, Gid: testUID}}
	}}.Run(t)
	return out.String()
}

// ownFolder is a folder that the test's uid owns and can reach: those of t.TempDir are closed to others.
func ownFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "filter-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chown(dir, testUID, testUID); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What the answers above would break, were they the wrong ones: threads (clone3), event loops (io_uring, recvmsg),
// JITs, worker processes, package net's probing for MPTCP, and key generation (RLIMIT_CORE).
var tools = []struct {
	name string
	want string
	argv []string
}{
	{"bash", "b\n", []string{"/bin/bash", "-c", `(echo $(echo a) | tr a b) & wait`}},
	{"coreutils", "644\n", []string{"/bin/bash", "-c", `mkdir d && touch d/f && chmod 644 d/f && cp -a d e && tar cf - e | tar tf - >/dev/null && mv e g && stat -c %a g/f`}},
	{"git", "1\n", []string{"/bin/bash", "-c", `git init -q . && echo a >a && git add a && git -c user.name=a -c user.email=a@b commit -qm x &&
		git worktree add -q w && git -c gc.auto=1 gc -q && git log --oneline | wc -l`}},
	{"node", "worker child 200\n", []string{"/usr/bin/node", "-e", `
		const {Worker} = require("worker_threads"), cp = require("child_process"), http = require("http")
		new Worker('require("worker_threads").parentPort.postMessage("worker")', {eval: true}).on("message", m => {
			const c = cp.spawnSync("/bin/echo", ["child"])
			if (c.error) throw c.error
			http.createServer((q, r) => r.end()).listen(0, "127.0.0.1", function () {
				http.get({port: this.address().port, host: "127.0.0.1"}, r => {
					console.log(m, c.stdout.toString().trim(), r.statusCode); process.exit()
				})
			})
		})`}},
	{"python", "[1, 2] 5 True\n", []string{"/usr/bin/python3", "-c", `
import asyncio, multiprocessing, socket, threading
with multiprocessing.Pool(2) as p: a = p.map(abs, [-1, -2])
t = threading.Thread(target=lambda: None); t.start(); t.join()
print(a, asyncio.run(asyncio.sleep(0, 5)), bool(socket.getaddrinfo("127.0.0.1", 80)))`}},
	{"sqlite", "[(500,)] wal\n", []string{"/usr/bin/python3", "-c", `
import sqlite3
c = sqlite3.connect("x.db"); mode = c.execute("pragma journal_mode=wal").fetchone()[0]; c.execute("create table t(a)")
with c: c.executemany("insert into t values(?)", [(i,) for i in range(500)])
print(c.execute("select count(*) from t").fetchall(), mode)`}},
	{"affinity", "True\n", []string{"/usr/bin/python3", "-c", `
import os, threading
os.sched_setaffinity(0, os.sched_getaffinity(0)); os.nice(1); os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
os.sched_setaffinity(threading.get_native_id(), os.sched_getaffinity(0))
print(os.sched_getscheduler(0) == os.SCHED_BATCH)`}},
	{"gpg", "1\n", []string{"/bin/bash", "-c", `mkdir -m 700 g && gpg --homedir g --batch --passphrase '' --quick-gen-key a@b default default never 2>/dev/null &&
		gpg --homedir g --list-secret-keys --with-colons 2>/dev/null | grep -c ^sec; gpgconf --homedir g --kill all`}},
}

func TestToolsWorkUnderTheCommandFilter(t *testing.T) {
	for _, tool := range tools {
		t.Run(tool.name, func(t *testing.T) {
			if got := runTool(t, Options{Kind: Command}, tool.argv...); got != tool.want {
				t.Errorf("want %q, got %q", tool.want, got)
			}
		})
	}
}

func TestNodeWorksUnderTheOrchestratorFilter(t *testing.T) {
	for _, tool := range tools {
		if tool.name == "node" {
			if got := runTool(t, Options{Kind: Orchestrator}, tool.argv...); got != tool.want {
				t.Errorf("want %q, got %q", tool.want, got)
			}
		}
	}
}

// Without recvmsg descriptors cannot arrive. What an orchestrator does all the same: subprocesses, threads, servers,
// names. Node's fork() with a channel is what cannot.
func TestInterpretersWorkUnderTheOrchestratorFilterWithoutRecvmsg(t *testing.T) {
	for _, tool := range tools {
		switch tool.name {
		case "bash", "node", "python":
			t.Run(tool.name, func(t *testing.T) {
				if got := runTool(t, Options{Kind: Orchestrator, DenyRecvmsg: true}, tool.argv...); got != tool.want {
					t.Errorf("want %q, got %q", tool.want, got)
				}
			})
		}
	}
}

const goProgram = `package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
)

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "served") }))
	r, err := http.Get("http://" + l.Addr().String())
	if err != nil {
		panic(err)
	}
	body, _ := io.ReadAll(r.Body)
	out, err := exec.Command("/bin/echo", "child").Output()
	interfaces, _ := net.Interfaces()
	fmt.Println(string(body), string(out), err, len(interfaces) > 0)
}
`

func TestGoProgramRunsUnderTheCommandFilter(t *testing.T) {
	dir := ownFolder(t)
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "x"), ".")
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GOTOOLCHAIN=local")
	writeModule(t, dir, goProgram)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	got := runTool(t, Options{Kind: Command}, filepath.Join(dir, "x"))
	if want := "served child\n <nil> true\n"; got != want {
		t.Errorf("want %q, got %q", want, got)
	}
}

// A program without imports: the compiler, not the library, is what runs under the filter.
func TestGoBuildsUnderTheCommandFilter(t *testing.T) {
	dir := ownFolder(t)
	writeModule(t, dir, "package main\n\nfunc main() { print() }\n")
	script := "cd " + dir + " && GOTOOLCHAIN=local GOFLAGS=-buildvcs=false CGO_ENABLED=0 go build -o x . && ./x && echo ran"
	if got := runTool(t, Options{Kind: Command}, "/bin/bash", "-c", script); got != "ran\n" {
		t.Errorf("want it built and run, got %q", got)
	}
}

func writeModule(t *testing.T, dir, program string) {
	t.Helper()
	for name, content := range map[string]string{"main.go": program, "go.mod": "module x\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Debian's bash reads ~/.bashrc for a command whose standard input looks like a network connection.
func TestBashDoesNotReadBashrcForACommand(t *testing.T) {
	got := runTool(t, Options{Kind: Command}, "/bin/bash", "-c", `echo 'echo read' >~/.bashrc; bash -c 'echo ran' </dev/null`)
	if strings.TrimSpace(got) != "ran" {
		t.Errorf("want only the command's output, got %q", got)
	}
}
