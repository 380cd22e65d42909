package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/agent"
	"github.com/sharness/sharness/agent/learn"
	"github.com/sharness/sharness/launcher"
	"github.com/sharness/sharness/launcher/pin"
	"github.com/sharness/sharness/manifest"
)

// learnFlags are what learn is asked for.
type learnFlags struct {
	sessionFlags
	profile           string
	merge, prune, yes bool
	accept            []string
	ring              string
	network           bool
}

func newLearnCmd() *cobra.Command {
	var f learnFlags
	cmd := &cobra.Command{
		Use:   "learn [-m FILE] [--profile NAME] [--workspace DIR] [--merge [--prune]] [--yes] -- CMD [ARG…]",
		Short: "Run CMD, record what it executes, and propose a manifest",
		Long: `learn runs CMD as enforce does: the same uid, state, paths, routes, endpoints and filters. Only the allowlist is
off: whatever lies in the system's folders may be executed, and is recorded; what the agent or a command can write
may not. From the record it writes FILE.proposed beside the manifest, and shows what that would change.

A proposal is nobody's policy until it is approved: sharness manifest approve, or --yes.

The exit status is CMD's own (128+n for signal n), 125 when sharness failed or the record is not whole, 126 when it
refused to start, or had to leave files out (with --yes that is a warning), 127 when CMD was not found.`,
		Example: "  sudo sharness learn -- claude\n  sudo sharness learn --merge -- claude -p 'run the tests'",
		Args:    named,

		ValidArgsFunction: commandNames,
		RunE:              func(_ *cobra.Command, args []string) error { return f.run(args) },
	}
	f.add(cmd, " (default: the last part of CMD)")
	f.addArgv(cmd)
	cmd.Flags().StringVar(&f.profile, "profile", "", "begin with this `PROFILE`: "+strings.Join(manifest.Profiles(), ", ")+" (default: the one named like the manifest, else plain)")
	completeWords(cmd, "profile", manifest.Profiles)
	cmd.Flags().BoolVar(&f.merge, "merge", false, "keep what the manifest in force allows, and add what this run used")
	cmd.Flags().BoolVar(&f.prune, "prune", false, "with --merge: leave out what no run has used, an interpreter's modules too")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "approve the proposal at once; files that are refused are left out with a warning")
	cmd.Flags().StringArrayVar(&f.accept, "accept", nil, "pin `PATH` although it is set-uid or many programs in one (may be repeated)")
	cmd.Flags().BoolVar(&f.network, "learn-network", false, "let CMD reach every public name, on ports 80 and 443, and propose what it reached: an open gap, and logged as one")
	cmd.Flags().StringVar(&f.ring, "ring", manifest.Size(agent.DefaultRing).String(), "`SIZE` of the memory for records that wait to be read, a power of two; more, if records were lost")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func (f *learnFlags) run(args []string) error {
	switch {
	case args[0] == "":
		return &exitError{127, errors.New("command not found: its name is empty")}
	case os.Geteuid() != 0:
		return refuse("must be root to trace, and to make namespaces, mounts and cgroups; run it with sudo")
	case f.prune && !f.merge:
		return refuse("--prune leaves out what none of several runs used: it goes with --merge")
	}
	ring, err := f.ringSize()
	if err != nil {
		return refuse("%w", err)
	}
	l, err := f.begin(args)
	if err != nil {
		return err
	}
	o := launcher.Options{Manifest: l.start.WithDefaults(), AllowOpen: f.allowOpen, Env: os.Environ(), Notice: notice}
	if o, err = f.place(o, l.file); err != nil {
		return err
	}
	o.Args, o.Stdio = args[1:], [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
	if l.workspace, err = realPath(o.Workspace); err != nil {
		return refuse("workspace: %w", err)
	}
	o.Manifest = l.runs()
	var seen *learn.Observation
	var unread error
	o.Learn = &launcher.Learn{Trees: l.trees(), Ring: ring, Network: f.network, Names: func(r io.Reader) (err error) {
		l.names, err = launcher.ReadNames(r)
		return drained(r, err)
	}, Observe: func(r io.Reader) error {
		seen, unread = learn.Read(r, progress())
		return drained(r, nil)
	}}
	l.began, l.used = time.Now(), &o.Learn.Peaks
	status, err := launcher.Enforce(o)
	if err != nil {
		return asExit(err, l.file)
	}
	if unread != nil || seen == nil {
		return &exitError{125, fmt.Errorf("nothing was learned: %w", cmp.Or(unread, errors.New("the run ended before it was recorded")))}
	}
	return l.finish(seen, status)
}

// drained reads the rest: who writes must not wait for a reader that gave up.
func drained(r io.Reader, err error) error {
	_, rest := io.Copy(io.Discard, r)
	return cmp.Or(err, rest)
}

// ringSize reads --ring.
func (f *learnFlags) ringSize() (uint32, error) {
	size, err := manifest.ParseSize(f.ring)
	if err != nil {
		return 0, fmt.Errorf("--ring: %w", err)
	}
	if size < agent.MinRing || size > agent.MaxRing || size&(size-1) != 0 {
		return 0, fmt.Errorf("--ring %s: want a power of two from %s to %s", size, manifest.Size(agent.MinRing), manifest.Size(agent.MaxRing))
	}
	return uint32(size), nil
}

// progress returns what shows how far it is, where that disturbs nobody: on a terminal that the agent does not draw on.
func progress() func(learn.Progress) {
	if !undisturbed() {
		return nil
	}
	return func(p learn.Progress) {
		fmt.Fprintf(os.Stderr, "\r\x1b[Ksharness: learning: %d images, %d execs, %d mappings, %d lost\r", p.Images, p.Execs, p.Maps, p.Lost)
	}
}

func undisturbed() bool { return isTerminal(2) && !isTerminal(0) && !isTerminal(1) }

func isTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

// learning is one run from its manifest to its proposal.
type learning struct {
	*learnFlags
	file      string
	document  *manifest.Document // of former: its text stays, comments and all
	fragment  *manifest.Fragment // without former: the text that the proposal begins with
	former    *manifest.Manifest // in force; nil: none
	start     *manifest.Manifest // with what the command needs to start
	closure   *pin.Closure
	warnings  []string
	options   pin.Options
	workspace string
	began     time.Time
	used      *launcher.Peaks
	names     []launcher.Name // that were looked up or connected to
}

// begin reads the manifest in force, or renders the profile as manifest new does, and pins what the command needs to
// start now: it may have been updated since.
func (f *learnFlags) begin(args []string) (*learning, error) {
	nf := newFlags{file: f.manifest, name: strings.ToLower(filepath.Base(args[0])), profile: f.profile}
	if nf.file == "" {
		nf.file = nf.name
	}
	file, err := manifestPath(nf.file)
	if err != nil {
		return nil, err
	}
	l := &learning{learnFlags: f, file: file, options: pin.Options{Path: userPath("")}}
	if _, err := os.Lstat(file); errors.Is(err, os.ErrNotExist) {
		return l, l.render(&nf, args[0])
	}
	data, err := pin.ReadManifest(file)
	if err != nil {
		return nil, refuse("manifest %w", err)
	}
	if l.document, err = manifest.ParseDocument(file, data); err != nil {
		return nil, refuse("%w", err)
	}
	l.former = l.document.Manifest()
	return l, l.renew(args[0])
}

// render makes the manifest to begin with from a profile.
func (l *learning) render(nf *newFlags, cmd string) error {
	if nf.name = strings.TrimSuffix(filepath.Base(l.file), filepath.Ext(l.file)); l.manifest == "" {
		nf.name = strings.ToLower(filepath.Base(cmd))
	}
	profile, err := nf.fragment()
	if err != nil {
		return refuse("%w", err)
	}
	if l.closure, err = resolveNative(l.options, cmd, profile.Native); err != nil {
		return notFound(cmd, err)
	}
	l.start = nf.fill(profile, l.closure, []string{cmd})
	if slices.Contains(ownNames, nf.name) {
		return refuse("%s: sharness keeps files of its own there; choose another name with -m", l.start.State.Path)
	}
	if err := prepareFolder(filepath.Dir(l.file)); err != nil {
		return err
	}
	if l.warnings, err = unpack(l.start, profile.Embedded, l.options, l.closure.Program); err != nil {
		return refuse("%w", err)
	}
	if _, err = profile.Document(l.file, l.start); err != nil {
		return refuse("%s: %w", l.file, err)
	}
	l.fragment = profile
	return nil
}

// renew makes it from the manifest in force: what it says, with what the command needs today in the place of what is pinned.
func (l *learning) renew(cmd string) error {
	m := l.former.Clone()
	if l.profile != "" && l.profile != m.Profile {
		return refuse("%s: is of the profile %s, not %s; remove it to begin anew", l.file, m.Profile, l.profile)
	}
	var native []string
	if slices.Contains(manifest.Profiles(), m.Profile) {
		p, err := manifest.Profile(m.Profile)
		if err != nil {
			return refuse("%w", err)
		}
		native = p.Native
	}
	name, moved := m.Command[0], false
	if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) {
		name, moved = cmd, true // by an update
	} else if err := sameCommand(cmd, m); err != nil {
		return err
	}
	var err error
	if l.closure, err = resolveNative(l.options, name, native); err != nil {
		return notFound(name, err)
	}
	if moved {
		m.Command[0] = l.closure.Program
	}
	m.Exec, m.Libraries, m.Learned = l.closure.Exec, l.closure.Libraries, nil
	if !l.prune {
		if err := l.keepExtensions(m); err != nil {
			return refuse("%w", err)
		}
	}
	if l.warnings, err = unpackAgain(m, l.options, []string{l.closure.Program}); err != nil {
		return refuse("%w", err)
	}
	l.start = m
	return l.keepUnpacked()
}

// keepExtensions keeps the modules of an interpreter that manifest new pinned beside it: one run does not import all that the
// next one may, and they are what the interpreter is.
func (l *learning) keepExtensions(m *manifest.Manifest) error {
	all := pin.Closure{Exec: l.closure.Exec, Libraries: slices.Clone(l.closure.Libraries)}
	if err := l.options.Extensions(&all); err != nil {
		return err
	}
	have, pinned := paths(m), paths(l.former)
	for _, f := range all.Libraries {
		if slices.Contains(pinned, f.Path) && !slices.Contains(have, f.Path) {
			m.Libraries = append(m.Libraries, f)
		}
	}
	return nil
}

// keepUnpacked keeps what was taken out of the program as long as the environment still leads to it. The program would not
// say by DT_NEEDED that it wants it.
func (l *learning) keepUnpacked() error {
	for _, old := range l.former.Libraries {
		led := false
		for _, value := range l.start.Env.Set {
			led = led || pin.Below(value, libraryDir) && pin.Below(old.Path, value)
		}
		if _, err := os.Lstat(old.Path); !led || err != nil || slices.Contains(paths(l.start), old.Path) {
			continue
		}
		files, err := l.options.Library(old.Path, l.closure.Program)
		if err != nil {
			return refuse("%w", err)
		}
		for _, f := range files {
			if !slices.Contains(paths(l.start), f.Path) {
				l.start.Libraries = append(l.start.Libraries, f)
			}
		}
	}
	return nil
}

func notFound(cmd string, err error) error {
	if errors.Is(err, pin.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return &exitError{127, fmt.Errorf("command %s: %w", cmd, err)}
	}
	return refuse("%w", err)
}

// prepareFolder makes the folder of manifests, and refuses another that is not root's alone.
func prepareFolder(dir string) error {
	if dir == manifestDir {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return &exitError{125, fmt.Errorf("make the folder for manifests: %w", err)}
		}
	}
	if err := pin.CheckManifest(dir); err != nil {
		return refuse("%w", err)
	}
	return nil
}

// runs is the manifest of the run: what is in force counts as known, as far as it is still there, and every shell and
// interpreter but the command's own is routed, as it will be if it is used.
func (l *learning) runs() *manifest.Manifest {
	m := l.start.Clone()
	if l.former == nil {
		l.reroute(m)
		return room(m.WithDefaults())
	}
	have := paths(m)
	there := func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil && !slices.Contains(have, path)
	}
	for _, e := range l.former.Exec {
		if there(e.Path) {
			m.Exec = append(m.Exec, e)
		}
	}
	have = paths(m)
	for _, f := range l.former.Libraries {
		if there(f.Path) {
			m.Libraries = append(m.Libraries, f)
		}
	}
	l.reroute(m)
	return room(m.WithDefaults())
}

// learnRoom is by how much a run has more of everything that learning raises: with the limits themselves nothing could be seen to
// need more than them.
const learnRoom = 4

// room gives the manifest of a run its room. Memory stays within half of the machine's, unless the manifest gives more.
func room(m *manifest.Manifest) *manifest.Manifest {
	half := manifest.Size(0)
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		half = manifest.Size(info.Totalram * uint64(info.Unit) / 2)
	}
	for _, pids := range []*int{&m.Limits.Pids, &m.Sandbox.Pids, &m.Session.Pids} {
		*pids *= learnRoom
	}
	for _, memory := range []*manifest.Size{&m.Limits.Memory, &m.Sandbox.Memory, &m.Session.Memory} {
		*memory = max(*memory, min(*memory*learnRoom, half))
	}
	if m.Sandbox.Timeout != manifest.TimeoutNone {
		m.Sandbox.Timeout *= learnRoom
	}
	return m
}

// reroute adds the host's shells and interpreters to the routes of a run. Their scripts may lie in what the agent brings along,
// which a sandbox shows then too.
func (l *learning) reroute(m *manifest.Manifest) {
	m.Sandbox.Read = slices.Clone(m.WithDefaults().Sandbox.Read)
	for _, tree := range l.trees() {
		if !slices.ContainsFunc(m.Sandbox.Read, func(have string) bool { return pin.Below(tree, have) }) {
			m.Sandbox.Read = append(m.Sandbox.Read, tree)
		}
	}
	have := paths(m)
	for _, dir := range []string{"/usr/bin", "/usr/local/bin", "/bin"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // not there
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if !learn.Routable(e.Name()) || slices.Contains(have, path) {
				continue
			}
			real, err := filepath.EvalSymlinks(path)
			if err != nil || slices.Contains(have, real) || !program(real) {
				continue
			}
			if len(learn.Routes(m.Route, path)) == 0 {
				m.Route = append(m.Route, path)
			}
		}
	}
}

// program says whether a file could be executed.
func program(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// trees are what may be executed in: the system, and the agent's own installation where that lies elsewhere. A home
// folder, one at the top, or one around the workspace would show far more than a package: then the pinned files must do.
func (l *learning) trees() []string {
	trees := []string{"/usr", "/opt"}
	dirs := needed(l.closure)
	for _, e := range l.closure.Exec {
		dirs = append(dirs, filepath.Dir(e.Path))
	}
	for _, dir := range dirs {
		if !slices.ContainsFunc(trees, func(tree string) bool { return pin.Below(dir, tree) }) && !l.wide(dir) {
			trees = append(trees, dir)
		}
	}
	return trees
}

// wide is true for a folder that shows more than a package.
func (l *learning) wide(dir string) bool {
	around := func(other string) bool { return pin.Below(other, dir) || pin.Below(dir, other) }
	return dir == userHome() || strings.Count(dir, "/") < 2 || around(l.workspace) || l.start.State != nil && around(l.start.State.Path)
}

// beside is the folder around a file that an agent used: what it needs of its package lies there too.
func (l *learning) beside(path string) []string {
	dir := filepath.Dir(path)
	if before, _, ok := strings.Cut(path, "/node_modules/"); ok {
		dir = before + "/node_modules"
	}
	if l.wide(dir) {
		return nil
	}
	return []string{dir}
}

// kernelRelease is the kernel's own name.
func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
