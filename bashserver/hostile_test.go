package bashserver

import (
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/event"
)

// dial connects as a client that we write ourselves.
func (s *supervisor) dial(t *testing.T) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.sock, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

func frames(fs ...wire.Frame) (b []byte) {
	for _, f := range fs {
		b = wire.AppendFrame(b, f)
	}
	return b
}

// answer is the text of the error frame the server hangs up with.
func answer(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	f, err := wire.ReadFrame(c)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	if f.Type != wire.Error || f.Payload[0] != 2 {
		t.Fatalf("answer %d %q", f.Type, f.Payload)
	}
	if _, err := wire.ReadFrame(c); err != io.EOF && err != io.ErrUnexpectedEOF && !strings.Contains(err.Error(), "reset") {
		t.Errorf("after the answer: %v", err)
	}
	return string(f.Payload[4:])
}

var stdio = []int{0, 1, 2}

func hello() wire.Frame { return wire.Frame{Type: wire.Hello, Payload: []byte{wire.Version, 0}} }

func TestHostileRequestsEndInAnAnswer(t *testing.T) {
	s := start(t, Config{}, inProcess)
	fn, cwd := wire.Frame{Type: wire.Execfn, Payload: []byte(client)}, wire.Frame{Type: wire.Cwd, Payload: []byte(s.dir)}
	arg := wire.Frame{Type: wire.Arg, Payload: []byte("a")}
	before := s.settled(t)
	for name, tc := range map[string]struct {
		bytes []byte
		fds   []int
	}{
		"garbage":             {[]byte("GET / HTTP/1.1\r\n\r\n"), stdio},
		"zeros":               {make([]byte, 4096), stdio},
		"no descriptors":      {frames(hello(), fn, cwd, arg), nil},
		"one descriptor":      {frames(hello()), stdio[:1]},
		"four descriptors":    {frames(hello()), []int{0, 1, 2, 2}},
		"very many":           {frames(hello()), make([]int, 253)},
		"wrong order":         {frames(hello(), cwd), stdio},
		"another version":     {frames(wire.Frame{Type: wire.Hello, Payload: []byte{9, 0}}), stdio},
		"start at once":       {frames(hello(), wire.Frame{Type: wire.Start}), stdio},
		"NUL in the path":     {frames(hello(), wire.Frame{Type: wire.Execfn, Payload: []byte("/a\x00b")}), stdio},
		"length of gigabytes": {append(frames(hello()), 2, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f), stdio},
		"our own frame":       {frames(hello(), wire.ExitFrame(0, 0)), stdio},
	} {
		c := s.dial(t)
		if err := wire.SendRights(c, tc.bytes, tc.fds...); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if text := answer(t, c); !strings.HasPrefix(text, "protocol error: ") {
			t.Errorf("%s: %q", name, text)
		}
		c.Close()
	}
	eventually(t, "descriptors closed", func() bool { return descriptors(t) <= before })
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.starts) != 1 { // that of settled
		t.Errorf("%d commands were started", len(s.starts))
	}
}

// A refusal that only the client hears of would leave whoever tries the door unseen.
func TestEveryRefusedRequestIsAnEvent(t *testing.T) {
	secret := strings.Repeat("s3cr3t", 10)
	s := start(t, Config{MaxCommands: 1, MaxConnsPerPeer: 8, RequestTimeout: 200 * time.Millisecond, Secrets: []Secret{{Name: "T", Value: secret}}}, inProcess)
	said := func(typ event.Type, door, detail string) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.ContainsFunc(s.events, func(e event.Event) bool {
			who := typ == event.CommandEnd || e.Process != nil && e.Process.PID > 0 && e.Process.UID == uint32(os.Getuid())
			return e.Type == typ && e.Door == door && strings.Contains(e.Detail, detail) && who
		})
	}
	deny := func(detail string) {
		t.Helper()
		eventually(t, detail, func() bool { return said(event.SyscallDenied, "srv-bytes", detail) })
	}
	c := s.dial(t)
	if err := wire.SendRights(c, []byte("GET / HTTP/1.1\r\n\r\n"), stdio...); err != nil {
		t.Fatal(err)
	}
	deny("request refused: protocol error")
	if err := wire.SendRights(s.dial(t), frames(hello()), nullFDs(t)...); err != nil {
		t.Fatal(err)
	}
	deny("request refused: the request took longer than")
	s.request(t, s.dial(t), "/usr/bin/perl", "true", nullFDs(t)...)
	deny(`request refused: "/usr/bin/perl" is not routed`)
	outside := s.command("-c", "true")
	outside.Dir = "/"
	if _, _, ws := s.finish(outside); ws.ExitStatus() != 2 {
		t.Errorf("outside the workspace: %v", ws)
	}
	eventually(t, "outside", func() bool { return said(event.CommandEnd, "", "not started: working directory") })
	// The value stands where the text is cut.
	for _, name := range []string{"/" + strings.Repeat("a", 220) + secret, "/\xff" + secret + "\xfe"} {
		c := s.dial(t)
		s.request(t, c, name, "true", nullFDs(t)...)
		if f, err := wire.ReadFrame(c); err != nil || strings.Contains(string(f.Payload), "s3cr3t") {
			t.Errorf("the client is told %q, %v", f.Payload, err)
		}
	}
	deny(`[redacted:T]`)
	if said(event.SyscallDenied, "srv-bytes", "s3cr3t") {
		t.Error("an event has a part of a secret")
	}
	var idle []*net.UnixConn
	for range 9 {
		idle = append(idle, s.dial(t))
	}
	eventually(t, "full", func() bool {
		return said(event.CommandEnd, "", "not started: the bash-server is busy: too many connections")
	})
	for _, c := range idle {
		c.Close()
	}
	eventually(t, "room again", func() bool { _, _, ws := s.output("-c", "true"); return ws == 0 })

	held := s.command("-c", "echo ready; read x")
	in, err := held.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.begin(held)
	if _, _, ws := s.output("-c", "true"); ws.ExitStatus() != 2 {
		t.Errorf("second command: %v", ws)
	}
	eventually(t, "busy", func() bool { return said(event.CommandEnd, "", "not started: the bash-server is busy: 1 commands") })
	in.Close()
	if err := held.Wait(); err != nil {
		t.Log(err) // read met the end of its input
	}
	if _, _, ws := s.output("--kill", "99"); ws.ExitStatus() != 1 {
		t.Errorf("kill of no job: %v", ws)
	}
	if said(event.CommandEnd, "", "there is no job") || said(event.SyscallDenied, "srv-bytes", "there is no job") {
		t.Error("a question about a job that is none is in the log as a refused command")
	}
}

func TestDescriptorsAfterTheFirstByteEndTheConnection(t *testing.T) {
	s := start(t, Config{}, inProcess)
	before := s.settled(t)
	c := s.dial(t)
	wire.SendRights(c, frames(hello()), stdio...)
	wire.SendRights(c, frames(wire.Frame{Type: wire.Execfn, Payload: []byte(client)}), stdio...)
	if text := answer(t, c); !strings.HasPrefix(text, "protocol error: ") {
		t.Errorf("got %q", text)
	}
	c.Close()
	eventually(t, "descriptors closed", func() bool { return descriptors(t) <= before })
}

// whole sends a request of ours that runs script.
func (s *supervisor) whole(t *testing.T, c *net.UnixConn, script string, fds ...int) {
	t.Helper()
	s.request(t, c, client, script, fds...)
}

// request is whole by another path.
func (s *supervisor) request(t *testing.T, c *net.UnixConn, execfn, script string, fds ...int) {
	t.Helper()
	if err := wire.SendRights(c, s.requestBytes(execfn, script), fds...); err != nil {
		t.Fatal(err)
	}
}

func (s *supervisor) requestBytes(execfn, script string) []byte {
	fs := []wire.Frame{hello(), {Type: wire.Execfn, Payload: []byte(execfn)}, {Type: wire.Cwd, Payload: []byte(s.dir)}}
	for _, a := range []string{"sh", "-c", script} {
		fs = append(fs, wire.Frame{Type: wire.Arg, Payload: []byte(a)})
	}
	return frames(append(fs, wire.Frame{Type: wire.Start})...)
}

func nullFDs(t *testing.T) []int {
	t.Helper()
	f, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return []int{int(f.Fd()), int(f.Fd()), int(f.Fd())}
}

func TestAnythingButASignalAfterStartKillsTheCommand(t *testing.T) {
	s := start(t, Config{}, inProcess)
	for name, b := range map[string][]byte{
		"argument":         frames(wire.Frame{Type: wire.Arg, Payload: []byte("x")}),
		"signal KILL":      frames(wire.Frame{Type: wire.Signal, Payload: []byte{9, 0, 0, 0}}),
		"signal 2^31":      frames(wire.Frame{Type: wire.Signal, Payload: []byte{15, 0, 0, 0x80}}),
		"garbage":          []byte("xxxxxxxxxxxxxxxx"),
		"end of the input": nil,
	} {
		c := s.dial(t)
		s.whole(t, c, "sleep 100", nullFDs(t)...)
		if b == nil {
			c.CloseWrite()
		} else {
			c.Write(b)
		}
		if r := s.reason(t); r != wire.ReasonClientGone {
			t.Errorf("%s: killed for reason %d", name, r)
		}
	}
}

func TestSignalFloodIsSlowedDown(t *testing.T) {
	s := start(t, Config{}, inProcess)
	c := s.dial(t)
	s.whole(t, c, "trap : USR1; for i in 1 2 3 4 5 6 7 8; do sleep 0.05; done; exit 9", nullFDs(t)...)
	c.SetDeadline(time.Now().Add(300 * time.Millisecond))
	flood := frames(wire.Frame{Type: wire.Signal, Payload: []byte{10, 0, 0, 0}})
	for {
		if _, err := c.Write(flood); err != nil {
			break // the socket is full: the flood waits outside
		}
	}
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if f, err := wire.ReadFrame(c); err != nil || f.Type != wire.Exit {
		t.Errorf("got %+v, %v", f, err)
	}
}

func TestSlowRequestIsCutOff(t *testing.T) {
	s := start(t, Config{RequestTimeout: 300 * time.Millisecond}, inProcess)
	c := s.dial(t)
	b := frames(hello(), wire.Frame{Type: wire.Execfn, Payload: []byte(client)})
	wire.SendRights(c, b[:1], stdio...)
	go func() {
		for _, x := range b[1:] {
			time.Sleep(20 * time.Millisecond) // the slowness is the attack
			if _, err := c.Write([]byte{x}); err != nil {
				return
			}
		}
	}()
	begun := time.Now()
	if text := answer(t, c); !strings.Contains(text, "longer than 300ms") || time.Since(begun) > 3*time.Second {
		t.Errorf("got %q after %v", text, time.Since(begun))
	}
	silent := s.dial(t)
	if text := answer(t, silent); !strings.Contains(text, "longer than 300ms") {
		t.Errorf("a client that says nothing: %q", text)
	}
}

func TestConnectionsAreLimitedAndOthersServed(t *testing.T) {
	s := start(t, Config{MaxConns: 8, MaxConnsPerPeer: 4, RequestTimeout: time.Second}, inProcess)
	var held []*net.UnixConn
	for range 4 {
		held = append(held, s.dial(t))
	}
	if text := answer(t, s.dial(t)); !strings.Contains(text, "too many connections") {
		t.Errorf("fifth of one process: %q", text)
	}
	if _, errs, ws := s.output("-c", "true"); ws != 0 {
		t.Errorf("another process: %q, %v", errs, ws)
	}
	for _, c := range held {
		c.Close()
	}
	eventually(t, "places", func() bool { return s.servesAnother(t) })
}

// servesAnother says whether a new connection has a place: one that has none may be closed before its request is sent.
func (s *supervisor) servesAnother(t *testing.T) bool {
	t.Helper()
	c := s.dial(t)
	if err := wire.SendRights(c, s.requestBytes(client, "exit 5"), nullFDs(t)...); err != nil {
		return false
	}
	f, err := wire.ReadFrame(c)
	return err == nil && f.Type == wire.Exit && f.Payload[4] == 5
}

func TestManyLargeRequestsAtOnceAreRefused(t *testing.T) {
	s := start(t, Config{MaxConns: 64, MaxConnsPerPeer: 64, RequestTimeout: 3 * time.Second}, inProcess)
	big := frames(hello(), wire.Frame{Type: wire.Execfn, Payload: []byte(client)}, wire.Frame{Type: wire.Cwd, Payload: []byte(s.dir)})
	for range 31 {
		big = append(big, frames(wire.Frame{Type: wire.Arg, Payload: []byte(strings.Repeat("x", wire.MaxPayload))})...)
	}
	fds := nullFDs(t)
	busy := make(chan bool, 20)
	for range cap(busy) {
		c := s.dial(t)
		go func() {
			wire.SendRights(c, big[:1], fds...)
			c.Write(big[1:]) // and no Start
			f, err := wire.ReadFrame(c)
			busy <- err == nil && strings.Contains(string(f.Payload), "too many large requests")
		}()
	}
	n := 0
	for range cap(busy) {
		if <-busy {
			n++
		}
	}
	if n < cap(busy)-maxPending/(wire.MaxRequest-1<<18) {
		t.Errorf("only %d of %d refused", n, cap(busy))
	}
	if _, errs, ws := s.output("-c", "true"); ws != 0 {
		t.Errorf("afterwards: %q, %v", errs, ws)
	}
}

// A client's descriptor that others empty or fill in the same moment must not hold a thread of the server's.
func TestSharedStdinIsReadByOneOfMany(t *testing.T) {
	s := start(t, Config{}, inProcess)
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, w := os.NewFile(uintptr(p[0]), "r"), os.NewFile(uintptr(p[1]), "w")
	defer r.Close()
	defer w.Close()
	codes := make(chan int)
	for range 4 {
		cmd := s.command("-c", "sleep 0.2")
		cmd.Stdin = r
		go func() {
			cmd.Run()
			codes <- cmd.ProcessState.ExitCode()
		}()
	}
	for range 40 {
		w.WriteString("x")
		time.Sleep(2 * time.Millisecond) // the others read meanwhile
	}
	for range 4 {
		if code := <-codes; code != 0 {
			t.Errorf("status %d", code)
		}
	}
}
