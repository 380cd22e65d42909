package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/launcher/pin"
	"github.com/sharness/sharness/manifest"
	"github.com/spf13/cobra"
)

func newManifestPinCmd() *cobra.Command {
	var file, path string
	var all, setid bool
	cmd := &cobra.Command{
		Use:     "pin -m FILE PATH…",
		Short:   "Accept pinned files as they are now",
		Long:    "Writes the present hash of each PATH into the manifest, and adds what a changed program has come to need.\nLibraries that manifest new took out of the program are taken out of it anew. PATH must be pinned already.",
		Example: "  sudo sharness manifest pin -m claude /usr/bin/claude",
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return refuse("name the files to accept, or --all of them")
			}
			d, file, err := openManifest(file)
			if err != nil {
				return err
			}
			m := d.Manifest()
			if all {
				args = paths(m)
				for _, f := range m.Integrity {
					args = append(args, f.Path)
				}
			}
			o := pin.Options{Path: userPath(path), Privileged: setid}
			var warnings []string
			for _, arg := range args {
				said, err := repin(m, o, file, arg)
				if err != nil {
					return err
				}
				warnings = append(warnings, said...)
			}
			said, err := unpackAgain(m, o, args)
			if err != nil {
				return refuse("%w", err)
			}
			warnings = append(warnings, said...)
			if err := saveManifest(cmd, d, file, m); err != nil {
				return err
			}
			for _, w := range warnings {
				fmt.Fprintf(cmd.OutOrStdout(), "warning: %s\n", event.Escape(w))
			}
			return nil
		},
	}
	manifestFlag(cmd, &file)
	cmd.Flags().BoolVar(&all, "all", false, "every pinned file")
	cmd.Flags().StringVar(&path, "path", "", "`LIST` of folders in which scripts find their interpreters, instead of PATH")
	cmd.Flags().BoolVar(&setid, "setid", false, "accept files with set-uid, set-gid or capabilities")
	return cmd
}

// repin brings every entry about arg up to date. What it says is about programs that are new.
func repin(m *manifest.Manifest, o pin.Options, file, arg string) (said []string, err error) {
	real, err := realPath(arg)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notThere(m, file, arg)
	}
	if err != nil {
		return nil, refuse("%w", err)
	}
	sum, err := pin.Hash(real)
	if err != nil {
		return nil, refuse("%w", err)
	}
	pinned := false
	for _, list := range [][]manifest.File{m.Libraries, m.Integrity} {
		for i := range list {
			if list[i].Path == real {
				list[i].SHA256, pinned = sum, true
			}
		}
	}
	for i := range m.Exec {
		if m.Exec[i].Path == real {
			m.Exec[i].SHA256 = sum
			c, err := o.Resolve(real)
			if err != nil {
				return nil, refuse("%w", err)
			}
			if slices.ContainsFunc(c.Exec, func(e manifest.Exec) bool { return !slices.Contains(paths(m), e.Path) }) {
				// As manifest new would: a Python that a script has come to name needs its modules.
				if err := o.Extensions(c); err != nil {
					return nil, refuse("%w", err)
				}
				said = c.Warnings
			}
			addClosure(m, c)
			return said, nil
		}
	}
	if !pinned {
		return nil, refuse("%s: not pinned; to allow it: sudo sharness manifest allow -m %s --exec %s", real, manifestArg(file), pin.Quote(real))
	}
	return said, nil
}

// notThere is about a file that has gone, or that never was.
func notThere(m *manifest.Manifest, file, arg string) error {
	abs, err := filepath.Abs(arg)
	if err != nil {
		return refuse("%w", err)
	}
	if slices.Contains(paths(m), abs) || slices.ContainsFunc(m.Integrity, func(f manifest.File) bool { return f.Path == abs }) {
		return refuse("pin %s: is pinned, and is not there; put it back, or take its entry out of %s", abs, file)
	}
	return refuse("pin %s: no such file, and the manifest has none of that name", abs)
}

func realPath(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// addClosure adds a program and what it needs. Entries that are there keep their hashes: accepting another file than the
// one that was named is not what was asked for.
func addClosure(m *manifest.Manifest, c *pin.Closure) {
	known := paths(m)
	for _, e := range c.Exec {
		library := func(f manifest.File) bool { return f.Path == e.Path }
		switch {
		case slices.ContainsFunc(m.Libraries, library):
			// What may be executed may be mapped, so one entry is enough.
			m.Libraries = slices.DeleteFunc(m.Libraries, library)
		case slices.Contains(known, e.Path):
			continue
		}
		m.Exec = append(m.Exec, e)
	}
	for _, f := range c.Libraries {
		if !slices.Contains(known, f.Path) {
			m.Libraries = append(m.Libraries, f)
		}
	}
}

// allowFlags are the rights that manifest allow adds.
type allowFlags struct {
	exec, library, route, read, connect, env []string
	workspace                                string

	said []string // warnings about what was added
}

func newManifestAllowCmd() *cobra.Command {
	var f allowFlags
	var file, path string
	var setid bool
	cmd := &cobra.Command{
		Use:     "allow -m FILE [flags]",
		Short:   "Add rights to a manifest",
		Example: "  sudo sharness manifest allow -m claude --exec rg --connect api.example.com:443",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, file, err := openManifest(file)
			if err != nil {
				return err
			}
			m := d.Manifest()
			if err := f.apply(m, pin.Options{Path: userPath(path), Privileged: setid}); err != nil {
				return err
			}
			for _, text := range append(f.said, f.warnings()...) {
				fmt.Fprintf(cmd.OutOrStdout(), "warning: %s\n", event.Escape(text))
			}
			return saveManifest(cmd, d, file, m)
		},
	}
	manifestFlag(cmd, &file)
	cmd.Flags().StringArrayVar(&f.exec, "exec", nil, "program that may be started, and what it needs (`CMD`; all flags may be repeated)")
	cmd.Flags().StringArrayVar(&f.library, "library", nil, "shared object `FILE` that a program loads once it runs, and what it needs")
	cmd.Flags().StringVar(&f.workspace, "workspace", "", "what the agent itself may in the workspace: `read|write` (commands always write)")
	completeWords(cmd, "workspace", func() []string { return []string{string(manifest.AccessRead), string(manifest.AccessWrite)} })
	cmd.Flags().StringArrayVar(&f.route, "route", nil, "`PATH` that is the bash-server's client inside")
	cmd.Flags().StringArrayVar(&f.read, "read", nil, "`FOLDER` that may be read")
	cmd.Flags().StringArrayVar(&f.connect, "connect", nil, "`NAME:PORT` that may be reached")
	cmd.Flags().StringArrayVar(&f.env, "env", nil, "`NAME` of a variable that is passed on")
	cmd.Flags().StringVar(&path, "path", "", "`LIST` of folders to look programs up in, instead of PATH and the user's usual ones")
	cmd.Flags().BoolVar(&setid, "setid", false, "pin files with set-uid, set-gid or capabilities, which have no effect inside")
	return cmd
}

func (f *allowFlags) apply(m *manifest.Manifest, o pin.Options) error {
	if len(f.exec)+len(f.library)+len(f.route)+len(f.read)+len(f.connect)+len(f.env)+len(f.workspace) == 0 {
		return refuse("nothing was named to allow: give --exec, --library, --route, --read, --connect, --env or --workspace")
	}
	for _, cmd := range f.exec {
		c, err := o.Resolve(cmd)
		if err == nil {
			err = o.Extensions(c)
		}
		if errors.Is(err, pin.ErrNotFound) {
			return &exitError{127, fmt.Errorf("--exec %w; name the file by its path", err)}
		}
		if err != nil {
			return refuse("%w", err)
		}
		f.said = append(f.said, c.Warnings...)
		addClosure(m, c)
	}
	for _, file := range f.library {
		if err := allowLibrary(m, o, file); err != nil {
			return err
		}
	}
	switch access := manifest.Access(f.workspace); access {
	case "":
	case manifest.AccessRead, manifest.AccessWrite:
		m.Workspace.Orchestrator = access
	default:
		return refuse("--workspace %s: expected read or write", strconv.Quote(f.workspace))
	}
	m.Route = with(m.Route, f.route)
	m.Read = with(m.Read, f.read)
	m.Env.Pass = with(m.Env.Pass, f.env)
	for _, s := range f.connect {
		host, text, err := net.SplitHostPort(s)
		if err != nil {
			return refuse("--connect %s: expected NAME:PORT, such as example.com:443", strconv.Quote(s))
		}
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return refuse("--connect %s: the port is not a number from 1 to 65535", strconv.Quote(s))
		}
		e := manifest.Endpoint{Name: host, Port: uint16(port)}
		if !slices.ContainsFunc(m.Connect, func(x manifest.Endpoint) bool { return x.Name == e.Name && x.Port == e.Port }) {
			m.Connect = append(m.Connect, e)
		}
	}
	return nil
}

// allowLibrary adds a shared object and what it needs beyond what the manifest's program has loaded by then.
func allowLibrary(m *manifest.Manifest, o pin.Options, file string) error {
	real, err := realPath(file)
	if err != nil {
		return refuse("%w", err)
	}
	var refused error
	for _, e := range m.Exec {
		if e.Role == manifest.RoleScript || e.Role == manifest.RoleLoader {
			continue
		}
		files, err := o.Library(real, e.Path)
		if err != nil {
			refused = err
			continue
		}
		known := paths(m)
		for _, f := range files {
			if !slices.Contains(known, f.Path) {
				m.Libraries = append(m.Libraries, f)
			}
		}
		return nil
	}
	if refused == nil {
		return refuse("%s: the manifest has no program that could load it", real)
	}
	return refuse("%w", refused)
}

// warnings are about trees that give nothing, or far more than a person may have in mind.
func (f *allowFlags) warnings() (texts []string) {
	for _, route := range f.route {
		if text := absentRoute(route); text != "" {
			texts = append(texts, text)
		}
	}
	for _, tree := range f.read {
		if _, err := os.Stat(tree); err != nil {
			texts = append(texts, fmt.Sprintf("read %s: is not on this host; nothing is shown there", tree))
		}
		for _, home := range []string{"/home", "/root", userHome()} {
			if home != "" && (pin.Below(tree, home) || pin.Below(home, tree)) {
				texts = append(texts, fmt.Sprintf("read %s: the agent reads what lies in a home folder there, and may tell it: keys, tokens, histories", tree))
				break
			}
		}
	}
	return texts
}

// with appends what is not there yet.
func with(list, more []string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

func newManifestMergeCmd() *cobra.Command {
	var write bool
	cmd := &cobra.Command{
		Use:   "merge A B",
		Short: "Print a manifest that allows what either of two allows",
		Long:  "Prints A with what B adds, keeping A's comments. What cannot both hold is refused.",
		Args:  cobra.ExactArgs(2),

		ValidArgsFunction: twoManifests,
		RunE: func(cmd *cobra.Command, args []string) error {
			read := loadManifest
			if write {
				read = openManifest
			}
			a, file, err := read(args[0])
			if err != nil {
				return err
			}
			b, _, err := loadManifest(args[1])
			if err != nil {
				return err
			}
			m, err := manifest.Merge(a.Manifest(), b.Manifest())
			if err != nil {
				return refuse("%w", err)
			}
			if write {
				return saveManifest(cmd, a, file, m)
			}
			if err := a.Set(m); err != nil {
				return refuse("%w", err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s", a.Bytes())
			return nil
		},
	}
	cmd.Flags().BoolVar(&write, "write", false, "write the result to A")
	return cmd
}
