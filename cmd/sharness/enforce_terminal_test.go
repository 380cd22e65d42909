package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/kerneltest"
)

// shellPrompt is the user's. It is built from two words, so that typing it does not show it.
const shellPrompt = "user-prompt> "

// person sits at a terminal with a shell, in a folder with a manifest and a workspace.
type person struct {
	t             *testing.T
	dir           string
	master, slave *os.File

	mu     sync.Mutex
	screen bytes.Buffer
	seen   int
}

// sitDown gives a person a terminal of 30 lines and 100 columns, and a manifest for the programs, the first of them the
// command.
func sitDown(t *testing.T, name string, programs ...string) *person {
	t.Helper()
	kerneltest.RequireRoot(t)
	p := &person{t: t, dir: sessionRoot(t)}
	t.Cleanup(func() { forget(t, name) })
	text, err := pinnedManifest(name, programs, "env: {pass: [TERM]}\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "m.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(p.dir, "ws"), 0o755); err != nil {
		t.Fatal(err)
	}
	p.master, p.slave = terminal(t)
	p.resize(30, 100)
	sh := exec.Command("/usr/bin/bash", "--noprofile", "--norc", "--noediting", "-i")
	sh.Dir = p.dir
	sh.Env = []string{"PATH=" + filepath.Dir(builtSharness(t)) + ":/usr/bin:/bin", "TERM=xterm", "LANG=C.UTF-8", "HISTFILE=",
		"RUN=sharness enforce -m m.yaml --workspace ws --events log --"}
	sh.Stdin, sh.Stdout, sh.Stderr = p.slave, p.slave, p.slave
	sh.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := sh.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.master.Close() // hangs up
		sh.Process.Kill()
		sh.Wait()
	})
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := p.master.Read(buf)
			p.mu.Lock()
			p.screen.Write(buf[:n])
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	p.types("PS1='user-pro''mpt> '\n")
	p.expect(shellPrompt)
	return p
}

func (p *person) types(text string) {
	p.t.Helper()
	if _, err := p.master.WriteString(text); err != nil {
		p.t.Fatal(err)
	}
}

// expect waits for a text on the screen behind what was expected before.
func (p *person) expect(text string) {
	p.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		p.mu.Lock()
		i := bytes.Index(p.screen.Bytes()[p.seen:], []byte(text))
		if i >= 0 {
			p.seen += i + len(text)
		}
		p.mu.Unlock()
		if i >= 0 {
			return
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.t.Fatalf("want %q on the screen, behind %q", text, p.screen.Bytes()[p.seen:])
}

func (p *person) resize(lines, columns uint16) {
	p.t.Helper()
	if err := unix.IoctlSetWinsize(int(p.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: lines, Col: columns}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *person) modes() unix.Termios {
	p.t.Helper()
	modes, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	if err != nil {
		p.t.Fatal(err)
	}
	return *modes
}

// status wants the shell to have the terminal as it was, and to have seen this exit status.
func (p *person) status(want string, before unix.Termios) {
	p.t.Helper()
	p.expect(shellPrompt)
	p.types("echo sta''tus=$?\n")
	p.expect("status=" + want + "\r\n")
	p.expect(shellPrompt)
	if after := p.modes(); after != before {
		p.t.Errorf("the terminal's modes: got %+v, want %+v", after, before)
	}
}

func TestTerminalReachesAnInteractiveOrchestrator(t *testing.T) {
	p := sitDown(t, "test-terminal", "bash")
	before := p.modes()
	p.types("$RUN bash --noprofile --norc -i\n")
	p.expect("bash-5")
	p.types("PS1='inn''er> '\n")
	p.expect("inner> ")
	p.types("echo si''ze $LINES $COLUMNS\n")
	p.expect("size 30 100")
	p.resize(40, 120)
	p.types("while [[ $LINES != 40 ]]; do sharness-bash -c true; done; echo si''ze $LINES $COLUMNS\n")
	p.expect("size 40 120")
	p.expect("inner> ")
	p.types("echo loop''ing; while :; do :; done\n")
	p.expect("looping")
	p.types("\x03")
	p.expect("inner> ")
	// A command has the terminal too, by way of a pty of its own.
	p.types("sharness-bash -c 'stty size; read x; echo g\"\"ot-$x'\n")
	p.expect("40 120")
	p.types("hello\r")
	p.expect("got-hello")
	p.expect("inner> ")
	p.types("sharness-bash -c 'echo rea\"\"dy; sleep 60'\n")
	p.expect("ready")
	p.types("\x03")
	p.expect("inner> ")
	p.types("echo st''atus $?\n")
	p.expect("status 130")
	p.expect("inner> ")
	p.types("exit 7\n")
	p.status("7", before)
}

func TestTerminalStopsAndGoesOnWithTheUsersJob(t *testing.T) {
	p := sitDown(t, "test-terminal-job", "bash")
	before := p.modes()
	p.types("$RUN bash -c 'echo rea\"\"dy; while ! read x || test -z \"$x\"; do :; done; echo g\"\"ot-$x; exit 3'\n")
	p.expect("ready")
	p.types("\x1a")
	p.expect("Stopped")
	p.expect(shellPrompt)
	if after := p.modes(); after != before {
		t.Errorf("the terminal's modes while stopped: got %+v, want %+v", after, before)
	}
	p.types("echo sh''ell\n")
	p.expect("shell\r\n")
	p.expect(shellPrompt)
	p.types("fg\n")
	p.expect("$RUN") // bash repeats the command
	for deadline := time.Now().Add(10 * time.Second); p.modes() == before && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
	}
	p.types("hello\r")
	p.expect("got-hello")
	p.status("3", before)
}

func TestTerminalKeepsWhatWasTypedInsideFromTheShell(t *testing.T) {
	p := sitDown(t, "test-terminal-ahead", "bash", "sleep")
	before := p.modes()
	p.types("$RUN bash -c 'echo rea\"\"dy; while [[ ! -e go ]]; do sleep 0.02; done'\n")
	p.expect("ready")
	for deadline := time.Now().Add(10 * time.Second); p.modes() == before && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
	}
	p.types("touch typed-ahead\n")
	if err := os.WriteFile(filepath.Join(p.dir, "ws/go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p.status("0", before)
	if _, err := os.Stat(filepath.Join(p.dir, "typed-ahead")); err == nil {
		t.Error("what was typed into the session was executed by the user's shell")
	}
}

func TestTerminalIsRestoredWhenTheOrchestratorIsKilled(t *testing.T) {
	p := sitDown(t, "test-terminal-kill", "bash")
	before := p.modes()
	p.types("$RUN bash -c 'printf \"\\e[?1049h\\e[?25lrea\"; printf dy; kill -KILL $$'\n")
	p.expect("ready")
	p.status("137", before)
	if screen := p.screen.String(); !strings.Contains(screen, "\x1b[?25h") {
		t.Errorf("the cursor was not shown again: %q", screen)
	}
}

func TestVimOpensWritesAndQuits(t *testing.T) {
	kerneltest.RequireProgram(t, "/usr/bin/vim")
	p := sitDown(t, "test-terminal-vim", "vim")
	before := p.modes()
	p.types("$RUN vim file\n")
	p.expect("[New]")
	p.types("ihello from vim\x1b")
	p.resize(20, 60)
	p.types(":wq\r")
	p.status("0", before)
	got, err := os.ReadFile(filepath.Join(p.dir, "ws/file"))
	if err != nil || string(got) != "hello from vim\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestHtopShowsItsDomainAndQuits(t *testing.T) {
	kerneltest.RequireProgram(t, "/usr/bin/htop")
	p := sitDown(t, "test-terminal-htop", "htop")
	before := p.modes()
	p.types("$RUN htop\n")
	p.expect("F10")
	p.types("q")
	p.status("0", before)
}
