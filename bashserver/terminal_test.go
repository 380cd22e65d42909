package bashserver

import (
	"bufio"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/bashserver/wire"
)

// onTerminal starts the client with a terminal of its own and returns the other side of that.
func (s *supervisor) onTerminal(t *testing.T, script string) (person *os.File, tty int, lines *bufio.Reader, wait func() int) {
	t.Helper()
	tty, slave := openPTY(t)
	unix.IoctlSetWinsize(tty, unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 77})
	cmd := s.command("-c", script)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	unix.SetNonblock(tty, true)
	person = os.NewFile(uintptr(tty), "person")
	t.Cleanup(func() { person.Close() })
	person.SetReadDeadline(time.Now().Add(10 * time.Second))
	return person, tty, bufio.NewReader(person), func() int {
		cmd.Wait()
		return cmd.ProcessState.ExitCode()
	}
}

func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	l, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("after %q: %v", l, err)
	}
	return strings.TrimRight(l, "\r\n")
}

func TestCommandOnATerminalHasOneOfItsOwn(t *testing.T) {
	s := start(t, Config{Secrets: []Secret{{Name: "T", Value: "hunter22"}}}, inProcess)
	person, tty, r, wait := s.onTerminal(t, "stty size; test -t 0 && test -t 1 && test -t 2 && echo yes; read x; echo \"<$x>\"; echo hunter22; exit 4")
	fresh, other := openPTY(t) // theirs may have been changed by now; each begins alike
	before, err := unix.IoctlGetTermios(fresh, unix.TCGETS)
	if err := errors.Join(err, other.Close(), unix.Close(fresh)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"33 77", "yes"} {
		if got := line(t, r); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	person.WriteString("typed\r")
	if echo, got := line(t, r), line(t, r); echo != "typed" || got != "<typed>" {
		t.Errorf("got %q, %q", echo, got)
	}
	if got := line(t, r); got != "[redacted:T]" {
		t.Errorf("got %q", got)
	}
	if code := wait(); code != 4 {
		t.Errorf("status %d", code)
	}
	after, err := unix.IoctlGetTermios(tty, unix.TCGETS)
	if err != nil || *after != *before || after.Lflag&unix.ECHO == 0 || after.Oflag&unix.OPOST == 0 {
		t.Errorf("terminal left as %+v, %v, want %+v", after, err, before)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starts[0].A != wire.FlagTerminal {
		t.Errorf("flags %d", s.starts[0].A)
	}
}

func TestKeysAndSizeReachTheInnerTerminal(t *testing.T) {
	s := start(t, Config{}, inProcess)
	person, tty, r, wait := s.onTerminal(t, "trap 'stty size; exit 5' INT; trap 'stty size' WINCH; echo ready; while :; do sleep 0.02; done")
	if got := line(t, r); got != "ready" {
		t.Fatalf("got %q", got)
	}
	unix.IoctlSetWinsize(tty, unix.TIOCSWINSZ, &unix.Winsize{Row: 11, Col: 22})
	if got := line(t, r); got != "11 22" {
		t.Errorf("after the resize: %q", got)
	}
	person.WriteString("\x03")
	if got := line(t, r); !strings.HasSuffix(got, "11 22") {
		t.Errorf("after ^C: %q", got)
	}
	if code := wait(); code != 5 {
		t.Errorf("status %d", code)
	}
}

func TestOutputToAFileIsNotForcedOntoATerminal(t *testing.T) {
	s := start(t, Config{}, inProcess)
	master, slave := openPTY(t)
	defer unix.Close(master)
	defer slave.Close()
	cmd := s.command("-c", "test -t 1 || echo none; echo err >&2")
	cmd.Stdin = slave
	if out, errs, ws := s.finish(cmd); out != "none\n" || errs != "err\n" || ws != 0 {
		t.Errorf("got %q, %q, %v", out, errs, ws)
	}
}

func TestCommandGetsATerminalThatItsClientHasNot(t *testing.T) {
	s := start(t, Config{}, inProcess)
	cmd := s.command("--tty", "-c", "test -t 0 && test -t 1 && test -t 2 && stty size; stty -echo; cat; echo end")
	cmd.Stdin = strings.NewReader("line\nhalf")
	out, errs, ws := s.finish(cmd)
	if !strings.Contains(out, "24 80\r\n") || !strings.HasSuffix(out, "line\r\nhalfend\r\n") || errs != "" || ws.ExitStatus() != 0 {
		t.Errorf("got %q %q %v", out, errs, ws)
	}
	cmd = s.command("--json", "--tty", "-c", "test -t 1 && cat && echo nothing came")
	if out, _, _ = s.finish(cmd); !strings.Contains(out, `"stdout":"nothing came\u000d\n","stderr":""`) {
		t.Errorf("--json: %q", out)
	}
	if _, errs, ws := s.output("--tty", "--background", "-c", "true"); ws.ExitStatus() != 2 || !strings.Contains(errs, "usage") {
		t.Errorf("a job: %q %v", errs, ws)
	}
}
