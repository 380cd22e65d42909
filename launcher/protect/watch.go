package protect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// Config is what the supervisor tells the watcher.
type Config struct {
	Root    string           `json:"root"` // absolute path of the workspace, resolved
	Home    string           `json:"home,omitempty"`
	Protect manifest.Protect `json:"protect,omitempty"`
	Extra   []string         `json:"extra,omitempty"`
	Started time.Time        `json:"started"` // what is older was there before the session (Begin); zero for the session's first watcher, which says it
	Mode    uint32           `json:"mode"`    // of the workspace then (st_mode), which the last sweep restores; 0: as it is now

	// Quarantine is the path of the folder for what is taken away, as events tell it.
	Quarantine string `json:"quarantine,omitempty"`

	// Known is what the first watcher of the session found (Set.Encode); nil for that one. A watcher that replaces a dead
	// one must not look anew: what appeared meanwhile would be taken for the user's own.
	Known json.RawMessage `json:"known,omitempty"`

	// Mounts are the mount points below Root when the session began, the lowest of several only.
	Mounts [][]byte `json:"mounts,omitempty"`

	// Before is the repositories that earlier sessions found (Set.Encode); nil: none.
	Before json.RawMessage `json:"before,omitempty"`

	Around []Around `json:"around,omitempty"`

	LandlockABI int      `json:"landlock_abi"` // what the plan chose
	Seccomp     [][]byte `json:"seccomp"`      // filter.Compile of a helper
}

// MaxConfigBytes bounds an encoded configuration.
const MaxConfigBytes = 1<<20 + 2*MaxSetBytes

// ReadConfig reads a configuration, strictly.
func ReadConfig(r io.Reader) (Config, error) {
	var c Config
	dec := json.NewDecoder(io.LimitReader(r, MaxConfigBytes))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return c, fmt.Errorf("watcher configuration: %w", err)
	}
	return c, nil
}

// Options are what Discover needs of the configuration.
func (c Config) Options() (Options, error) {
	opts := Options{Root: c.Root, Home: c.Home, Protect: c.Protect, Extra: c.Extra, Around: c.Around}
	for _, rel := range c.Mounts {
		opts.Mounts = append(opts.Mounts, string(rel))
	}
	if c.Before == nil {
		return opts, nil
	}
	before, err := Decode(bytes.NewReader(c.Before))
	if err != nil {
		return opts, fmt.Errorf("earlier sessions: %w", err)
	}
	opts.Before = before.Repos
	return opts, nil
}

// Watcher takes protected names away that appear during a session. It is one thread that polls two descriptors.
type Watcher struct {
	tree
	cfg     Config
	q       quarantine
	control *os.File
	held    [2]*os.File // whose numbers tree and q use; a collected File would close them
	emit    func(event.Event)
	notify  inotify

	absent   map[string]bool     // protected names that do not exist
	above    map[string]bool     // directories, there or not, on the way to one
	existing map[string]int      // index in Set.Existing
	gitDirs  map[string]bool     // whose configuration and hooks are protected
	whole    map[string]bool     // those of them that git took for git directories at the start
	like     map[string]bool     // others that git may take for some
	hooks    []string            // relative core.hooksPath of the user's repositories
	tops     map[string]bool     // top directories of the repositories that were there at the start, with all that .git leads to
	followed map[string]bool     // git directories that a file of git's led to
	repos    map[string]bool     // top directories of known repositories
	folders  map[string]identity // those at the start; nil in a later watcher of the session, which goes by ctime alone
	linked   []Linked            // protected files that had another name at the start
	pinned   map[string]identity // what was read-only in every view, as it was at the start
	known    []Repo              // those that were there at the start
	shares   map[string][]string // by git directory, the tops of its worktrees among them
	compared int
	deadline time.Time // of the walk
	configs  configs
	indexes  indexes
	modes    map[string]uint32 // at the start, of the folders that are guarded; nil in a later watcher of the session
	acls     map[string]bool   // as modes: the workspace, and those of the folders that have access control lists
	taken    uint64
	created  uint64
	failed   uint64
	times    map[string]uint64    // how often a name was taken
	hinted   map[string]time.Time // by git directory, the last hint to the supervisor
	missed   int                  // directories that could not be watched
}

// NewWatcher prepares a watcher for a set that Discover just made. The descriptors stay the caller's; quarantine is an
// empty directory of the user outside the workspace.
func NewWatcher(root, quarantineDir, control *os.File, cfg Config, set *Set, emit func(event.Event)) *Watcher {
	w := &Watcher{tree: tree{int(root.Fd()), func(string) {}}, cfg: cfg, q: quarantine{fd: int(quarantineDir.Fd())}, control: control, emit: emit,
		held:   [2]*os.File{root, quarantineDir},
		absent: map[string]bool{}, above: map[string]bool{"": true}, existing: map[string]int{}, gitDirs: map[string]bool{},
		whole: map[string]bool{}, like: map[string]bool{}, hooks: set.Hooks, pinned: map[string]identity{}, tops: map[string]bool{}, followed: map[string]bool{}, repos: map[string]bool{}, linked: set.Linked,
		folders: set.folders, known: set.Repos, shares: map[string][]string{}, configs: configs{}, times: map[string]uint64{}, hinted: map[string]time.Time{}}
	var st unix.Stat_t
	if cfg.Mode == 0 && unix.Fstat(w.root, &st) == nil {
		w.cfg.Mode = st.Mode
	}
	if cfg.Known != nil {
		w.q.resume(quarantineDir)
	}
	there := map[string]bool{}
	for i, e := range set.Existing {
		there[e.Rel] = true
		if e.Mode == ReadOnly {
			w.existing[e.Rel] = i
			w.above[parent(e.Rel)] = true
			// Of a later watcher, what is older than the session only.
			if st, err := w.lstat(e.Rel); err == nil && (cfg.Known == nil || !w.isNew(st)) {
				w.pinned[e.Rel] = identity{st.Dev, st.Ino}
			}
		}
	}
	for _, g := range set.GitDirs {
		w.gitDirs[g.Rel] = true
		w.whole[g.Rel] = !g.Partial
	}
	for _, rel := range set.Absent {
		w.absent[rel] = true
		for dir := parent(rel); dir != ""; dir = parent(dir) {
			w.above[dir] = true
		}
	}
	for _, r := range set.Repos {
		w.repos[r.Rel] = true
		// A bare repository has none, and where one leads out of the workspace, or to nothing yet, is not protected.
		w.tops[r.Rel] = w.tops[r.Rel] || !r.Outside && there[path.Join(r.Rel, ".git")]
	}
	if cfg.Known == nil {
		w.rememberModes()
	}
	return w
}

// Run watches until the supervisor closes the control socket, which is no error. Names that appeared since Discover
// looked are taken before Ready is sent.
func (w *Watcher) Run() error {
	var err error
	if w.notify, err = newInotify(); err != nil {
		return err
	}
	defer w.notify.close()
	w.everything()
	started := w.cfg.Started
	if err := (Record{Ready, uint64(w.missed), uint64(started.Unix()), uint64(started.Nanosecond())}).Send(w.control); err != nil {
		return err
	}
	fds := []unix.PollFd{{Fd: int32(w.notify.fd), Events: unix.POLLIN}, {Fd: int32(w.control.Fd()), Events: unix.POLLIN}}
	for {
		timeout := -1
		if w.missed > 0 {
			timeout = 250 // milliseconds: names in directories without a watch
		}
		if len(w.q.pending) > 0 {
			timeout = 250
			w.q.settle(time.Now().Add(-copyAfter))
		}
		n, err := unix.Poll(fds, timeout)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("watcher: poll: %w", err)
		}
		if n == 0 && w.missed > 0 {
			w.everything()
		}
		if fds[0].Revents != 0 {
			if err := w.events(); err != nil {
				return err
			}
		}
		if fds[1].Revents == 0 {
			continue
		}
		rec, err := Receive(w.control)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if rec.Type != Sweep {
			return fmt.Errorf("watcher control: record %d is not for us", rec.Type)
		}
		w.sweep()
		if err := (Record{Swept, w.taken, w.created, w.failed}).Send(w.control); err != nil {
			return err
		}
	}
}

// everything looks at each protected name once, setting watches on the way. It is the start, the answer to a lost
// event, and the first half of the sweep.
func (w *Watcher) everything() {
	w.missed = 0
	for dir := range w.above {
		w.watch(dir)
	}
	for dir := range w.gitDirs {
		w.watch(dir)
		w.links(dir)
	}
	for rel := range w.absent {
		w.check(rel)
	}
}

// watch sets a watch on a directory if there is one; a link in its place is not followed.
func (w *Watcher) watch(dir string) {
	fd, err := w.open(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	err = w.notify.add(fd, dir)
	if err == unix.EACCES && w.tree.unlock(dir, 0o500, w.unlocked) { // a watch takes the right to read
		err = w.notify.add(fd, dir)
	}
	if err != nil {
		if w.missed++; w.times["watch "+err.Error()] == 0 {
			w.times["watch "+err.Error()]++
			w.emit(event.Event{Type: event.LayerOpen, Door: doorConfig, Layer: Layer, Target: w.target(dir),
				Detail: fmt.Sprintf("protected names are polled four times a second instead of watched: inotify_add_watch: %v", err),
				Hint:   &event.Hint{Person: "raise fs.inotify.max_user_watches"}})
		}
	}
}

func (w *Watcher) events() error {
	list, lost, err := w.notify.read()
	if err != nil {
		return err
	}
	for _, e := range list {
		w.look(e.dir, e.name, e.mask)
	}
	if lost {
		w.everything()
	}
	return nil
}

// look handles one change of one name.
func (w *Watcher) look(dir, name string, mask uint32) {
	rel := path.Join(dir, name)
	appeared := mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0
	if w.absent[rel] {
		w.check(rel)
		return
	}
	if i, ok := w.existing[rel]; ok {
		w.replaced(rel, i)
	}
	if !appeared {
		if w.gitDirs[dir] && name == "config.lock" && mask&unix.IN_DELETE != 0 {
			w.configRefused(dir)
		}
		return
	}
	if w.above[rel] {
		w.enter(rel)
	}
	if w.gitDirs[dir] {
		w.takeLink(dir, rel, false)
	}
	if name == ".git" {
		w.repository(dir, rel)
	}
}

// enter is called when something appeared where a directory on the way to a protected name would be.
func (w *Watcher) enter(rel string) {
	w.watch(rel)
	for name := range w.absent {
		if strings.HasPrefix(name, rel+"/") {
			w.check(name)
		}
	}
	for dir := range w.above {
		if strings.HasPrefix(dir, rel+"/") {
			w.watch(dir)
		}
	}
}

// check takes rel away if it is there. A link on the way to it would make it be found elsewhere, so the link is taken.
func (w *Watcher) check(rel string) {
	parts := strings.Split(rel, "/")
	for i := 1; i < len(parts); i++ {
		on := strings.Join(parts[:i], "/")
		st, err := w.lstat(on)
		switch {
		case err != nil:
			w.notThere(on, err, w.door(rel))
			return
		case kindOf(st.Mode) == Link:
			w.take(on, w.door(rel))
			return
		case kindOf(st.Mode) != Dir:
			if on == jjRepo { // a file there is the path of the repository, whose config.toml Jujutsu reads
				w.take(on, w.door(rel))
			}
			return
		}
	}
	if _, err := w.lstat(rel); err != nil {
		w.notThere(rel, err, w.door(rel))
		return
	}
	w.take(rel, w.door(rel))
}

// notThere tells a name that does not exist from one that could not be looked at, which may well be there.
func (w *Watcher) notThere(rel string, err error, door string) {
	switch err {
	case unix.ENOENT, unix.ENOTDIR, unix.EXDEV: // EXDEV: another mount, which no view has
		return
	}
	w.failed++
	w.report(event.Event{Type: event.LayerOpen, Door: door, Layer: Layer, Target: w.target(rel),
		Detail: fmt.Sprintf("it is not known whether a protected name is there: %v", err),
		Hint:   &event.Hint{Person: "look at it before you use a tool in this folder"}}, "unknown "+rel)
}

// unlock gives the owner back the rights on the directories above rel, and the root.
func (w *Watcher) unlock(rel string) {
	w.tree.unlock(parent(rel), 0o700, func(string) {}) // the use that follows fails if this did
}
