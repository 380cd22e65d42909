// Package bait plants outside of a domain what the attempts of sharness-probe try to reach, and counts what arrives:
// files, sockets, ports and a process. What was planted is gone after Close.
//
// It needs root, and stays on loopback.
package bait

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/sidedoor/probe"
)

// Config says where to plant and for whom.
type Config struct {
	Dir       string // a fresh folder outside of every view, which Plant fills
	Workspace string // exists and belongs to UID; payloads go here
	State     string
	UID, GID  int    // whose bait it is
	Probe     string // the probe's binary, for the bait process
	Unlisted  string // a program of the host that may not be started; without one nothing tries
}

// Planted is bait that lies out. Arrived may be asked at any time.
type Planted struct {
	Bait probe.Bait
	Env  []string // variables that must not get into the domain; add them to the environment sharness is started with

	config  Config
	mu      sync.Mutex
	arrived []string
	closers []func() error
}

// Plant lays everything out. On an error nothing stays.
func Plant(c Config) (_ *Planted, err error) {
	p := &Planted{config: c}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	p.Bait = probe.Bait{Workspace: c.Workspace, State: c.State, Unlisted: c.Unlisted, SecretValue: "bait-" + rand.Text(), SecretEnv: []string{"SHARNESS_BAIT_TOKEN"}}
	p.Env = []string{"SHARNESS_BAIT_TOKEN=" + p.Bait.SecretValue, "NODE_OPTIONS=--no-warnings", "BASH_ENV=/dev/null", "GIT_SSH_COMMAND=/bin/false",
		"PYTHONSTARTUP=/dev/null", "LD_LIBRARY_PATH=/nonexistent"}
	if p.Bait.HostPIDNS, err = inode("/proc/self/ns/pid"); err != nil {
		return nil, err
	}
	if p.Bait.HostNetNS, err = inode("/proc/self/ns/net"); err != nil {
		return nil, err
	}
	p.Bait.SocketEnv = socketEnv(c.Dir)
	p.Env = append(p.Env, p.Bait.SocketEnv...)
	for _, step := range []func() error{p.files, p.payloads, p.ports, p.unixSockets, p.ipc, p.victim} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Write stores the bait as JSON for sharness-probe --bait, readable by everyone.
func (p *Planted) Write(path string) error {
	raw, err := json.Marshal(p.Bait)
	if err != nil {
		return fmt.Errorf("encode bait: %w", err)
	}
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		return fmt.Errorf("write bait: %w", err)
	}
	return nil
}

// Arrived lists what reached the bait so far.
func (p *Planted) Arrived() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.arrived...)
}

func (p *Planted) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arrived = append(p.arrived, fmt.Sprintf(format, args...))
}

// Close takes everything away, counts the signals that reached the bait process, and looks at the files once more;
// Arrived is complete afterwards.
func (p *Planted) Close() error {
	var errs []error
	for i := len(p.closers) - 1; i >= 0; i-- {
		errs = append(errs, p.closers[i]())
	}
	p.closers = nil
	return errors.Join(errs...)
}

func (p *Planted) closing(f func() error) { p.closers = append(p.closers, f) }

func inode(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("stat %s: %w", path, err)
	}
	return st.Ino, nil
}

// files are secrets that only their owner, or everyone, may read, and one that may be changed.
func (p *Planted) files() error {
	if err := os.Chmod(p.config.Dir, 0o755); err != nil {
		return err
	}
	put := func(name string, mode os.FileMode) (string, error) {
		path := filepath.Join(p.config.Dir, name)
		if err := os.WriteFile(path, []byte(p.Bait.SecretValue+"\n"), 0o600); err != nil {
			return "", err
		}
		if err := os.Chown(path, p.config.UID, p.config.GID); err != nil {
			return "", err
		}
		p.closing(func() error { return os.Remove(path) })
		return path, os.Chmod(path, mode)
	}
	var err error
	if p.Bait.Secret, err = put("secret", 0o600); err != nil {
		return fmt.Errorf("plant secret: %w", err)
	}
	if p.Bait.SecretWorld, err = put("world", 0o644); err != nil {
		return fmt.Errorf("plant readable file: %w", err)
	}
	// In a folder of the user, so that it can be renamed.
	own := filepath.Join(p.config.Dir, "own")
	if err := os.Mkdir(own, 0o755); err != nil {
		return err
	}
	if err := os.Chown(own, p.config.UID, p.config.GID); err != nil {
		return err
	}
	p.closing(func() error { return os.Remove(own) })
	if p.Bait.Owned, err = put("own/file", 0o644); err != nil {
		return fmt.Errorf("plant expendable file: %w", err)
	}
	p.Bait.ReadOnly = nil
	return nil
}

// victim starts the bait process.
func (p *Planted) victim() error {
	sock := filepath.Join(p.config.Dir, "own", "victim.sock")
	// A copy: the probe may lie in a home that the bait's user cannot enter.
	program := filepath.Join(p.config.Dir, filepath.Base(p.config.Probe))
	data, err := os.ReadFile(p.config.Probe)
	if err != nil {
		return err
	}
	if err := os.WriteFile(program, data, 0o755); err != nil {
		return err
	}
	p.closing(func() error { return os.Remove(program) })
	cmd := exec.Command(program, "victim")
	cmd.Env = []string{"SHARNESS_BAIT_SOCKET=" + sock, "SHARNESS_BAIT_TOKEN=" + p.Bait.SecretValue}
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{Uid: uint32(p.config.UID), Gid: uint32(p.config.GID)}}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start bait process: %w", err)
	}
	p.closing(func() error {
		in.Close()
		var n int
		_, scanErr := fmt.Fscan(out, &n)
		err := cmd.Wait()
		os.Remove(sock)
		if n > 0 {
			p.note("%d signals to the bait process", n)
		}
		return errors.Join(scanErr, err)
	})
	var word string
	if _, err := fmt.Fscan(out, &word); err != nil || word != "ready" {
		return fmt.Errorf("bait process said %q: %v", word, err)
	}
	p.Bait.Victims, p.Bait.VictimSock = []int{cmd.Process.Pid}, sock
	return nil
}
