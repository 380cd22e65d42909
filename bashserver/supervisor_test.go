package bashserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/bashserver/wire"
	"github.com/sharness/sharness/event"
)

// client is the real client, built once.
var client string

// asServer makes the test binary a bashd, for tests that kill it or measure it.
const asServer = "SHARNESS_TEST_AS_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		f := os.NewFile(ConfigFD, "config")
		cfg, err := ReadConfig(f)
		f.Close() // not left to the collector, which would close whatever has the number by then
		if err == nil {
			err = Serve(os.NewFile(ControlFD, "control"), os.NewFile(EventsFD, "events"), cfg)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "server:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "sb")
	if err != nil {
		panic(err)
	}
	client = filepath.Join(dir, "sharness-bash")
	out, err := exec.Command("cc", "-static", "-nostdlib", "-ffreestanding", "-fno-pie", "-no-pie", "-fno-stack-protector",
		"-fno-asynchronous-unwind-tables", "-Os", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-o", client,
		"../cmd/sharness-bash/client.c").CombinedOutput()
	if err != nil {
		panic(fmt.Sprintf("build the client: %v\n%s", err, out))
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// supervisor is our own supervisor reduced to its records: it runs a command without any sandbox.
type supervisor struct {
	t      testing.TB
	dir    string // the workspace; holds the socket too
	sock   string
	ctl    *wire.RecordConn
	server *exec.Cmd // with asServer
	cfg    Config

	mu     sync.Mutex
	next   uint64
	jobs   map[uint64]*exec.Cmd
	kills  []wire.Reason
	starts []wire.Record
	cmds   []wire.Command
	events []event.Event
	done   map[uint64]bool

	refuse wire.Reason // answer every RecStart so
	hint   wire.Hint   // send with every RecStarted
	hinted int         // so often
	limits uint64      // of every RecEnded
	killed chan wire.Reason
	hear   chan struct{} // not nil: nothing of the server's is read before it is closed
}

func inProcess(s *supervisor, ctl, ev *os.File) {
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctl, ev, s.cfg) }()
	s.t.Cleanup(func() {
		s.ctl.Close()
		if err := <-ended; err != nil {
			s.t.Errorf("server: %v", err)
		}
	})
}

func ownProcess(s *supervisor, ctl, ev *os.File) {
	cf, err := os.CreateTemp(s.dir, "config")
	if err != nil {
		s.t.Fatal(err)
	}
	b, err := json.Marshal(s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	cf.Write(b)
	s.server = exec.Command("/proc/self/exe", "-test.run=^$")
	s.server.Env = append(os.Environ(), asServer+"=1")
	s.server.ExtraFiles = []*os.File{ctl, ev, cf}
	s.server.Stderr = os.Stderr
	if err := s.server.Start(); err != nil {
		s.t.Fatal(err)
	}
	ctl.Close()
	s.t.Cleanup(func() {
		s.ctl.Close()
		s.server.Process.Kill()
		s.server.Wait()
	})
}

// start makes a workspace, a server for it, and what the supervisor does for both.
func start(t testing.TB, cfg Config, run func(*supervisor, *os.File, *os.File), opts ...func(*supervisor)) *supervisor {
	t.Helper()
	dir, err := os.MkdirTemp("", "ws")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &supervisor{t: t, dir: dir, sock: filepath.Join(dir, "bash.sock"), jobs: map[uint64]*exec.Cmd{},
		done: map[uint64]bool{}, killed: make(chan wire.Reason, 16)}
	t.Cleanup(func() { // a job is not ended by its client's end
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, cmd := range s.jobs {
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
	})
	cfg.ClientPath, cfg.WorkspaceRoot, cfg.Home = client, dir, dir
	s.cfg = cfg
	for _, o := range opts {
		o(s)
	}
	ctl, theirs := pairOf(t, unix.SOCK_SEQPACKET)
	if s.ctl, err = wire.NewRecordConn(ctl, 0); err != nil {
		t.Fatal(err)
	}
	ev, evTheirs := pairOf(t, unix.SOCK_DGRAM)
	t.Cleanup(func() { ev.Close() })
	go s.collect(ev)
	run(s, theirs, evTheirs)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.sock, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go s.accept(l)
	go s.serve()
	return s
}

func pairOf(t testing.TB, kind int) (*os.File, *os.File) {
	p, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.SetNonblock(p[0], true)
	return os.NewFile(uintptr(p[0]), "ours"), os.NewFile(uintptr(p[1]), "theirs")
}

func (s *supervisor) collect(f *os.File) {
	b := make([]byte, event.MaxBytes)
	for {
		n, err := f.Read(b)
		if err != nil {
			return
		}
		var e event.Event
		if err := json.Unmarshal(b[:n], &e); err != nil {
			s.t.Errorf("event %q: %v", b[:n], err)
			return
		}
		s.mu.Lock()
		s.events = append(s.events, e)
		s.mu.Unlock()
	}
}

func (s *supervisor) accept(l *net.UnixListener) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		f, err := c.File()
		c.Close()
		if err != nil {
			continue
		}
		s.mu.Lock()
		s.next++
		id := s.next
		s.mu.Unlock()
		s.ctl.Send(wire.Record{Type: wire.RecConn, ID: id}, int(f.Fd()))
		f.Close()
	}
}

func (s *supervisor) serve() {
	if s.hear != nil {
		<-s.hear
	}
	for {
		r, fds, err := s.ctl.Recv()
		if err != nil {
			return
		}
		s.mu.Lock()
		cmd := s.jobs[r.ID]
		s.mu.Unlock()
		switch r.Type {
		case wire.RecStart:
			s.run(r, fds)
		case wire.RecSignal:
			if cmd != nil {
				syscall.Kill(-cmd.Process.Pid, syscall.Signal(r.A))
			}
		case wire.RecKill:
			s.mu.Lock()
			s.kills = append(s.kills, wire.Reason(r.A))
			s.mu.Unlock()
			if cmd != nil {
				syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			}
			s.killed <- wire.Reason(r.A)
		case wire.RecDone:
			s.mu.Lock()
			s.done[r.ID] = true
			s.mu.Unlock()
		}
	}
}

func (s *supervisor) run(r wire.Record, fds []int) {
	var files []*os.File
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), "theirs"))
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	c, err := wire.ReadCommand(files[0])
	if err != nil {
		s.t.Errorf("request memfd: %v", err)
		return
	}
	s.mu.Lock()
	s.starts, s.cmds = append(s.starts, r), append(s.cmds, c)
	s.mu.Unlock()
	if s.refuse != 0 {
		s.ctl.Send(wire.Record{Type: wire.RecRefused, ID: r.ID, A: uint64(s.refuse)})
		return
	}
	// In a command's view a routed path is the real program; here there is one view only.
	path := strings.Replace(c.Path, s.dir+"/bin/", "/usr/bin/", 1)
	cmd := &exec.Cmd{Path: path, Args: c.Argv, Env: c.Env, Dir: c.Cwd, SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}
	started := wire.Record{Type: wire.RecStarted, ID: r.ID, A: r.ID + 1000}
	var master []int
	if r.A&wire.FlagTerminal != 0 {
		m, slave := openPTY(s.t)
		defer unix.Close(m)
		unix.IoctlSetWinsize(m, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(r.B), Col: uint16(r.B >> 16)})
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		defer slave.Close()
		master = []int{m}
	} else {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = files[1], files[2], files[3]
	}
	if err := cmd.Start(); err != nil {
		s.ctl.Send(wire.Record{Type: wire.RecRefused, ID: r.ID, A: uint64(wire.ReasonInternal)})
		return
	}
	s.mu.Lock()
	s.jobs[r.ID] = cmd
	s.mu.Unlock()
	s.ctl.Send(started, master...)
	for range s.hinted {
		s.ctl.Send(wire.Record{Type: wire.RecHint, ID: r.ID, A: uint64(s.hint)})
	}
	go func() {
		cmd.Wait()
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what pid 1 of a sandbox takes along
		s.mu.Lock()
		delete(s.jobs, r.ID)
		s.mu.Unlock()
		ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
		ended := wire.Record{Type: wire.RecEnded, ID: r.ID, A: uint64(wire.KindStatus), B: uint64(ws.ExitStatus()), C: s.limits}
		if ws.Signaled() {
			ended.A, ended.B = uint64(wire.KindSignal), uint64(ws.Signal())
		}
		s.ctl.Send(ended)
	}()
}

func openPTY(t testing.TB) (master int, slave *os.File) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// command is the client about to be run in the workspace.
func (s *supervisor) command(args ...string) *exec.Cmd {
	cmd := exec.Command(client, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "SHARNESS_SOCKET="+s.sock)
	return cmd
}

// output is the client run to its end, with what it printed.
func (s *supervisor) output(args ...string) (stdout, stderr string, ws syscall.WaitStatus) {
	s.t.Helper()
	return s.finish(s.command(args...))
}

func (s *supervisor) finish(cmd *exec.Cmd) (stdout, stderr string, ws syscall.WaitStatus) {
	s.t.Helper()
	var o, e strings.Builder
	if cmd.Stdout == nil {
		cmd.Stdout = &o
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &e
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return o.String(), e.String(), cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// eventually waits for what happens after a client has gone.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func (s *supervisor) eventTypes() (types []event.Type) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		types = append(types, e.Type)
	}
	return types
}
