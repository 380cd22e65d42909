package tty

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// In the scripts, words that a test waits for are cut in two ("rea""dy"): the shell's echo of the command line must not
// be taken for the target's output. Targets wait in read: a shell that is about to start a command when the signal comes
// may lose it (trap), or sit in vfork behind a child that has stopped before its exec.

// waitPatiently starts the target of the role "patient" in a script.
const waitPatiently = `TTY_ROLE=patient exec "$SELF"`

func TestCtrlCReachesTheTargetAlone(t *testing.T) {
	u := login(t)
	before := u.modes()
	u.types(`$T 'trap "echo in""terrupted; exit 3" INT; echo rea""dy; while :; do sleep 0.1; done'; echo co""de=$?` + "\n")
	u.expect("ready")
	u.types("\x03")
	u.expect("interrupted")
	u.expect("code=3")
	u.expect(prompt)
	u.sameModes(before, "after the exit")
}

func TestCtrlZGivesTheShellItsTerminalAndFgTakesItBack(t *testing.T) {
	u := login(t)
	before := u.modes()
	u.types("$T '" + waitPatiently + "'\n")
	u.expect("ready")
	for range 3 {
		u.types("\x1a")
		u.expect("Stopped")
		u.expect(prompt)
		u.sameModes(before, "while stopped")
		u.types("echo shell-re\"\"ads\n")
		u.expect("shell-reads")
		u.expect(prompt)
		u.types("fg\n")
		u.expect("awake")
	}
	u.types("hello\r")
	u.expect("got-hello")
	u.expect(prompt)
	u.sameModes(before, "after the exit")
}

// waitRaw waits until a supervisor has the terminal.
func (u *user) waitRaw() {
	u.t.Helper()
	for range 2000 {
		if m := u.modes(); m.Lflag&(unix.ICANON|unix.ISIG) == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	u.t.Fatal("the terminal did not become raw")
}

func TestSizeOfTheTerminalIsPassedOn(t *testing.T) {
	u := login(t)
	size := func(rows, cols uint16) {
		if err := unix.IoctlSetWinsize(u.fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
			t.Fatal(err)
		}
	}
	size(31, 97)
	u.types(`$T 'trap "stty size" WINCH; stty size; while :; do read x; done'` + "\n")
	u.expect("31 97")
	size(33, 99)
	u.expect("33 99")
	// A size that changes while the job is stopped is made up for.
	u.types("\x1a")
	u.expect("Stopped")
	u.expect(prompt)
	size(35, 101)
	u.types("fg\n")
	u.expect("35 101")
	u.types("\x03")
	u.expect(prompt)
}

func TestModesAreRestoredHoweverItEnds(t *testing.T) {
	cases := []struct {
		name, script, keys string
		code               string
		left               bool // the screen is put back for the target
	}{
		{"exit", `echo rea""dy; read x; exit 4`, "x\r", "4", false},
		{"pty left raw", `stty raw -echo; echo rea""dy; dd bs=1 count=1 2>/dev/null; exit 5`, "x", "5", false},
		{"target killed", `echo rea""dy; read x; kill -KILL $$`, "x\r", "137", true},
		{"supervisor told to end", `echo rea""dy; read x; kill -TERM $PPID_OF_SUPERVISOR; sleep 100`, "x\r", "143", true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			u := login(t)
			before := u.modes()
			// The script's stage is a child of the supervisor.
			script := strings.Replace(c.script, "$PPID_OF_SUPERVISOR", `$(ps -o ppid= -p $PPID)`, 1)
			u.types(`$T '` + script + `'; echo co""de=$?` + "\n")
			u.expect("ready")
			u.waitRaw()
			u.types(c.keys)
			u.expect("code=" + c.code)
			u.expect(prompt)
			u.sameModes(before, "at the end")
			if got := strings.Contains(u.all(), "\x1b[?1047l"); got != c.left {
				t.Errorf("screen put back: %v, want %v", got, c.left)
			}
		})
	}
}

func TestModesAreRestoredByAPanic(t *testing.T) {
	u := login(t, "PANIC=1")
	before := u.modes()
	u.types(`$T 'echo rea""dy; kill -TSTP $$; sleep 1'` + "\n")
	u.expect("ready")
	u.expect("Stopped")
	u.expect(prompt)
	u.types("fg; echo co\"\"de=$?\n")
	u.expect("panic")
	u.expect("code=2")
	u.expect(prompt)
	u.types("\n")
	u.expect(prompt)
	u.sameModes(before, "after the panic")
}

// TestSideDoor_TTYAnswer lets the domain ask the terminal something just before it ends or stops. The terminal's answer
// comes late and would be a command if the shell read it.
func TestSideDoor_TTYAnswer(t *testing.T) {
	for _, c := range []struct{ name, end, sign string }{
		{"at exit", `exit 6`, "code=6"},
		{"at a stop", `kill -TSTP $$`, "Stopped"},
		{"behind a query of its own like ours", `printf "\033[5n"; exit 6`, "code=6"},
		{"in a sequence cut off", `printf "\033]0;title"; exit 6`, "code=6"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := login(t)
			before := u.modes()
			u.types(`$T 'echo rea""dy; read x; printf "\033[21t"; ` + c.end + `'; echo co""de=$?` + "\n")
			u.expect("ready")
			u.waitRaw()
			u.types("x\r")
			u.expect("\x1b[21t")
			// A slow terminal, and one with an answer per question in their order.
			time.Sleep(100 * time.Millisecond)
			u.types("echo ow\"\"ned\r")
			if strings.Contains(c.end, "[5n") {
				u.types("\x1b[0n")
			}
			u.expect("\x1b\\\x1b[5n")
			u.types("\x1b[0n")
			u.expect(c.sign)
			u.expect(prompt)
			u.types("echo thi\"\"s-one\n")
			u.expect("this-one")
			if strings.Contains(u.all(), "owned") {
				t.Errorf("the shell ran the terminal's answer:\n%s", u.all())
			}
			u.sameModes(before, "at the end")
		})
	}
}

func TestTypeAheadDoesNotReachTheShell(t *testing.T) {
	u := login(t)
	u.types(`$T 'echo rea""dy; sleep 0.5'` + "\n")
	u.expect("ready")
	u.waitRaw()
	u.types("echo ty\"\"ped\r")
	u.expect(prompt)
	u.types("echo thi\"\"s-one\n")
	u.expect("this-one")
	if strings.Contains(u.all(), "typed") {
		t.Errorf("the shell ran what was typed ahead:\n%s", u.all())
	}
}

func TestBackgroundJobStopsOnlyWhenItReadsTheTerminal(t *testing.T) {
	u := login(t)
	before := u.modes()
	u.types(`$T 'echo ra""n; read x; echo g""ot-$x' &` + "\n")
	u.expect("ran")
	u.sameModes(before, "with a job in the background")
	u.types("wait -n; jobs\n")
	u.expect("Stopped")
	u.types("fg\n")
	u.waitRaw()
	u.types("hello\r")
	u.expect("got-hello")
	u.expect(prompt)
	u.sameModes(before, "after the exit")
}

func TestBgLetsAStoppedJobGoOnWithoutTheTerminal(t *testing.T) {
	u := login(t)
	before := u.modes()
	u.types(`$T 'mkfifo f; echo rea""dy; read y <f; echo d""one; printf "\033[21t\302\233c"; read x; echo g""ot-$x'` + "\n")
	u.expect("ready")
	u.waitRaw()
	u.types("\x1a")
	u.expect("Stopped")
	u.expect(prompt)
	u.types("bg\n")
	u.expect(prompt)
	u.sameModes(before, "after bg")
	u.types("echo >f\n")
	u.expect("done")
	// A query written in the background must not make the terminal type into the shell.
	u.expect("?[21t")
	u.types("\nwait -n; fg\n")
	u.waitRaw()
	u.types("hello\r")
	u.expect("got-hello")
	u.expect(prompt)
	if strings.Contains(u.all(), "\x1b[21t") || strings.Contains(u.all(), "\xc2\x9b") {
		t.Error("a control sequence reached the terminal from the background")
	}
	u.sameModes(before, "after the exit")
}

func TestPipelineLeavesTheTerminalAloneUntilTheTargetReads(t *testing.T) {
	u := login(t)
	before := u.modes()
	u.types(`$T 'test -t 0 && ! test -t 1 && test -t 2 && echo ki""nds; sleep 0.5; echo as""king; read x; echo g""ot-$x' | cat` + "\n")
	u.expect("kinds")
	u.sameModes(before, "before the target has read")
	u.expect("asking")
	u.waitRaw()
	u.types("hello\r")
	u.expect("got-hello")
	u.expect(prompt)
	u.sameModes(before, "after the exit")
}

// TestPagerKeepsItsKeys has another reader of the terminal at the end of the pipeline.
func TestPagerKeepsItsKeys(t *testing.T) {
	u := login(t)
	u.types(`$T 'echo rea""dy; sleep 100' | (read x; echo $x; read key </dev/tty; echo k""ey-$key; kill 0)` + "\n")
	u.expect("ready")
	u.types("abc\n")
	u.expect("key-abc")
}

func TestCtrlCAndCtrlZReachAPipeline(t *testing.T) {
	u := login(t)
	before := u.modes()
	u.types("$T 'exec </dev/tty; " + waitPatiently + "' | cat\n")
	u.expect("awake") // it has asked for the terminal and got it
	u.types("\x1a")
	u.expect("Stopped")
	u.expect(prompt)
	u.types("fg\n")
	u.expect("awake")
	u.types("\x03")
	u.expect("interrupted")
	u.expect(prompt)
	u.sameModes(before, "after the exit")
}

// TestCtrlZStopsAPipelineThatHasNotAskedForTheTerminal types the key while the terminal is not raw: the kernel's own
// SIGTSTP reaches all of the pipeline, and the target only by way of the supervisor.
func TestCtrlZStopsAPipelineThatHasNotAskedForTheTerminal(t *testing.T) {
	u := login(t)
	before := u.modes()
	u.types(`$T 'trap "echo in""terrupted; exit" INT; echo rea""dy; while :; do read x </dev/null; done' | cat` + "\n")
	u.expect("ready")
	u.sameModes(before, "before the target has read")
	u.types("\x1a")
	u.expect("Stopped")
	u.expect(prompt)
	u.types("fg\n")
	u.expect("| cat")
	u.untilForeground()
	u.types("\x03")
	u.expect(prompt)
}

// untilForeground waits until the shell has given the terminal to a job.
func (u *user) untilForeground() {
	u.t.Helper()
	for range 2000 {
		pgrp, err := unix.IoctlGetInt(u.fd, unix.TIOCGPGRP)
		if err == nil && pgrp != u.cmd.Process.Pid {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	u.t.Fatal("no job in the foreground")
}

// TestStopWithoutAShellGoesOn runs the supervisor as leader of its session, as in a container: nobody could continue it.
func TestStopWithoutAShellGoesOn(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	u := attachUser(t, exec.Command(self, waitPatiently), "TTY_ROLE=supervisor")
	u.expect("ready")
	u.waitRaw()
	u.types("\x1a")
	u.expect("awake")
	u.types("hello\r")
	u.expect("got-hello")
}

func TestStoppingTheSupervisorFromOutsideKeepsTheTerminalRight(t *testing.T) {
	u := login(t)
	before := u.modes()
	u.types(`$T 'echo rea""dy; read x; echo g""ot-$x'` + "\n")
	u.expect("ready")
	u.waitRaw()
	pgrp, err := unix.IoctlGetInt(u.fd, unix.TIOCGPGRP)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pgrp, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	u.expect("Stopped")
	u.expect(prompt)
	u.types("fg\n")
	u.waitRaw()
	u.types("hello\r")
	u.expect("got-hello")
	u.expect(prompt)
	u.sameModes(before, "after the exit")
}

func TestTerminalThatGoesAwayHangsUpTheTarget(t *testing.T) {
	u := login(t)
	note := filepath.Join(u.cmd.Dir, "note")
	u.types(`$T 'trap "echo hup >note; exit" HUP; echo rea""dy; sleep 100 & wait'` + "\n")
	u.expect("ready")
	u.waitRaw()
	u.master.Close()
	for range 2000 {
		if data, err := os.ReadFile(note); err == nil && string(data) == "hup\n" {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Error("the target was not told")
}
