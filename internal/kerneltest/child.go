package kerneltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// childEnv names the child function in the environment of a re-executed test binary.
const childEnv = "KERNELTEST_CHILD"

// Descriptors of a child besides 0-2.
const (
	inputFD = 3
	replyFD = 4
)

// Func runs in a child process. It may confine itself: input is read before, and reply needs only a write(2). An
// error, like a panic, fails the test.
type Func func(input json.RawMessage) (reply any, err error)

// Main is for TestMain: it runs the child function that a parent asked for, or else the tests.
func Main(m *testing.M, children map[string]Func) {
	name, asked := os.LookupEnv(childEnv)
	if !asked {
		os.Exit(m.Run())
	}
	if err := child(children[name]); err != nil {
		fmt.Fprintf(os.Stderr, "child %s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// MainWithoutCgo is Main for a package that must act on all threads of its children, which the Go runtime does only in
// a program without cgo: a test binary built with it builds itself again and goes on as that.
func MainWithoutCgo(m *testing.M, children map[string]Func) {
	if builtWithCgo {
		fmt.Fprintln(os.Stderr, againWithoutCgo())
		os.Exit(1)
	}
	Main(m, children)
}

// againWithoutCgo returns only when it fails. The binary stays in the temporary folder of the go command, which removes
// it; a test runs in its package's folder.
func againWithoutCgo() error {
	binary := filepath.Join(filepath.Dir(os.Args[0]), "without-cgo.test")
	build := exec.Command("go", "test", "-c", "-o", binary)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the test without cgo: %w", err)
	}
	return fmt.Errorf("run the test without cgo: %w", syscall.Exec(binary, os.Args, os.Environ()))
}

func child(f Func) error {
	if f == nil {
		return fmt.Errorf("no such child function")
	}
	in := os.NewFile(inputFD, "input")
	input, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("read input: %w", err)
	}
	in.Close()
	out := os.NewFile(replyFD, "reply")
	reply, err := f(input)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(reply)
}

// Child is one run of a child function.
type Child struct {
	Name  string
	Input any             // sent as JSON
	Reply any             // filled from JSON; nil: none is read
	Setup func(*exec.Cmd) // credentials, clone flags, more files (from descriptor 5 on)
}

// Run runs the child and fails the test unless it ends well. It returns the child's standard error.
func (c Child) Run(t testing.TB) string {
	t.Helper()
	stderr, err := c.Start(t)
	if err != nil {
		t.Fatalf("child %s: %v\n%s", c.Name, err, stderr)
	}
	return stderr
}

// Start runs the child and returns how it ended: an *exec.ExitError when it was killed, for instance.
func (c Child) Start(t testing.TB) (stderr string, err error) {
	t.Helper()
	input, err := json.Marshal(c.Input)
	if err != nil {
		t.Fatalf("child %s: encode input: %v", c.Name, err)
	}
	inRead, inWrite := pipe(t)
	outRead, outWrite := pipe(t)
	defer outRead.Close()

	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"="+c.Name)
	cmd.ExtraFiles = []*os.File{inRead, outWrite}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if c.Setup != nil {
		c.Setup(cmd)
	}
	startErr := cmd.Start()
	inRead.Close()
	outWrite.Close()
	if startErr != nil {
		inWrite.Close()
		t.Fatalf("child %s: start: %v", c.Name, startErr)
	}
	go func() {
		inWrite.Write(input) // a child that died early shows in Wait
		inWrite.Close()
	}()
	reply, readErr := io.ReadAll(outRead)
	if err := cmd.Wait(); err != nil {
		return errs.String(), err
	}
	if readErr != nil {
		t.Fatalf("child %s: read reply: %v", c.Name, readErr)
	}
	if c.Reply != nil {
		if err := json.Unmarshal(reply, c.Reply); err != nil {
			t.Fatalf("child %s: decode reply %q: %v", c.Name, reply, err)
		}
	}
	return errs.String(), nil
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatalf("pipe: %v", err)
	}
	return r, w
}
