package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/confine"
	"github.com/sharness/sharness/internal/kerneltest"
	"github.com/sharness/sharness/launcher/protect"
	"golang.org/x/sys/unix"
)

// user is an id that no machine gives to anybody.
const user = 1899999002

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sharness-watch")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "sharness-watch")
	cmd := exec.Command("go", "build", "-o", bin, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v\n%s", err, out)
	}
	return bin, os.Chmod(dir, 0o755)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if bin, err := build(); err == nil {
		os.RemoveAll(filepath.Dir(bin))
	}
	os.Exit(code)
}

// session is a workspace with the real watcher at work in it, as the supervisor starts it.
type session struct {
	t          *testing.T
	root, kept string
	set        *protect.Set
	control    *os.File

	mu     sync.Mutex
	events []event.Event
}

func userCommand(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	return cmd
}

func (s *session) sh(script string) string {
	s.t.Helper()
	out, err := userCommand(s.root, "/bin/sh", "-ec", script).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

func socketpair(t *testing.T, kind int) (ours, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
}

func folder(t *testing.T, path string) {
	t.Helper()
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, user, user); err != nil {
		t.Fatal(err)
	}
}

// start runs prepare in a new workspace and then the watcher. quarantineIn names the folder that holds the quarantine;
// "" is beside the workspace.
func start(t *testing.T, prepare, quarantineIn string) *session {
	t.Helper()
	s := prepared(t, prepare, quarantineIn)
	s.watch(protect.Config{})
	return s
}

func prepared(t *testing.T, prepare, quarantineIn string) *session {
	t.Helper()
	kerneltest.RequireRoot(t)
	kerneltest.RequireLandlock(t, 3)
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, user, user); err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, root: filepath.Join(dir, "ws"), kept: filepath.Join(dir, "kept")}
	if quarantineIn != "" {
		s.kept = filepath.Join(quarantineIn, fmt.Sprintf("sharness-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
		t.Cleanup(func() { os.RemoveAll(s.kept) })
	}
	folder(t, s.root)
	folder(t, s.kept)
	s.sh(prepare)
	return s
}

// watch starts the watcher. What cfg leaves open is as the supervisor gives it to the first one of a session.
func (s *session) watch(cfg protect.Config) {
	t := s.t
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	abi, err := confine.LandlockABI()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.CreateTemp(t.TempDir(), "config")
	if err != nil {
		t.Fatal(err)
	}
	// The filter of one instruction allows everything; which calls a helper may make is tested where filters are made.
	allow := []byte{unix.BPF_RET | unix.BPF_K, 0, 0, 0, 0, 0, 0xff, 0x7f}
	cfg.Root, cfg.Quarantine, cfg.LandlockABI, cfg.Seccomp = s.root, s.kept, min(abi, confine.MaxLandlockABI), [][]byte{allow}
	err = json.NewEncoder(file).Encode(cfg)
	if err != nil {
		t.Fatal(err)
	}
	control, theirs := socketpair(t, unix.SOCK_SEQPACKET)
	events, sink := socketpair(t, unix.SOCK_DGRAM)
	root, _ := os.Open(s.root)
	kept, _ := os.Open(s.kept)
	setR, setW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := userCommand("/", bin)
	cmd.Env = nil
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{theirs, sink, file, root, setW, kept}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	s.control = control
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		control.Close()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("watcher: %v", err)
			}
		case <-time.After(5 * time.Second):
			cmd.Process.Kill()
			t.Error("the watcher does not end with its control socket")
		}
		events.Close()
	})
	go s.collect(events)
	if s.set, err = protect.Decode(setR); err != nil {
		t.Fatal(err)
	}
	s.receive(protect.Ready)
}

// next starts another session in the same workspace, which knows what the last one found.
func (s *session) next() {
	s.t.Helper()
	var before bytes.Buffer
	if err := s.set.Encode(&before); err != nil {
		s.t.Fatal(err)
	}
	s.control.Close()
	s.kept += "-next"
	folder(s.t, s.kept)
	time.Sleep(30 * time.Millisecond) // what is older than the session is not of it
	s.watch(protect.Config{Before: before.Bytes()})
}

func (s *session) collect(f *os.File) {
	buf := make([]byte, event.MaxBytes)
	for {
		n, err := f.Read(buf)
		if err != nil {
			return
		}
		e, err := event.Decode(buf[:n])
		if err != nil {
			s.t.Errorf("event %q: %v", buf[:n], err)
			return
		}
		s.mu.Lock()
		s.events = append(s.events, *e)
		s.mu.Unlock()
	}
}

// receive reads records until one of that type.
func (s *session) receive(want protect.Message) protect.Record {
	s.t.Helper()
	for {
		r, err := protect.Receive(s.control)
		if err != nil {
			s.t.Fatalf("wait for record %d: %v", want, err)
		}
		if r.Type == want {
			return r
		}
	}
}

func (s *session) sweep() protect.Record {
	s.t.Helper()
	if err := (protect.Record{Type: protect.Sweep}).Send(s.control); err != nil {
		s.t.Fatal(err)
	}
	return s.receive(protect.Swept)
}

// await waits until cond holds; the watcher is asynchronous.
func (s *session) await(what string, cond func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("still waiting for %s, after %d events", what, s.count())
		}
	}
}

func (s *session) saw(typ event.Type, door, suffix string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Type == typ && e.Door == door && e.Target != nil && strings.HasSuffix(e.Target.Asked, suffix) {
			return true
		}
	}
	return false
}

func (s *session) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.events)
}

func (s *session) gone(rel string) bool {
	_, err := os.Lstat(filepath.Join(s.root, rel))
	return os.IsNotExist(err)
}

// keptContents joins what the quarantine holds.
func (s *session) keptContents() string {
	var all strings.Builder
	filepath.WalkDir(s.kept, func(p string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if f, err := os.Open(p); err == nil {
				io.Copy(&all, f)
				f.Close()
			}
		}
		return nil
	})
	return all.String()
}
