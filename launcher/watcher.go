package launcher

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/launcher/filter"
	"github.com/sharness/sharness/launcher/protect"
	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// watcher is sharness-watch: it runs with the user's ids, finds what must be protected, and takes away what appears. It
// is started again when it dies, with the set that the first one found.
type watcher struct {
	sp         *spawner
	s          *Session
	events     *sink.Sender
	end        *os.File // of its own events
	onHint     func(uint64)
	onReplaced func(int)

	set    *protect.Set
	last   protect.Record // of the last sweep
	states []string       // of the files behind set.Existing, to see what was replaced while nobody looked
	quarantine
	started time.Time // as the first process said, by the clock of the workspace's file system
	mode    uint32    // of the workspace when the session started
	record  *record
	before  []byte // what earlier sessions found, encoded
	keeper  *keeper

	mu  sync.Mutex
	now *watching
}

// watching is one process.
type watching struct {
	proc    *helperProcess
	control *os.File
	ready   chan error
	swept   chan protect.Record // closed when the process is gone
}

// watcherTime bounds the search of a workspace, and the sweep at the end.
const watcherTime = 60 * time.Second

// startWatcher returns when the set is known and watched. lost is told when the watcher cannot be kept.
// goOn gives an error once somebody wants the start to end.
func startWatcher(sp *spawner, s *Session, events *sink.Sender, end *os.File, onHint func(uint64), onReplaced func(int), lost func(error), goOn func() error) (*watcher, error) {
	w := &watcher{sp: sp, s: s, events: events, end: end, onHint: onHint, onReplaced: onReplaced}
	if err := w.makeFolders(goOn); err != nil {
		return nil, err
	}
	if err := w.remember(); err != nil {
		return nil, errors.Join(err, w.stop())
	}
	var err error
	if w.keeper, err = keep("sharness-watch", events, w.start, lost); err != nil {
		return nil, errors.Join(err, w.stop())
	}
	// With protect: none nothing was looked for, so nothing is known that was not before.
	if s.Manifest.Workspace.Protect != manifest.ProtectNone {
		if err := w.keepRecord(goOn); err != nil {
			return nil, errors.Join(err, w.stop())
		}
	}
	for _, n := range w.set.Notes {
		events.Send(event.Event{Type: event.LayerOpen, Door: "file-git", Layer: protect.Layer, Detail: n})
	}
	for _, rel := range w.set.Sockets {
		events.Send(event.Event{Type: event.LayerApplied, Door: "unix-path", Layer: protect.Layer,
			Detail: event.Escape(rel) + ": a socket that lay in the workspace at the start: covered for the session, which can neither connect to it nor remove it"})
	}
	return w, nil
}

// makeFolders holds the host's lock: a session that ends removes the folders above when they are empty.
func (w *watcher) makeFolders(goOn func() error) error {
	unlock, err := lockHost(goOn)
	if err != nil {
		return err
	}
	defer unlock()
	if w.quarantine, err = makeQuarantine(filepath.Join(quarantineRoot, w.s.ID), w.s.User); err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}
	if w.record, err = openRecord(protectedRoot, w.s.Workspace); err != nil {
		return errors.Join(err, w.quarantine.close())
	}
	return nil
}

func (w *watcher) keepRecord(goOn func() error) error {
	unlock, err := lockHost(goOn)
	if err != nil {
		return err
	}
	defer unlock()
	return w.record.write(w.set)
}

// remember reads what must be known of the workspace before anybody changes it.
func (w *watcher) remember() error {
	var st unix.Stat_t
	if err := unix.Fstat(int(w.s.Workspace.Fd()), &st); err != nil {
		return fmt.Errorf("fstat workspace: %w", err)
	}
	w.mode = st.Mode
	set, err := w.record.read()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	err = set.Encode(&b)
	w.before = b.Bytes()
	return err
}

// start starts one process and waits until it watches.
func (w *watcher) start() (*helperProcess, error) {
	quarantine, err := os.Open(w.kept)
	if err != nil {
		return nil, fmt.Errorf("quarantine: %w", err)
	}
	defer quarantine.Close()
	root, err := openDir(w.s.Workspace)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	config, err := w.config()
	if err != nil {
		return nil, err
	}
	control, theirs, err := socketpair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	setR, setW, err := os.Pipe()
	if err != nil {
		control.Close()
		return nil, err
	}
	defer setR.Close()
	u := w.s.User
	proc, err := w.sp.startHelper(helperSpec{name: "sharness-watch", uid: u.UID, gid: u.GID, groups: u.Groups,
		control: theirs, events: w.end, extra: []*os.File{root, setW, quarantine}, config: config})
	setW.Close()
	theirs.Close()
	if err != nil {
		control.Close()
		return nil, err
	}
	p := &watching{proc: proc, control: control, ready: make(chan error, 1), swept: make(chan protect.Record, 1)}
	if err := w.follow(p, setR); err != nil {
		proc.kill()
		control.Close()
		return nil, err
	}
	return proc, nil
}

func (w *watcher) config() (protect.Config, error) {
	progs, err := helperFilter(filter.Options{Files: true, Change: true})
	if err != nil {
		return protect.Config{}, err
	}
	m := w.s.Manifest
	c := protect.Config{Root: w.s.Workspace.Name(), Home: w.s.User.Home, Protect: m.Workspace.Protect, Extra: m.Workspace.ProtectExtra,
		Started: w.started, Quarantine: w.kept, Mode: w.mode, Before: w.before, LandlockABI: w.s.helperLandlockABI(), Seccomp: progs}
	if w.set == nil {
		if c.Mounts, err = mountsBelow(c.Root); err != nil {
			return c, err
		}
		c.Around, err = w.s.around()
		return c, err
	}
	var known bytes.Buffer
	err = w.set.Encode(&known)
	c.Known = known.Bytes()
	return c, err
}

// follow takes a process on: the first one says what it found, a later one is told.
func (w *watcher) follow(p *watching, setR *os.File) error {
	first := w.set == nil
	if first {
		if err := w.readSet(p, setR); err != nil {
			return err
		}
	}
	go w.serve(p)
	select {
	case err := <-p.ready:
		if err != nil {
			return err
		}
	case <-time.After(watcherTime):
		return fmt.Errorf("protected paths: sharness-watch was not ready after %s", watcherTime)
	}
	w.mu.Lock()
	if w.now != nil {
		w.now.control.Close()
	}
	w.now = p
	w.mu.Unlock()
	states, err := w.look()
	if err != nil {
		return err
	}
	if !first {
		w.events.Send(event.Event{Type: event.LayerOpen, Door: "file-git", Layer: "sharness-watch",
			Detail: "sharness-watch ended: protected names that appeared were not taken away until another one had started"})
	}
	for i := range w.states {
		if states[i] != w.states[i] {
			w.onReplaced(i)
		}
	}
	w.states = states
	return nil
}

// look tells the files behind set.Existing from others that took their names.
func (w *watcher) look() ([]string, error) {
	root, err := openDir(w.s.Workspace)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	states := make([]string, len(w.set.Existing))
	for i, e := range w.set.Existing {
		// With O_PATH and O_NOFOLLOW a link at the end is opened itself (openat2(2)).
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
		fd, err := unix.Openat2(int(root.Fd()), e.Rel, &how)
		if err != nil {
			continue // nothing is there: what comes next is told by its number
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err == nil {
			states[i] = fmt.Sprint(st.Dev, st.Ino)
		}
		unix.Close(fd)
	}
	return states, nil
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
func (w *watcher) readSet(p *watching, r *os.File) error {
	workspace := w.s.Workspace
	if err := r.SetReadDeadline(time.Now().Add(watcherTime)); err != nil {
		return err
	}
	data, err := readAtMost(r, protect.MaxSetBytes)
	if err != nil {
		return fmt.Errorf("protected paths: %w", err)
	}
	if len(data) == 0 {
		<-p.proc.ended
		return refusef("protected paths of %s: sharness-watch ended (%s)%s", workspace.Name(), describe(p.proc.how), p.proc.words.suffix())
	}
	set, err := protect.Decode(bytes.NewReader(data))
	if err != nil {
		return err
	}
	root, err := openDir(workspace)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := protect.Verify(int(root.Fd()), set); err != nil {
		return err
	}
	w.set = set
	return nil
}

// serve reads the records of one process until it is gone.
func (w *watcher) serve(p *watching) {
	defer close(p.swept)
	for {
		rec, err := protect.Receive(p.control)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("protected paths: sharness-watch ended early")
			} else {
				p.proc.signal(unix.SIGKILL) // it breaks the protocol; its keeper starts another
			}
			select {
			case p.ready <- err:
			default:
			}
			return
		}
		switch rec.Type {
		case protect.Ready:
			w.started = time.Unix(int64(rec.B), int64(rec.C))
			select {
			case p.ready <- nil:
			default:
			}
		case protect.Swept:
			select {
			case p.swept <- rec:
			default:
			}
		case protect.Hint:
			w.onHint(rec.A)
		case protect.Replaced:
			if rec.A < uint64(len(w.set.Existing)) {
				w.onReplaced(int(rec.A))
			}
		}
	}
}

var errWatcherGone = errors.New("protected paths: last sweep: sharness-watch is gone; look for protected names in the workspace yourself")

// finish sweeps once more, now that nothing of the session can make a protected name, and ends the watcher. One that
// dies over it gets one successor.
func (w *watcher) finish() (err error) {
	defer func() { err = errors.Join(err, w.stop()) }()
	w.keeper.release()
	err = w.sweep()
	if !errors.Is(err, errWatcherGone) {
		return err
	}
	w.keeper.stop()
	if _, err := w.start(); err != nil {
		return errors.Join(errWatcherGone, err)
	}
	return w.sweep()
}

func (w *watcher) sweep() error {
	w.mu.Lock()
	p := w.now
	w.mu.Unlock()
	if err := (protect.Record{Type: protect.Sweep}).Send(p.control); err != nil {
		return fmt.Errorf("%w: %w", errWatcherGone, err)
	}
	select {
	case rec, ok := <-p.swept:
		if !ok {
			return errWatcherGone
		}
		w.last = rec
		if rec.C > 0 {
			return fmt.Errorf("protected paths: %d names could not be taken away; the events say which", rec.C)
		}
	case <-time.After(watcherTime):
		return fmt.Errorf("protected paths: last sweep was not done after %s", watcherTime)
	}
	return nil
}

// summary says at the end what the user would look for otherwise: files that are not where somebody put them. The folder
// is counted and not the records, since a watcher that was started again begins at nothing.
func (w *watcher) summary() (lines []string) {
	if entries, err := os.ReadDir(w.kept); err == nil && len(entries) > 0 {
		lines = append(lines, fmt.Sprintf("protected names were taken out of the workspace (%d in all: %s): %s%s", len(entries), named(entries), w.kept, howToRead(entries)))
	}
	if w.last.B > 0 {
		lines = append(lines, fmt.Sprintf("repositories made during the session: %d; look at their hooks and configuration before git runs there", w.last.B))
	}
	return lines
}

// maxNamed is how many of the names that were taken the summary tells; the folder has the rest.
const maxNamed = 5

// named tells the first names, as sharness-watch wrote them into the quarantine: numbered, printable and short.
func named(entries []os.DirEntry) string {
	var names []string
	for _, e := range entries[:min(len(entries), maxNamed)] {
		_, name, _ := strings.Cut(e.Name(), "-")
		names = append(names, event.Escape(strings.TrimSuffix(name, protect.Packed)))
	}
	if len(entries) > maxNamed {
		names = append(names, event.Cut)
	}
	return strings.Join(names, ", ")
}

// howToRead says it of what is an archive.
func howToRead(entries []os.DirEntry) string {
	if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), protect.Packed) }) {
		return " (read an archive with tar -tvf and tar -xOf)"
	}
	return ""
}

func (w *watcher) stop() error {
	if w.keeper != nil {
		w.keeper.release()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now != nil {
		_ = unix.Shutdown(int(w.now.control.Fd()), unix.SHUT_RDWR)
		w.now.proc.finish(2 * time.Second)
		w.now.control.Close()
	}
	if w.keeper != nil {
		w.keeper.stop()
	}
	return w.quarantine.close()
}

// errNoView says that the pid 1 of a domain is ending. It has left its mount namespace before its parent can reap it
// (do_exit, then a zombie), and what else runs in its pid namespace the kernel kills next (pid_namespaces(7)).
var errNoView = errors.New("the domain is ending")

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
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
				return errNoView
			}
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
