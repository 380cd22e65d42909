package bashserver

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/bashserver/wire"
)

// listener is a server that does what a test wants.
func listener(t *testing.T) (*net.UnixListener, func(args ...string) *exec.Cmd) {
	t.Helper()
	dir := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, func(args ...string) *exec.Cmd {
		cmd := exec.Command(client, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "SHARNESS_SOCKET="+filepath.Join(dir, "s"))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		return cmd
	}
}

func accepted(t *testing.T, l *net.UnixListener) *net.UnixConn {
	t.Helper()
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// The command may run, and whoever waits for it send a signal, before the client is scheduled again.
func TestSignalThatComesRightAfterTheRequestIsForwarded(t *testing.T) {
	l, run := listener(t)
	for i := range 100 {
		cmd := run("-c", "true")
		c := accepted(t, l)
		for f := (wire.Frame{}); f.Type != wire.Start; {
			var err error
			if f, err = wire.ReadFrame(c); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		f, err := wire.ReadFrame(c)
		if err != nil {
			t.Fatalf("client %d: no frame after the signal: %v", i, err)
		}
		if sig, err := wire.DecodeSignal(f); err != nil || sig != int(syscall.SIGUSR1) {
			t.Fatalf("client %d: %v, %v", i, f, err)
		}
		c.Write(wire.AppendFrame(nil, wire.ExitFrame(wire.KindStatus, 7)))
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 7 {
			t.Fatalf("client %d: status %d, want 7", i, code)
		}
	}
}

func TestServerThatDoesNotReadKeepsNoClientFromEnding(t *testing.T) {
	l, run := listener(t)
	cmd := run("-c", strings.Repeat("x", 120<<10), strings.Repeat("x", 120<<10), strings.Repeat("x", 120<<10), strings.Repeat("x", 120<<10),
		strings.Repeat("x", 120<<10), strings.Repeat("x", 120<<10))
	rc, err := accepted(t, l).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	last, again := 0, 0 // as many bytes wait as before: there is no room for more
	eventually(t, "the client waits for room", func() bool {
		n := 0
		if err := rc.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); err != nil {
			t.Fatal(err)
		}
		if n == 0 || n != last {
			last, again = n, 0
			return false
		}
		again++
		return again == 20
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != syscall.SIGTERM {
		t.Errorf("ended with %v, want by SIGTERM", ws)
	}
}
