package launcher

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/launcher/filter"
	"github.com/sharness/sharness/launcher/protect"
	"golang.org/x/sys/unix"
)

// quarantineRoot holds what was taken out of workspaces, a folder per session.
const quarantineRoot = "/var/lib/sharness/quarantine"

// watcher is sharness-watch: it runs with the user's ids, finds what must be protected, and takes away what appears.
type watcher struct {
	set     *protect.Set
	proc    *helperProcess
	control *os.File
	dir     string // of the quarantine
	swept   chan protect.Record
}

// watcherTime bounds the search of a workspace, and the sweep at the end.
const watcherTime = 60 * time.Second

func startWatcher(sp *spawner, s *Session, events *sink.Sender, end *os.File, onHint func(uint64), onReplaced func(int)) (*watcher, error) {
	w := &watcher{dir: filepath.Join(quarantineRoot, s.ID), swept: make(chan protect.Record, 1)}
	if err := os.MkdirAll(quarantineRoot, 0o711); err != nil {
		return nil, fmt.Errorf("quarantine: %w", err)
	}
	if err := errors.Join(os.Mkdir(w.dir, 0o700), os.Lchown(w.dir, s.User.UID, s.User.GID)); err != nil {
		return nil, fmt.Errorf("quarantine: %w", err)
	}
	ok := false
	defer func() {
		if !ok {
			w.stop()
		}
	}()
	quarantine, err := os.Open(w.dir)
	if err != nil {
		return nil, fmt.Errorf("quarantine: %w", err)
	}
	defer quarantine.Close()
	progs, err := helperFilter(filter.Options{Files: true, Change: true})
	if err != nil {
		return nil, err
	}
	root, err := openDir(s.Workspace)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	control, theirs, err := socketpair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	w.control = control
	setR, setW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer setR.Close()
	m := s.Manifest
	w.proc, err = sp.startHelper(helperSpec{name: "sharness-watch", uid: s.User.UID, gid: s.User.GID, groups: s.User.Groups,
		control: theirs, events: end, extra: []*os.File{root, setW, quarantine},
		config: protect.Config{Root: s.Workspace.Name(), Home: s.User.Home, Protect: m.Workspace.Protect, Extra: m.Workspace.ProtectExtra,
			Started: time.Now(), LandlockABI: s.helperLandlockABI(), Seccomp: progs}})
	setW.Close()
	theirs.Close()
	if err != nil {
		return nil, err
	}
	if err := w.readSet(setR, s.Workspace); err != nil {
		return nil, err
	}
	for _, n := range w.set.Notes {
		events.Send(event.Event{Type: event.LayerOpen, Door: "file-git", Layer: protect.Layer, Detail: n})
	}
	ready := make(chan error, 1)
	go w.serve(ready, onHint, onReplaced)
	select {
	case err := <-ready:
		if err != nil {
			return nil, err
		}
	case <-time.After(watcherTime):
		return nil, fmt.Errorf("protected paths: sharness-watch was not ready after %s", watcherTime)
	}
	ok = true
	return w, nil
}

// openDir opens a folder for reading that is held by an O_PATH descriptor.
func openDir(at *os.File) (*os.File, error) {
	fd, err := unix.Openat(int(at.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", at.Name(), err)
	}
	return os.NewFile(uintptr(fd), at.Name()), nil
}

// readSet reads what the watcher found. It read the user's files; what it says is checked for shape (protect.Decode),
// and against the tree, before a mount is made by it.
func (w *watcher) readSet(r *os.File, workspace *os.File) error {
	if err := r.SetReadDeadline(time.Now().Add(watcherTime)); err != nil {
		return err
	}
	data, err := readAtMost(r, protect.MaxSetBytes)
	if err != nil {
		return fmt.Errorf("protected paths: %w", err)
	}
	if len(data) == 0 {
		<-w.proc.ended
		return refusef("protected paths of %s: sharness-watch ended (%s)%s", workspace.Name(), describe(w.proc.how), w.proc.words.suffix())
	}
	if w.set, err = protect.Decode(bytes.NewReader(data)); err != nil {
		return err
	}
	root, err := openDir(workspace)
	if err != nil {
		return err
	}
	defer root.Close()
	return protect.Verify(int(root.Fd()), w.set)
}

// serve reads the watcher's records until it is gone.
func (w *watcher) serve(ready chan<- error, onHint func(uint64), onReplaced func(int)) {
	for {
		rec, err := protect.Receive(w.control)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("protected paths: sharness-watch ended early")
			}
			select {
			case ready <- err:
			default:
			}
			close(w.swept)
			return
		}
		switch rec.Type {
		case protect.Ready:
			ready <- nil
		case protect.Swept:
			w.swept <- rec
		case protect.Hint:
			onHint(rec.A)
		case protect.Replaced:
			if rec.A < uint64(len(w.set.Existing)) {
				onReplaced(int(rec.A))
			}
		}
	}
}

// finish sweeps once more, now that nothing of the session can make a protected name, and ends the watcher.
func (w *watcher) finish() error {
	defer w.stop()
	if w.set == nil || w.proc == nil {
		return nil
	}
	if err := (protect.Record{Type: protect.Sweep}).Send(w.control); err != nil {
		return fmt.Errorf("protected paths: last sweep: %w", err)
	}
	select {
	case rec, ok := <-w.swept:
		if !ok {
			return errors.New("protected paths: last sweep: sharness-watch is gone; look for protected names in the workspace yourself")
		}
		if rec.C > 0 {
			return fmt.Errorf("protected paths: %d names could not be taken away; the events say which", rec.C)
		}
	case <-time.After(watcherTime):
		return fmt.Errorf("protected paths: last sweep was not done after %s", watcherTime)
	}
	return nil
}

func (w *watcher) stop() {
	if w.control != nil {
		_ = unix.Shutdown(int(w.control.Fd()), unix.SHUT_RDWR)
	}
	if w.proc != nil {
		w.proc.finish(2 * time.Second)
	}
	if w.control != nil {
		w.control.Close()
	}
	os.Remove(w.dir) // stays when something lies in it
}

// rebind protects an entry again in a running view: somebody outside replaced the file (git config in the user's own
// terminal renames a new one into place), and the kernel took the mount away with the old one (rename(2)).
//
// It works on a thread of its own that ends afterwards: one that has entered another mount namespace cannot serve here.
func rebind(pid int, workspace string, m protect.Mount) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- func() error {
			ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
			if err != nil {
				return err
			}
			defer ns.Close()
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return fmt.Errorf("unshare: %w", err)
			}
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("enter mount namespace: %w", err)
			}
			root, err := unix.Open(workspace, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(root)
			_, err = protect.Attach(root, []protect.Mount{m})
			return err
		}()
	}()
	return <-done
}
