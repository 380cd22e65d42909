package tty

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests of job control run the real thing: an interactive bash on a pty whose master the test holds, in it this
// test binary as supervisor, and below that as stage.
func TestMain(m *testing.M) {
	switch os.Getenv("TTY_ROLE") {
	case "supervisor":
		os.Exit(supervisor(os.Args[1]))
	case "stage":
		os.Exit(stage(os.Args[1]))
	case "patient":
		patient()
		return
	}
	os.Exit(m.Run())
}

// openPty returns both sides of a new pty.
func openPty() (master, slave *os.File, err error) {
	m, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	s, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(m), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return nil, nil, errno
	}
	return os.NewFile(uintptr(m), "master"), os.NewFile(s, "slave"), nil
}

// patient waits for a line, and says when it was continued or interrupted: a key that is typed before that may stop a
// target that is stopped, which has no effect. A shell would not do: one that is about to read when SIGCONT comes runs its
// trap after the line.
func patient() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCONT, syscall.SIGINT)
	go func() {
		for s := range signals {
			if s == syscall.SIGINT {
				fmt.Println("interrupted")
				os.Exit(0)
			}
			fmt.Println("awake")
		}
	}()
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if lines.Text() != "" {
			fmt.Println("got-" + lines.Text())
			return
		}
	}
}

// supervisor runs a script for sh the way enforce runs its target.
func supervisor(script string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "supervisor:", err)
		return 125
	}
	fds := [3]int{0, 1, 2}
	layout, err := Plan(fds)
	if err != nil {
		return fail(err)
	}
	streams, err := Open(layout, fds)
	if err != nil {
		return fail(err)
	}
	defer streams.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	control, theirs := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control")
	cmd := exec.Command("/proc/self/exe", script)
	cmd.Env = append(os.Environ(), "TTY_ROLE=stage")
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p := Proxy{Streams: streams, Master: -1}
	var slave *os.File
	if layout.Pty() {
		var master *os.File
		if master, slave, err = openPty(); err != nil {
			return fail(err)
		}
		if p.Master, err = unix.Dup(int(master.Fd())); err != nil {
			return fail(err)
		}
		unix.CloseOnExec(p.Master)
		if err := streams.Dress(p.Master); err != nil {
			return fail(err)
		}
		master.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, slave)
		cmd.SysProcAttr.Setctty, cmd.SysProcAttr.Ctty = true, 4
	}
	if streams.StartForeground() {
		cmd.Env = append(cmd.Env, "START=foreground")
	}
	stdio := [3]*os.File{}
	for i := range stdio {
		if stdio[i] = streams.Child(i); stdio[i] == nil && layout.Streams[i] == Tty {
			stdio[i] = slave
		}
	}
	setStdio(cmd, stdio)
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	theirs.Close()
	if slave != nil {
		slave.Close()
	}
	streams.Started()

	stopped, exited := make(chan syscall.Signal), make(chan Exit, 1)
	p.Child, p.Stopped = child{control}, stopped
	code := 125
	go func() {
		lines := bufio.NewScanner(control)
		for lines.Scan() {
			var word string
			var n, sig int
			fmt.Sscan(lines.Text(), &word, &n, &sig)
			if word == "stopped" {
				stopped <- syscall.Signal(n)
				continue
			}
			if code = n; sig != 0 {
				code = 128 + sig
			}
			break
		}
		cmd.Wait()
		exited <- Exit{Killed: code > 128}
	}()
	if os.Getenv("PANIC") != "" {
		p.Child = nil // the first stop of the target panics
	}
	if err := p.Run(exited); err != nil {
		return fail(err)
	}
	return code
}

// setStdio leaves nil interfaces where there is no file: a typed nil would be one.
func setStdio(cmd *exec.Cmd, stdio [3]*os.File) {
	if stdio[0] != nil {
		cmd.Stdin = stdio[0]
	}
	if stdio[1] != nil {
		cmd.Stdout = stdio[1]
	}
	if stdio[2] != nil {
		cmd.Stderr = stdio[2]
	}
}

type child struct{ control *os.File }

func (c child) Signal(sig syscall.Signal) error {
	_, err := fmt.Fprintf(c.control, "signal %d\n", sig)
	return err
}

func (c child) Continue(where Place) error {
	_, err := fmt.Fprintf(c.control, "continue %d\n", where)
	return err
}

// stage does what the package comment asks of one.
func stage(script string) int {
	control := os.NewFile(3, "control")
	unix.CloseOnExec(3)
	signal.Ignore(unix.SIGTTOU)
	const terminal = 4
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "stage:", err)
		return 125
	}
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Env = append(os.Environ(), "TTY_ROLE=", "SELF="+self)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getenv("START") != "" {
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, terminal
	}
	unix.CloseOnExec(terminal)
	// SIGTTOU ignored would be inherited across exec.
	restoreTTOU := func() { signal.Ignore(unix.SIGTTOU) }
	signal.Reset(unix.SIGTTOU)
	err = cmd.Start()
	restoreTTOU()
	if err != nil {
		fmt.Fprintln(os.Stderr, "stage:", err)
		return 125
	}
	pid := cmd.Process.Pid
	for fd := range 3 { // as pid 1 does, so that pipes end with the target
		null, _ := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
		unix.Dup3(null, fd, 0)
	}
	go func() {
		lines := bufio.NewScanner(control)
		for lines.Scan() {
			var word string
			var n int
			fmt.Sscan(lines.Text(), &word, &n)
			if word == "signal" {
				unix.Kill(-pid, syscall.Signal(n))
				continue
			}
			group := pid
			if Place(n) == Background {
				group = unix.Getpgrp()
			}
			unix.IoctlSetPointerInt(terminal, unix.TIOCSPGRP, group)
			unix.Kill(-pid, unix.SIGCONT)
		}
	}()
	for {
		var ws unix.WaitStatus
		if _, err := unix.Wait4(pid, &ws, unix.WUNTRACED, nil); err == unix.EINTR {
			continue
		}
		if ws.Stopped() {
			fmt.Fprintf(control, "stopped %d\n", ws.StopSignal())
			continue
		}
		sig := 0
		if ws.Signaled() {
			sig = int(ws.Signal())
		}
		fmt.Fprintf(control, "exited %d %d\n", ws.ExitStatus(), sig)
		return 0
	}
}

// user is somebody at a terminal with a shell in it.
type user struct {
	t      *testing.T
	master *os.File
	fd     int
	cmd    *exec.Cmd

	mu   sync.Mutex
	seen strings.Builder
	at   int // up to here expect has looked
	news chan struct{}
}

const prompt = "READY> "

// login starts an interactive bash on a new terminal.
func login(t *testing.T, env ...string) *user {
	t.Helper()
	u := attachUser(t, exec.Command("bash", "--norc", "--noprofile", "--noediting", "-i"),
		append(env, "TTY_ROLE=supervisor", "PS1="+prompt)...)
	u.expect(prompt)
	return u
}

// attachUser starts a command as leader of a session on a new terminal.
func attachUser(t *testing.T, cmd *exec.Cmd, env ...string) *user {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	master, slave, err := openPty()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), append(env, "T="+self)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.Dir = t.TempDir()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	u := &user{t: t, master: master, cmd: cmd, news: make(chan struct{}, 1)}
	conn, err := master.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	conn.Control(func(fd uintptr) { u.fd = int(fd) })
	go u.watch()
	t.Cleanup(func() {
		master.Close() // hangs up: the session gets SIGHUP
		cmd.Process.Kill()
		cmd.Wait()
	})
	return u
}

func (u *user) watch() {
	buf := make([]byte, 4096)
	for {
		n, err := u.master.Read(buf)
		u.mu.Lock()
		u.seen.Write(buf[:n])
		u.mu.Unlock()
		select {
		case u.news <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

func (u *user) types(s string) {
	u.t.Helper()
	if _, err := u.master.WriteString(s); err != nil {
		u.t.Fatal(err)
	}
}

// expect waits for text that has not been looked at before.
func (u *user) expect(text string) {
	u.t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		u.mu.Lock()
		seen := u.seen.String()
		i := strings.Index(seen[u.at:], text)
		if i >= 0 {
			u.at += i + len(text)
		}
		u.mu.Unlock()
		if i >= 0 {
			return
		}
		select {
		case <-u.news:
		case <-timeout:
			u.t.Fatalf("%q did not come; since the last:\n%q", text, seen[u.at:])
		}
	}
}

// all is everything that was shown.
func (u *user) all() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen.String()
}

// modes of the terminal, as everybody on it sees them.
func (u *user) modes() unix.Termios {
	u.t.Helper()
	m, err := unix.IoctlGetTermios(u.fd, unix.TCGETS)
	if err != nil {
		u.t.Fatal(err)
	}
	return *m
}

func (u *user) sameModes(want unix.Termios, when string) {
	u.t.Helper()
	if got := u.modes(); got != want {
		u.t.Errorf("modes %s: got %+v, want %+v", when, got, want)
	}
}
