package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/sharness/sharness/internal/prove"
	proof "github.com/sharness/sharness/internal/prove/report"
	"github.com/sharness/sharness/internal/sidedoor"
)

func newProveCmd() *cobra.Command {
	var o prove.Options
	var jsonFile, markdownFile, file string
	cmd := &cobra.Command{
		Use:   "prove",
		Short: "Attack a session on this host, and show which layer closes which door",
		Long: `prove starts a hostile program, sharness-probe, as the orchestrator of a session, by the very path that enforce
takes, beside bait that was planted for it outside: files, sockets, ports, a process, variables. It makes some 800
attempts at the side doors, from a static and from a dynamically linked build, and once with a workspace that is only
to be read; and the same ones as an ordinary user without sharness, which shows that an attempt works at all.

One line for each door: how many attempts get through without sharness (CONTROL), how the most telling one ended
(VERDICT: closed, open, allowed where it gets through and may, by the manifest, by --allow-open or by design, absent
where there is nothing behind the door, impossible where this host cannot make it),
the errnos, the layer that refused by the log's events or, in brackets, by the decision, how many of the denials that
have an errno were told (EVENTS), and the time.

Everything is made in a folder and a subtree of its own and is gone afterwards. No sysctl, firewall rule or user of the
host is touched, and nothing leaves the machine.

Exit status 0: every door is closed, every denial with an errno was told, nothing arrived at the bait, nothing was
left behind. 1: not so, and the last lines say what. 125: prove failed. 126: this host or caller lacks something, and
nothing was attempted.`,
		Example: "  sudo sharness prove\n  sudo sharness prove --door exec-memfd --all\n  sudo sharness prove --markdown evidence.md",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := knownDoors(o.Doors); err != nil {
				return err
			}
			for _, d := range o.Doors {
				o.Sandbox = o.Sandbox || strings.HasPrefix(d, "cmd-") // what a command alone can attack
			}
			if err := knownOpen(o.AllowOpen); err != nil {
				return err
			}
			if os.Geteuid() != 0 {
				return refuse("prove: must be root to make namespaces, mounts and cgroups, and was started as uid %d: nothing was attempted; run it with sudo", os.Geteuid())
			}
			if file != "" {
				var err error
				if o.Path, err = filepath.Abs(manifestFile(file)); err != nil {
					return &exitError{126, fmt.Errorf("prove: manifest %s: %w", file, err)}
				}
				if _, err := os.Lstat(o.Path); errors.Is(err, os.ErrNotExist) {
					return noManifest(o.Path, "", file)
				}
				if o.Manifest, err = enforcedManifest(o.Path); err != nil {
					return &exitError{126, err}
				}
				if o.Ablate || o.Sandbox {
					return refuse("prove: --ablate and --sandbox are for sharness itself, not for a manifest; give one or the other")
				}
			}
			o.Version, o.Out, o.Err, o.Command = version, os.Stdout, os.Stderr, calledAs(cmd)
			for name, to := range map[string]**os.File{jsonFile: &o.JSON, markdownFile: &o.Markdown} {
				if name == "" {
					continue
				}
				f, err := outputFile(name)
				if err != nil {
					return &exitError{126, fmt.Errorf("prove: %w", err)}
				}
				defer f.Close()
				*to = f
			}
			if jsonFile == "-" || markdownFile == "-" {
				o.Out = os.Stderr
			}
			status, err := prove.Run(o)
			if missing := new(prove.MissingError); errors.As(err, &missing) {
				return &exitError{126, fmt.Errorf("prove: nothing was attempted: %w", err)}
			}
			if err != nil {
				return &exitError{125, fmt.Errorf("prove: %w", err)}
			}
			if status != 0 {
				return &exitError{code: status}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&jsonFile, "json", "", "write everything to `FILE` (-: standard output, and the table to standard error)")
	f.StringVar(&markdownFile, "markdown", "", "write a page to `FILE` (- as with --json), as those of docs/evidence")
	f.StringArrayVar(&o.Doors, "door", nil, "attack this `DOOR` alone, or one attempt (DOOR/ATTEMPT); repeatable")
	f.StringArrayVar(&o.AllowOpen, "allow-open", nil, "go on although `DOOR` is open on this host; repeatable")
	f.StringVarP(&file, "manifest", "m", "", "prove what the agent of this manifest `FILE` may start, read, write and reach; a name means one in "+manifestDir)
	completeManifests(cmd)
	f.BoolVar(&o.Sandbox, "sandbox", false, "attack from commands in sandboxes of the bash-server too")
	f.BoolVar(&o.Ablate, "ablate", false, "then take each layer away alone, and leave each on alone: door × layer, some minutes")
	f.BoolVar(&o.All, "all", false, "show each attempt, not only each door")
	completeWords(cmd, "door", doorIDs)
	completeWords(cmd, "allow-open", doorIDs)
	return cmd
}

// knownDoors refuses a door or an attempt that there is none of, before everything is made for it.
func knownDoors(given []string) error {
	var attempts []string
	for _, name := range given {
		id, _, one := strings.Cut(name, "/")
		if _, ok := sidedoor.ByID(id); !ok {
			return refuse("prove: --door %s: no such door; the nearest are: %s; sharness doctor lists all", name, strings.Join(closest(id, doorIDs()), ", "))
		}
		if attempts == nil {
			var err error
			if attempts, err = prove.Attempts(); err != nil {
				return refuse("prove: nothing was attempted: %w", err)
			}
		}
		of := slices.DeleteFunc(slices.Clone(attempts), func(a string) bool { return !strings.HasPrefix(a, id+"/") })
		switch {
		case len(of) == 0:
			return refuse("prove: --door %s: no attempt is made at this door; what is known of it: %s", name, doorPage(id))
		case one && !slices.Contains(of, name):
			return refuse("prove: --door %s: no such attempt; the nearest are: %s; --door %s --all shows all", name, strings.Join(closest(name, of), ", "), id)
		}
	}
	return nil
}

// calledAs is the command line for the page, without where that goes.
func calledAs(cmd *cobra.Command) string {
	line := cmd.CommandPath()
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch list, many := f.Value.(pflag.SliceValue); {
		case f.Name == "json" || f.Name == "markdown":
			line += " --" + f.Name + " FILE"
		case many:
			for _, v := range list.GetSlice() {
				line += " --" + f.Name + " " + v
			}
		case f.Value.Type() == "bool":
			line += " --" + f.Name
		default:
			line += " --" + f.Name + " " + f.Value.String()
		}
	})
	return line
}

// outputFile opens what the user named with no more than a new or an own regular file: prove runs as root.
func outputFile(name string) (*os.File, error) {
	if name == "-" {
		return os.NewFile(1, "standard output"), nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if path := new(fs.PathError); errors.As(err, &path) {
		return nil, fmt.Errorf("write %s: %w", name, path.Err)
	}
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("write %s: is no regular file", name)
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// newProveReportCmd is the half of prove that reads, in a process without privilege. It is not for people.
func newProveReportCmd() *cobra.Command {
	var o proof.Options
	var jsonFD, markdownFD uint
	cmd := &cobra.Command{
		Use:    prove.ReportCommand,
		Short:  "Read what a probe printed",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if os.Geteuid() == 0 {
				return refuse("%s: is started by sharness prove, without privilege", prove.ReportCommand)
			}
			o.Table = os.Stdout
			if jsonFD != 0 {
				o.JSON = os.NewFile(uintptr(jsonFD), "json")
			}
			if markdownFD != 0 {
				o.Markdown = os.NewFile(uintptr(markdownFD), "markdown")
			}
			ok, err := proof.Write(os.Stdin, o)
			if err != nil {
				return &exitError{125, err}
			}
			if !ok {
				return &exitError{code: 1}
			}
			return nil
		},
	}
	cmd.Flags().UintVar(&jsonFD, "json", 0, "")
	cmd.Flags().UintVar(&markdownFD, "markdown", 0, "")
	cmd.Flags().BoolVar(&o.All, "all", false, "")
	return cmd
}
