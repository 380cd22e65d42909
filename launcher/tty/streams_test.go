package tty

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestPlanKnowsEveryKindOfStream(t *testing.T) {
	dir := t.TempDir()
	open := func(path string, flags int) *os.File {
		t.Helper()
		f, err := os.OpenFile(path, flags, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_, slave, err := openPty()
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := openPty()
	if err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	socket := os.NewFile(uintptr(pair[0]), "socket")
	defer unix.Close(pair[1])
	file, null, zero := open(filepath.Join(dir, "file"), os.O_CREATE|os.O_RDWR), open("/dev/null", os.O_RDWR), open("/dev/zero", os.O_RDWR)
	named := open(fifo, os.O_RDWR)
	cases := []struct {
		name     string
		in       [3]*os.File
		want     [3]Kind
		onDemand bool
	}{
		{"terminal", [3]*os.File{slave, slave, slave}, [3]Kind{Tty, Tty, Tty}, false},
		{"into a file", [3]*os.File{slave, file, slave}, [3]Kind{Tty, Copied, Tty}, false},
		{"into a pipe", [3]*os.File{slave, w, slave}, [3]Kind{Tty, Copied, Tty}, true},
		{"into a socket", [3]*os.File{slave, socket, slave}, [3]Kind{Tty, Copied, Tty}, true},
		{"from a pipe", [3]*os.File{r, slave, slave}, [3]Kind{Copied, Tty, Tty}, true},
		{"no terminal", [3]*os.File{null, w, file}, [3]Kind{Null, Copied, Copied}, true},
		{"FIFO with a name, device", [3]*os.File{named, named, zero}, [3]Kind{Copied, Copied, Copied}, true},
		{"a second terminal", [3]*os.File{slave, other, slave}, [3]Kind{Tty, Copied, Tty}, false},
		{"closed", [3]*os.File{nil, slave, slave}, [3]Kind{Null, Tty, Tty}, true},
	}
	for _, c := range cases {
		fds := [3]int{-1, -1, -1}
		for i, f := range c.in {
			if f != nil {
				conn, _ := f.SyscallConn()
				conn.Control(func(fd uintptr) { fds[i] = int(fd) })
			}
		}
		l, err := Plan(fds)
		if err != nil || l.Streams != c.want || l.OnDemand != c.onDemand {
			t.Errorf("%s: got %v on demand %v, %v; want %v, %v", c.name, l.Streams, l.OnDemand, err, c.want, c.onDemand)
		}
	}
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := Plan([3]int{int(d.Fd()), -1, -1}); !errors.Is(err, unix.EISDIR) {
		t.Errorf("directory: got %v, want EISDIR", err)
	}
}

// TestSideDoor_InheritFD_Stdio looks from inside at what stands on 0-2 when the user has redirected them to files.
func TestSideDoor_InheritFD_Stdio(t *testing.T) {
	in, out := filepath.Join(t.TempDir(), "in"), filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(in, []byte("input\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code := runRedirected(t, in, out, `readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2; cat; echo err >&2; echo out; exit 7`)
	got, err := os.ReadFile(out)
	if err != nil || code != 7 {
		t.Fatalf("exit %d, %v; output %q", code, err, got)
	}
	lines := strings.Split(string(got), "\n")
	if len(lines) != 7 {
		t.Fatalf("got %q, want six lines", got)
	}
	for i, line := range lines[:3] {
		if !strings.HasPrefix(line, "pipe:") {
			t.Errorf("descriptor %d of the target is %s, want a pipe", i, line)
		}
	}
	if lines[1] != lines[2] {
		t.Errorf("1 and 2 are one file outside and %s and %s inside", lines[1], lines[2])
	}
	if rest := strings.Join(lines[3:], " "); rest != "input err out " {
		t.Errorf("got %q, want what was written in its order", rest)
	}
}

func TestAllOutputIsInTheFileAtTheEnd(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	runRedirected(t, "/dev/null", out, `head -c 10000000 /dev/zero`)
	if info, err := os.Stat(out); err != nil || info.Size() != 10000000 {
		t.Errorf("got %v, %v, want 10000000 bytes", info.Size(), err)
	}
}

func TestTargetMeetsTheErrorOfAFullFile(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Fatal(err)
	}
	// Killed by SIGPIPE: the pipe is all it can see.
	if code := runRedirected(t, "/dev/null", "/dev/full", `while :; do echo x; done`); code != 125 {
		t.Errorf("got exit %d, want the supervisor to report the file's error", code)
	}
}

// TestDrainGivesUpOnAPipeThatIsHeldOpen holds the domain's end open, as nothing should.
func TestDrainGivesUpOnAPipeThatIsHeldOpen(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fds := [3]int{-1, int(f.Fd()), -1}
	layout, err := Plan(fds)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(layout, fds)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn, _ := s.Child(1).SyscallConn()
	var held int
	conn.Control(func(fd uintptr) { held, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3) })
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(held)
	s.Started()
	unix.Write(held, []byte("written"))
	if err := s.Drain(100 * time.Millisecond); err != nil {
		t.Errorf("got %v", err)
	}
	if data, _ := os.ReadFile(f.Name()); string(data) != "written" {
		t.Errorf("got %q", data)
	}
}

// runRedirected runs the supervisor without any terminal, 1 and 2 on one file.
func runRedirected(t *testing.T, in, out, script string) int {
	t.Helper()
	stdin, err := os.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := os.OpenFile(out, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, script)
	cmd.Env = append(os.Environ(), "TTY_ROLE=supervisor")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stdout
	cmd.Run()
	return cmd.ProcessState.ExitCode()
}

func TestPlainTextKeepsNothingThatATerminalAnswers(t *testing.T) {
	in := []byte("a\tb\r\n\x1b[5n\x05\x7f\xc2\x9b6n \xe2\x82\xac")
	plain(in)
	if want := "a\tb\r\n?[5n???\x9b6n \xe2\x82\xac"; string(in) != want {
		t.Errorf("got %q, want %q", in, want)
	}
}
