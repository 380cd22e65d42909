package attempt

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/bashserver/wire"
)

func serverSocket() string {
	if p := os.Getenv("SHARNESS_SOCKET"); p != "" {
		return p
	}
	return "/run/sharness/bash.sock"
}

func frame(kind wire.FrameType, payload string) []byte {
	b := make([]byte, wire.HeaderBytes, wire.HeaderBytes+len(payload))
	b[0] = byte(kind)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(payload)))
	return append(b, payload...)
}

func version(v uint16) string { return string(binary.LittleEndian.AppendUint16(nil, v)) }

// server sends the bash-server what it must refuse. A connection that the server ends, with or without an Error frame,
// is closed; one that it answers with Exit, or goes on listening to for serverPatience, is open.
func server() []Attempt {
	const door = "srv-bytes"
	const serverPatience = 3 * time.Second
	hello := frame(wire.Hello, version(wire.Version))
	send := func(id, what string, rights func() []int, chunks ...[]byte) Attempt {
		return Attempt{door + "/" + id, door, what, NoServer, func(t *Target) Outcome {
			fd, err := dialUnix(serverSocket(), unix.SOCK_STREAM)
			if err != nil {
				return judge("connect", err)
			}
			defer unix.Close(fd)
			var oob []byte
			if rights != nil {
				fds := rights()
				defer func() {
					for _, f := range fds {
						unix.Close(f)
					}
				}()
				oob = unix.UnixRights(fds...)
			}
			return converse(fd, oob, chunks, serverPatience)
		}}
	}
	noise := make([]byte, 64<<10)
	r := rand.New(rand.NewPCG(1, 2)) // the same bytes on every run
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	endless := make([][]byte, 0, 128)
	for range 128 { // 8 MiB, past every cap
		endless = append(endless, frame(wire.Arg, string(noise[:60<<10])))
	}
	huge := frame(wire.Arg, "")
	binary.LittleEndian.PutUint32(huge[4:], 0xffffffff)
	overCap := frame(wire.Arg, "")
	binary.LittleEndian.PutUint32(overCap[4:], wire.MaxPayload+1)
	padded := frame(wire.Hello, version(wire.Version))
	padded[2] = 1
	std := func() []int { return open3(3) }
	a := []Attempt{
		send("noise", "64 KiB of noise", nil, noise),
		send("http", "a request of another protocol", nil, []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")),
		send("zeros", "zero bytes", nil, make([]byte, 4096)),
		send("no-hello", "Start before Hello", std, frame(wire.Start, "")),
		send("version", "a version nobody speaks", std, frame(wire.Hello, version(65535))),
		send("short-hello", "a Hello of one byte", std, frame(wire.Hello, "x")),
		send("padding", "a header whose zero bytes are not", std, padded),
		send("no-fds", "Hello without descriptors, and the whole request", nil, append(hello, request("exit 0")...)),
		send("huge", "a length of 4 GiB", std, append(hello, huge...)),
		send("over-cap", "a length one above the cap", std, append(hello, overCap...)),
		send("unknown", "a frame type nobody knows", std, append(hello, frame(99, "x")...)),
		send("server-frame", "a frame that only the server sends", std, append(hello, frame(wire.Exit, "12345678")...)),
		send("two-hellos", "Hello twice", std, append(hello, hello...)),
		send("env-without-equals", "an environment entry without =", std, append(hello, requestWith(frame(wire.EnvVar, "NOEQUALS"))...)),
		send("nul-in-arg", "a zero byte in an argument", std, append(hello, requestWith(frame(wire.Arg, "a\x00b"))...)),
		send("relative-cwd", "a relative working directory", std, append(hello, requestIn("../../..")...)),
		send("outside-cwd", "a working directory outside of the workspace", std, append(hello, requestIn("/root")...)),
		send("endless", "8 MiB of arguments", std, append([][]byte{hello}, endless...)...),
	}
	a = append(a, Attempt{door + "/alive", door, "put the bash-server out of service with all that", NoServer, func(*Target) Outcome {
		null, err := os.Open("/dev/null")
		if err != nil {
			return judge("open /dev/null", err)
		}
		defer null.Close()
		out, status, err := viaClient(null, "echo alive")
		if err != nil {
			return judge("run the client", err)
		}
		if status != 0 || strings.TrimSpace(out) != "alive" {
			return opened("the client ended with %d: %s", status, oneLine(out))
		}
		return closed("it answers")
	}})
	fd := func(id, what string, rights func() []int, chunks ...[]byte) Attempt {
		x := send(id, what, rights, chunks...)
		x.ID, x.Door = "srv-fd/"+id, "srv-fd"
		return x
	}
	whole := append(append([]byte{}, hello...), request("exit 0")...)
	return append(a,
		fd("too-many", "send eight descriptors where three belong", func() []int { return open3(8) }, whole),
		fd("too-few", "send two descriptors where three belong", func() []int { return open3(2) }, whole),
		Attempt{"srv-fd/late", "srv-fd", "send descriptors with a later frame", NoServer, func(*Target) Outcome {
			sock, err := dialUnix(serverSocket(), unix.SOCK_STREAM)
			if err != nil {
				return judge("connect", err)
			}
			defer unix.Close(sock)
			fds := open3(3)
			defer func() {
				for _, f := range fds {
					unix.Close(f)
				}
			}()
			if err := unix.Sendmsg(sock, hello, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL); err != nil {
				return judge("send", err, unix.EPIPE)
			}
			return converse(sock, unix.UnixRights(fds...), [][]byte{request("exit 0")}, serverPatience)
		}},
		Attempt{"srv-fd/client-write", "srv-fd", "write the client's binary", NoServer, func(*Target) Outcome { return openWrite(client, 0) }},
		Attempt{"srv-fd/proc-exe", "srv-fd", "write the stage's binary through /proc/1/exe", Refused, func(*Target) Outcome { return openWrite("/proc/1/exe", 0) }},
		Attempt{"srv-fd/unlink", "srv-fd", "take the server's socket away", NoServer, func(*Target) Outcome {
			p := serverSocket()
			err := unix.Rename(p, p+".moved")
			if err == nil {
				unix.Rename(p+".moved", p)
			}
			return judge("rename", err, unix.EBUSY)
		}},
	)
}

func request(command string) []byte {
	return requestWith(frame(wire.Arg, command))
}

func requestWith(last []byte) []byte { return requestParts("/", last) }

func requestIn(cwd string) []byte { return requestParts(cwd, frame(wire.Arg, "exit 0")) }

// requestParts is everything between Hello and the answer. An environment entry that comes last stands after the
// arguments, as it should.
func requestParts(cwd string, last []byte) []byte {
	b := append(frame(wire.Execfn, client), frame(wire.Cwd, cwd)...)
	b = append(b, frame(wire.Arg, "bash")...)
	b = append(b, frame(wire.Arg, "-c")...)
	b = append(b, last...)
	return append(b, frame(wire.Start, "")...)
}

func open3(n int) []int {
	var fds []int
	for range n {
		fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err == nil {
			fds = append(fds, fd)
		}
	}
	return fds
}

func converse(fd int, oob []byte, chunks [][]byte, patience time.Duration) Outcome {
	for i, c := range chunks {
		if i > 0 {
			oob = nil
		}
		for len(c) > 0 {
			n, err := unix.SendmsgN(fd, c, oob, nil, unix.MSG_NOSIGNAL)
			if err == unix.EPIPE || err == unix.ECONNRESET {
				return Outcome{Verdict: Closed, Errno: err.(unix.Errno), Detail: "the server ended the connection"}
			}
			if err != nil {
				return judge("send", err)
			}
			c, oob = c[n:], nil
		}
	}
	deadline := time.Now().Add(patience)
	var got []byte
	buf := make([]byte, 8192)
	for time.Now().Before(deadline) {
		n, err := unix.Read(fd, buf)
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
			continue
		case err == unix.ECONNRESET, err == nil && n == 0:
			return answered(got)
		case err != nil:
			return judge("read", err)
		}
		got = append(got, buf[:n]...)
		if len(got) > 64<<10 {
			return opened("the server answers without end")
		}
	}
	return opened("the server goes on listening after %v", patience)
}

func answered(got []byte) Outcome {
	if len(got) == 0 {
		return closed("the server ended the connection")
	}
	switch wire.FrameType(got[0]) {
	case wire.Error:
		return closed("the server refused: %s", oneLine(string(got[min(len(got), wire.HeaderBytes+4):])))
	case wire.Exit:
		return opened("the server ran it")
	}
	return broke("the server answered %s", fmt.Sprintf("%q", got[:min(len(got), 40)]))
}

// logs give names that forge lines and drive terminals to everything that reports. The harness outside reads what was
// written; here it counts that nothing was executed.
func logs() []Attempt {
	const door = "log-inject"
	names := []struct{ name, text string }{
		{"newline", "x\n{\"schema\":1,\"type\":\"session.end\"}\n"},
		{"escape", "x\x1b]52;c;ZXZpbA==\x07\x1b[2J\x1b]0;title\x07"},
		{"bidi", "x\u202egnp.sh\u2066"},
		{"bytes", "x\xff\xfe\xc0\x80"},
		{"long", strings.Repeat("n", 255)},
	}
	var a []Attempt
	for _, n := range names {
		a = append(a, Attempt{door + "/" + n.name, door, "execute a file with a hostile name: " + n.name, Opens, func(t *Target) Outcome {
			dir := t.scratch("log")
			if err := os.Mkdir(dir, 0o755); err != nil {
				return judge("mkdir", err)
			}
			p := dir + "/" + n.text
			if strings.Contains(n.text, "/") {
				return broke("the name holds a slash")
			}
			if err := t.put(p, tinyELF(), 0o755); err != nil {
				return judge("write", err)
			}
			_, err := t.forked(
				sys(unix.SYS_PRCTL, unix.PR_SET_NAME, t.str(n.text), 0, 0, 0),
				sys(unix.SYS_EXECVE, t.str(p), t.argv(8, n.text), t.argv(8, "X="+n.text)))
			return judgeForked("execve", err)
		}})
	}
	return a
}

// bombs exhaust what the manifest limits, up to a little more than the limit and never on a host without one.
func bombs() []Attempt {
	const door = "orch-bomb"
	return []Attempt{
		{door + "/processes", door, "start more processes than the manifest allows", NoServer, forkBomb},
		{door + "/memory", door, "use more memory than the manifest allows", NoServer, memoryBomb},
		{door + "/tmp", door, "fill /tmp beyond what the manifest allows", NoServer, func(t *Target) Outcome { return fill(t, "/tmp") }},
		{door + "/dev-shm", door, "fill /dev/shm beyond what the manifest allows", NoServer, func(t *Target) Outcome { return fill(t, "/dev/shm") }},
	}
}

func forkBomb(t *Target) Outcome {
	const most = 2048
	if t.LimitPids == 0 || t.LimitPids > most || !t.privatePID() {
		return impossible("no limit of at most %d processes is known", most)
	}
	var pids []int
	defer func() {
		for _, p := range pids {
			unix.Kill(p, unix.SIGKILL)
		}
		for _, p := range pids {
			wait(p)
		}
	}()
	pause := sys(unix.SYS_PAUSE)
	for range t.LimitPids + 64 {
		pid, errno := forkCalls(&pause, 1, t.shared, 0)
		if errno != 0 {
			return judge(fmt.Sprintf("fork after %d processes", len(pids)), errno, unix.EAGAIN)
		}
		pids = append(pids, int(pid))
	}
	return opened("%d processes at once", len(pids))
}

func memoryBomb(t *Target) Outcome {
	const most = 1 << 30
	if t.LimitMemory == 0 || t.LimitMemory > most || !t.privatePID() {
		return impossible("no limit of at most %d bytes is known", most)
	}
	// MAP_POPULATE touches every page; the child dies of the limit, and the kernel picks the largest.
	size := uintptr(t.LimitMemory + t.LimitMemory/4)
	_, err := t.forked(
		sys(unix.SYS_MMAP, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON, ^uintptr(0), 0),
		sys(unix.SYS_MADVISE, previous, size, unix.MADV_POPULATE_WRITE))
	if k, ok := err.(killed); ok && k.sig == unix.SIGKILL {
		return closed("the kernel killed it at the limit")
	}
	return judge("populate memory", err, unix.ENOMEM, unix.EFAULT)
}

func fill(t *Target, dir string) Outcome {
	const most = 1 << 30
	if t.LimitTmp == 0 || t.LimitTmp > most || !t.privatePID() {
		return impossible("no limit of at most %d bytes is known", most)
	}
	p := t.scratchIn(dir, "fill")
	fd, err := unix.Open(p, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return judge("create", err)
	}
	defer unix.Close(fd)
	err = unix.Fallocate(fd, 0, 0, t.LimitTmp+t.LimitTmp/4)
	return judge("fallocate", err, unix.ENOSPC, unix.ENOMEM)
}
