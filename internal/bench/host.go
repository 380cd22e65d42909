package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// owner of the workspace: an ordinary user, so that idmapping costs what it costs.
const owner = 1000

// routed is a program that the server runs without a shell. The orchestrator's own, h.program, cannot be one.
const routed = "/usr/bin/sleep"

// host is what is set up around the rows: a throwaway folder with a manifest for a program, and the bash-server.
type host struct {
	dir       string
	workspace string
	manifest  string
	events    string
	program   string // the real path, as manifests want it
	sharness  string
	server    *exec.Cmd
}

func newHost() (*host, error) {
	h := &host{}
	var err error
	if h.sharness, err = filepath.Abs("bin/sharness"); err != nil {
		return nil, err
	}
	if h.program, err = filepath.EvalSymlinks("/bin/true"); err != nil {
		return nil, err
	}
	// Not in /tmp: nothing is trusted where anybody can write.
	if h.dir, err = os.MkdirTemp("/var/lib", "sharness-bench-"); err != nil {
		return nil, err
	}
	if err := h.fill(); err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

func (h *host) fill() error {
	h.workspace, h.manifest, h.events = filepath.Join(h.dir, "ws"), filepath.Join(h.dir, "bench.yaml"), filepath.Join(h.dir, "events.jsonl")
	if err := errors.Join(os.Chmod(h.dir, 0o755), os.Mkdir(h.workspace, 0o755), os.WriteFile(h.events, nil, 0o644)); err != nil {
		return err
	}
	if err := errors.Join(os.Chown(h.workspace, owner, owner), os.Chown(h.events, owner, owner)); err != nil {
		return err
	}
	// The owner of the workspace is the user, whoever called sudo.
	if err := os.Unsetenv("SUDO_UID"); err != nil {
		return err
	}
	out, err := exec.Command(h.sharness, "manifest", "new", "-m", h.manifest, "--name", "sharness-bench", "--profile", "plain",
		"--state", filepath.Join(h.dir, "state"), "--", h.program).CombinedOutput()
	if err == nil {
		out, err = exec.Command(h.sharness, "manifest", "allow", "-m", h.manifest, "--route", routed).CombinedOutput()
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	// One row prints more than a manifest allows by itself.
	text, err := os.ReadFile(h.manifest)
	if err != nil {
		return err
	}
	edited := strings.Replace(string(text), "  output: 64MiB\n", "  output: 2GiB\n  background: {keep: jobs, jobs: 32}\n", 1)
	return os.WriteFile(h.manifest, []byte(edited), 0o644)
}

// asAfterBoot puts the programs out of the page cache, where a file that was just written lies in larger pieces than one
// that is read from a disk. A fault maps a piece as a whole, so that the same idle processes had 7 MiB more resident just
// after a build.
func (h *host) asAfterBoot() error {
	for _, name := range []string{"sharness", "sharness-bashd"} {
		f, err := os.Open(filepath.Join(filepath.Dir(h.sharness), name))
		if err != nil {
			return err
		}
		err = errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
		if err != nil {
			return fmt.Errorf("%s: leave the page cache: %w", f.Name(), err)
		}
	}
	return nil
}

// serve starts the bash-server and returns its socket.
func (h *host) serve() (string, error) {
	if err := h.asAfterBoot(); err != nil {
		return "", err
	}
	h.server = exec.Command(h.sharness, "serve", "-m", h.manifest, "--workspace", h.workspace, "--events", h.events)
	h.server.Stderr = os.Stderr
	h.server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := h.server.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := h.server.Start(); err != nil {
		h.server = nil
		return "", err
	}
	text, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("sharness serve did not say its socket: %w", err)
	}
	socket, ok := strings.CutPrefix(strings.TrimSpace(text), "SHARNESS_SOCKET=")
	if !ok {
		return "", fmt.Errorf("sharness serve said %q", text)
	}
	return socket, nil
}

func (h *host) close() error {
	var errs []error
	if h.server != nil {
		errs = append(errs, h.server.Process.Signal(syscall.SIGTERM))
		timer := time.AfterFunc(10*time.Second, func() { _ = h.server.Process.Kill() })
		errs = append(errs, h.server.Wait())
		timer.Stop()
	}
	return errors.Join(append(errs, os.RemoveAll(h.dir))...)
}
