package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/launcher"
	"github.com/sharness/sharness/launcher/pin"
	"github.com/sharness/sharness/manifest"
	"github.com/spf13/cobra"
)

// newFlags are what manifest new is asked for.
type newFlags struct {
	file, name, profile, state, path string
	route                            []string
	force, setid                     bool
}

func newManifestNewCmd() *cobra.Command {
	var f newFlags
	cmd := &cobra.Command{
		Use:     "new [flags] -- CMD [ARG…]",
		Short:   "Make a manifest for a program, pinning it and what it needs to start",
		Example: "  sudo sharness manifest new -- claude\n  sudo sharness manifest new --name bot --profile plain --route /bin/sh -- \"$(command -v bot)\"",
		Args:    named,
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	manifestFlag(cmd, &f.file)
	cmd.Flags().StringVar(&f.name, "name", "", "`NAME` of the manifest (default: the last part of CMD)")
	cmd.Flags().StringVar(&f.profile, "profile", "", "begin with this `PROFILE`: "+strings.Join(manifest.Profiles(), ", ")+" (default: the one named like the manifest, else plain)")
	completeWords(cmd, "profile", manifest.Profiles)
	cmd.Flags().StringVar(&f.state, "state", "", "the agent's own `FOLDER` (default: /var/lib/sharness/NAME)")
	cmd.Flags().StringArrayVar(&f.route, "route", nil, "`PATH` that is the bash-server's client inside (may be repeated)")
	cmd.Flags().StringVar(&f.path, "path", "", "`LIST` of folders to look CMD up in, instead of PATH and the user's usual ones")
	cmd.Flags().BoolVar(&f.force, "force", false, "replace a manifest that is there")
	cmd.Flags().BoolVar(&f.setid, "setid", false, "pin files with set-uid, set-gid or capabilities, which have no effect inside")
	return cmd
}

func (f *newFlags) run(cmd *cobra.Command, args []string) error {
	if f.name == "" {
		f.name = strings.ToLower(filepath.Base(args[0]))
	}
	if f.file == "" {
		f.file = f.name
	}
	file, err := manifestPath(f.file)
	if err != nil {
		return err
	}
	profile, err := f.fragment()
	if err != nil {
		return refuse("%w", err)
	}
	options := pin.Options{Path: userPath(f.path), Privileged: f.setid}
	closure, err := resolveNative(options, args[0], profile.Native)
	if errors.Is(err, pin.ErrNotFound) {
		return &exitError{127, fmt.Errorf("%w; name the file: sudo sharness manifest new --profile %s -- \"$(command -v %s)\"", err, f.profile, pin.Quote(args[0]))}
	}
	if missing := new(fs.PathError); errors.As(err, &missing) && errors.Is(err, fs.ErrNotExist) && missing.Path == args[0] {
		return &exitError{127, fmt.Errorf("command %s: %w", args[0], missing.Err)}
	}
	if err != nil {
		return refuse("%w", err)
	}
	if err := options.Extensions(closure); err != nil {
		return refuse("%w", err)
	}
	want := f.fill(profile, closure, args)
	if f.state == "" && slices.Contains(ownNames, f.name) {
		return refuse("%s: sharness keeps files of its own there; choose another --name or --state", want.State.Path)
	}
	// Said before anything is unpacked, and not only where the manifest takes its place.
	if _, err := os.Lstat(file); err == nil && !f.force {
		return taken(file)
	}
	warnings, err := unpack(want, profile.Embedded, options, closure.Program)
	if err != nil {
		return refuse("%w", err)
	}
	d, err := profile.Document(file, want)
	if err != nil {
		return refuse("%s: %w", file, err)
	}
	for _, path := range paths(want) {
		if err := pin.CheckOwner(path, want.State.Path); err != nil {
			return refuse("%w", err)
		}
	}
	if err := f.write(file, d.Bytes()); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "wrote %s: profile %s, %s, %s, %s\n", file, want.Profile,
		count(len(want.Exec), "program", "programs"), count(len(want.Libraries), "library", "libraries"), count(len(want.Route), "route", "routes"))
	for _, w := range append(closure.Warnings, warnings...) {
		fmt.Fprintf(out, "warning: %s\n", event.Escape(w))
	}
	for _, route := range want.Route {
		if text := absentRoute(route); text != "" {
			fmt.Fprintf(out, "notice: %s\n", text)
		}
	}
	if len(want.Route) == 0 {
		fmt.Fprintf(out, "notice: nothing is routed: a shell that the agent starts by its path is refused; to let it run in the sandbox: sudo sharness manifest allow -m %s%s; to find out what it starts: sudo sharness learn -m %[1]s -- %[3]s\n",
			pin.Quote(f.file), shellRoutes(), pin.Quote(args[0]))
	}
	if want.Workspace.Orchestrator != manifest.AccessWrite {
		fmt.Fprintf(out, "notice: the agent itself may only read the workspace, its commands write; to let it write: sudo sharness manifest allow -m %s --workspace write\n", pin.Quote(f.file))
	}
	if here := inFolder(want); here != "" {
		fmt.Fprintf(out, "notice: %s lies in this folder, and is refused where that is the workspace: a session could write it; start it with --workspace DIR, or install it elsewhere\n", here)
	}
	next := "sudo sharness enforce"
	if file != filepath.Join(manifestDir, filepath.Base(args[0])+".yaml") {
		next += " -m " + manifestArg(file)
	}
	if os.Geteuid() != 0 { // a session takes a manifest from root alone
		to := filepath.Join(manifestDir, filepath.Base(file))
		next = fmt.Sprintf("sudo install -D -m 644 %s %s && sudo sharness enforce -m %s", pin.Quote(file), to, manifestArg(to))
	}
	fmt.Fprintf(out, "next: %s -- %s\n", next, pin.Quote(args[0]))
	return nil
}

// absentRoute says what a route to nothing does.
func absentRoute(route string) string {
	if _, err := os.Stat(route); errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf("route %s: not on this host; sessions that start after it is installed have the client there", route)
	}
	return ""
}

// shellRoutes are the flags that route the shells that agents start: some start sh, and some bash.
func shellRoutes() (flags string) {
	for _, shell := range []string{"/bin/sh", "/bin/bash"} {
		if absentRoute(shell) == "" {
			flags += " --route " + shell
		}
	}
	return flags
}

// inFolder is a pinned file that a session in the current folder would refuse, if one can be there.
func inFolder(m *manifest.Manifest) string {
	dir, err := os.Getwd()
	if err != nil || dir == userHome() || launcher.CheckFolder(dir) != nil {
		return ""
	}
	for _, path := range paths(m) {
		if pin.CheckOwner(path, dir) != nil {
			return path
		}
	}
	return ""
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

func (f *newFlags) fragment() (*manifest.Fragment, error) {
	if f.profile == "" {
		f.profile = "plain"
		if slices.Contains(manifest.Profiles(), f.name) {
			f.profile = f.name
		}
	}
	return manifest.Profile(f.profile)
}

// resolveNative pins the native program of a package whose command only starts it, if the profile knows where it lies.
// The command is a script, or a text that is no program at all: what a package leaves there whose own scripts were to put
// the program in its place and did not run.
func resolveNative(o pin.Options, cmd string, native []string) (*pin.Closure, error) {
	c, err := o.Resolve(cmd)
	stub := errors.Is(err, syscall.ENOEXEC)
	if len(native) == 0 || err != nil && !stub || err == nil && !script(c) {
		return c, err
	}
	found, lookErr := pin.LookPath(cmd, o.Path)
	if lookErr != nil {
		return nil, lookErr
	}
	command, lookErr := filepath.EvalSymlinks(found)
	if lookErr != nil {
		return nil, lookErr
	}
	program, lookErr := pin.Native(command, native)
	if lookErr != nil {
		return nil, lookErr
	}
	switch {
	case program != "":
		return o.Resolve(program)
	case stub:
		return nil, fmt.Errorf("%w, and no program lies where the profile expects the one that belongs there", err)
	}
	c.Warnings = append(c.Warnings, fmt.Sprintf("%s is a script, and no program lies where the profile expects the one it starts: the script is pinned", c.Program))
	return c, nil
}

func script(c *pin.Closure) bool {
	return slices.ContainsFunc(c.Exec, func(e manifest.Exec) bool { return e.Path == c.Program && e.Role == manifest.RoleScript })
}

// fill makes a manifest of what the profile says and what this host has.
func (f *newFlags) fill(p *manifest.Fragment, c *pin.Closure, args []string) *manifest.Manifest {
	m := p.Manifest.Clone()
	m.Version, m.Name, m.Profile = manifest.Version, f.name, f.profile
	m.Exec, m.Libraries = c.Exec, c.Libraries
	for _, route := range f.route {
		if !slices.Contains(m.Route, route) {
			m.Route = append(m.Route, route)
		}
	}
	if m.State == nil {
		m.State = new(manifest.State)
	}
	switch {
	case f.state != "":
		m.State.Path = f.state
	case m.State.Path == "":
		m.State.Path = "/var/lib/sharness/" + f.name
	}
	visible := func(path string) bool {
		return slices.ContainsFunc(m.Read, func(dir string) bool { return pin.Below(path, dir) })
	}
	for _, dir := range needed(c) {
		if !visible(dir) {
			m.Read = append(m.Read, dir)
		}
	}
	// The name a person typed tells a many-in-one program which it is, and Python where its packages are. It can be
	// kept if every symlink on the way is there inside as well.
	m.Command = append([]string{c.Program}, args[1:]...)
	if way := c.Way[:len(c.Way)-1]; len(way) > 0 && !slices.ContainsFunc(way, func(link string) bool { return !visible(link) }) {
		m.Command[0] = c.Way[0]
	}
	return m
}

// needed are folders that have to be visible beside the pinned files: those of symlinks the loader follows, and the one
// with the rest of a script's package.
func needed(c *pin.Closure) []string {
	var dirs []string
	for _, link := range c.Links {
		dirs = append(dirs, filepath.Dir(link))
	}
	for _, e := range c.Exec {
		if e.Role != manifest.RoleScript {
			continue
		}
		dir := filepath.Dir(e.Path)
		if before, _, ok := strings.Cut(e.Path, "/node_modules/"); ok {
			dir = before + "/node_modules"
		}
		dirs = append(dirs, dir)
	}
	// A home folder, or one at the top, would show far more than a package. The pinned file itself is visible anyway.
	return slices.DeleteFunc(dirs, func(dir string) bool {
		return dir == userHome() || strings.Count(dir, "/") < 2
	})
}

func paths(m *manifest.Manifest) []string {
	var all []string
	for _, e := range m.Exec {
		all = append(all, e.Path)
	}
	for _, f := range m.Libraries {
		all = append(all, f.Path)
	}
	return all
}

func (f *newFlags) write(file string, data []byte) error {
	dir := filepath.Dir(file)
	if dir == manifestDir {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return unwritten(fmt.Errorf("make the folder for manifests: %w", err))
		}
	}
	if os.Geteuid() == 0 {
		// Said now rather than by enforce: there it would be refused.
		if err := pin.CheckManifest(dir); err != nil {
			return refuse("%w", err)
		}
	}
	place := createFile
	if f.force {
		place = replaceFile
	}
	err := place(file, data)
	if errors.Is(err, fs.ErrExist) {
		return taken(file)
	}
	if err != nil {
		return unwritten(err)
	}
	return nil
}

// unwritten says what to do about a file that only root may write.
func unwritten(err error) error {
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		return refuse("%w; run it with sudo, or write a file of your own with -m ./NAME.yaml", err)
	}
	return &exitError{125, err}
}

func taken(file string) error {
	return refuse("%s is there already: change it with sudo sharness manifest pin or allow, or replace it with --force", file)
}

// userPath is where commands are looked up: in the list given, else in PATH and then where the person who called sudo
// keeps programs.
func userPath(given string) string {
	if given != "" {
		return given
	}
	return pin.UserPath(os.Getenv("PATH"), userHome())
}

// userHome is the home folder of the person who called sudo, or of the caller. Empty if there is none.
func userHome() string {
	id := os.Getenv("SUDO_UID")
	if id == "" || os.Geteuid() != 0 {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		return home
	}
	u, err := user.LookupId(id)
	if err != nil {
		return ""
	}
	return u.HomeDir
}
