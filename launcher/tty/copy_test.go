package tty

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// piped runs the supervisor without any terminal, between two pipes, and returns its output once read takes it.
func piped(t *testing.T, script, input string, read func(out *os.File) string) (string, int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, script)
	cmd.Env = append(os.Environ(), "TTY_ROLE=supervisor")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), w, w
	err = cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	got := read(r)
	cmd.Wait()
	return got, cmd.ProcessState.ExitCode()
}

func readAll(t *testing.T) func(*os.File) string {
	return func(out *os.File) string {
		data, err := io.ReadAll(out)
		if err != nil {
			t.Error(err)
		}
		return string(data)
	}
}

// TestSideDoor_InheritFD_Pipes leaves a secret of another program in the user's pipe, and lets the target read its own
// standard output, set a flag on it, and write where it reads.
func TestSideDoor_InheritFD_Pipes(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("secret\n"); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// timeout: with our own pipe there is nothing to read.
	cmd := exec.Command(self, `timeout 0.3 cat /proc/self/fd/1 >&2; python3 -c '
import fcntl, os
for fd in 0, 1: fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)'`)
	cmd.Env = append(os.Environ(), "TTY_ROLE=supervisor")
	var errs bytes.Buffer
	in, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer inW.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, w, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &errs)
	}
	if strings.Contains(errs.String(), "secret") {
		t.Error("the target read what another program had written")
	}
	for name, f := range map[string]*os.File{"standard input": in, "standard output": w} {
		flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_NONBLOCK != 0 {
			t.Errorf("%s: flags %#x, %v: O_NONBLOCK stayed on the user's pipe", name, flags, err)
		}
	}
	w.Close()
	if got := readAll(t)(r); got != "secret\n" {
		t.Errorf("got %q, want what the other program wrote", got)
	}
}

func TestTargetsOwnPipesBlock(t *testing.T) {
	got, code := piped(t, `python3 -c 'import fcntl, os; print([fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK for fd in (0, 1, 2)])'`, "", readAll(t))
	if got != "[0, 0, 0]\n" || code != 0 {
		t.Errorf("got %q, exit %d", got, code)
	}
}

// The reader takes longer than Drain waits for a pipe that is held open.
func TestSlowReaderLosesNothing(t *testing.T) {
	const size = 200000
	got, code := piped(t, `head -c 200000 /dev/zero`, "", func(out *os.File) string {
		time.Sleep(drainTimeout + time.Second) // the matter itself
		return readAll(t)(out)
	})
	if len(got) != size || code != 0 {
		t.Errorf("got %d bytes, exit %d, want %d", len(got), code, size)
	}
}

func TestReaderThatLeavesEndsTheTarget(t *testing.T) {
	_, code := piped(t, `while :; do echo x; done`, "", func(out *os.File) string {
		b := make([]byte, 1)
		out.Read(b)
		out.Close()
		return ""
	})
	if code != 128+int(unix.SIGPIPE) {
		t.Errorf("got exit %d, want the target's own end by SIGPIPE", code)
	}
}

// Another holder of the user's pipe sets O_NONBLOCK in the middle of the copying.
func TestCopyingWaitsWhereOthersSetNonblock(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w.Fd() // blocks now, as a descriptor that a shell passes
	fd, err := unix.FcntlInt(w.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "stream")
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	w.Close()
	const size = 1 << 20
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(steady{file}, bytes.NewReader(make([]byte, size)))
		file.Close()
		done <- err
	}()
	if got := readAll(t)(r); len(got) != size {
		t.Errorf("got %d bytes, want %d", len(got), size)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// What a copied pipe costs: the first figure has head's own pipe, the second one more hop.
func BenchmarkPipe(b *testing.B) {
	const size = 1 << 30
	for _, c := range []struct{ name, role string }{{"direct", ""}, {"copied", "supervisor"}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				argv := []string{"/bin/sh", "-c", "head -c 1073741824 /dev/zero"}
				if c.role != "" {
					argv = []string{"/proc/self/exe", argv[2]}
				}
				r, w, err := os.Pipe()
				if err != nil {
					b.Fatal(err)
				}
				cmd := exec.Command(argv[0], argv[1:]...)
				cmd.Env = append(os.Environ(), "TTY_ROLE="+c.role)
				cmd.Stdout = w
				err = cmd.Start()
				w.Close()
				if err != nil {
					b.Fatal(err)
				}
				n, _ := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, make([]byte, 1<<16))
				r.Close()
				if err := cmd.Wait(); err != nil || n != size {
					b.Fatal(n, err)
				}
			}
		})
	}
}
