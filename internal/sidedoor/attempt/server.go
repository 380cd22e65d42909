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
