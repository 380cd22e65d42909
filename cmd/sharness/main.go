// Command sharness runs AI agents in a domain from which a shell is reached in one way only: through the bash-server.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/sharness/sharness/event"
	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "devel"

func main() {
	os.Exit(run())
}

// run returns the exit status: the orchestrator's own, 125 when sharness failed, 126 when it refused to start and
// nothing has changed, 127 when the command was not found. What cobra says of a command line is such a refusal.
func run() int {
	var err error
	if len(os.Args) > 2 && os.Args[1] == "--" { // cobra would print the help and be content
		err = refuse("no command of sharness was named; to run what follows --: sudo sharness enforce -- %s", strings.Join(os.Args[2:], " "))
	} else {
		err = newRootCmd().Execute()
	}
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		if exit.err != nil {
			complain(exit.err)
		}
		return exit.code
	case err != nil:
		// One line of cobra's three: unknown command "x", Did you mean this?, and one or more suggestions.
		text := strings.Replace(strings.TrimSpace(err.Error()), "\n\nDid you mean this?\n\t", "; did you mean: ", 1)
		complain(errors.New(strings.ReplaceAll(text, "\n\t", ", ")))
		return 126
	}
	return 0
}

// complain prints an error, further lines of it indented. Names in it may be anybody's: nothing in it acts on the
// terminal, nor looks like another error of ours.
func complain(err error) {
	prefix := "sharness: "
	for _, line := range errorLines(err.Error()) {
		fmt.Fprintln(os.Stderr, prefix+line)
		prefix = "  "
	}
}

// errorLines are the lines of a text that are not empty, escaped.
func errorLines(text string) (lines []string) {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.TrimSpace(line) != "" {
			lines = append(lines, event.Escape(strings.ReplaceAll(line, "\t", "  ")))
		}
	}
	return lines
}

// named are the arguments of a command that runs another: what is missing is said with an example.
func named(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return refuse("%s: name what to run: sudo %s -- claude", cmd.Name(), cmd.CommandPath())
	}
	return nil
}

func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:   "sharness",
		Short: "Run an AI agent so that its shell cannot be skipped",
		Long: `sharness starts an agent in a domain fixed before it starts: it can execute only the binaries pinned in its
manifest, reaches nothing outside, and runs commands in one way, through the bash-server, which gives each a
fresh sandbox.

    sudo sharness manifest new --profile claude -- claude     write the manifest
    sudo sharness enforce -- claude                            work
    sudo sharness doctor                                       what this host can do
    sudo sharness events -f                                    what was denied
    sudo sharness why 42                                       why, and what would change it`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		// "$VAR" of a variable that is not set must not mean the current folder.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"workspace", "manifest"} {
				if f := cmd.Flags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
					return refuse("%s: --%s: is empty; give one, or leave the option out for the default", cmd.Name(), name)
				}
			}
			return nil
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return refuse("%s: %w; see %s --help", cmd.Name(), err, cmd.CommandPath())
	})
	root.InitDefaultCompletionCmd("completion")
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Use, cmd.Args, cmd.RunE = "completion SHELL", cobra.MinimumNArgs(1), unknownShell
		}
	}
	root.AddCommand(newEnforceCmd(), newLearnCmd(), newServeCmd(), newGCCmd(), newGitConfigCmd(), newManifestCmd(), newDoctorCmd(), newProveCmd(), newProveReportCmd(), newEventsCmd(), newWhyCmd(), newDocsCmd())
	root.AddCommand(&cobra.Command{Use: "version", Short: "Print the version, as --version does", Hidden: true, Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), "sharness version", version) }})
	plainUsage(root)
	tellArgs(root)
	return root
}

// unknownShell is what is left of completion when none of its own commands was named.
func unknownShell(cmd *cobra.Command, args []string) error {
	var shells []string
	for _, sub := range cmd.Commands() {
		shells = append(shells, sub.Name())
	}
	return refuse("completion: %q: no such shell here, only %s", args[0], strings.Join(shells, ", "))
}

// tellArgs says of a command line with too few or too many words what it should have been. Of cobra's own words only the
// count is left.
func tellArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			exit := new(exitError)
			switch {
			case err == nil, errors.As(err, &exit):
				return err
			case strings.HasPrefix(err.Error(), "unknown command") && cmd.HasSubCommands():
				return refuse("%w; see %s --help", err, cmd.CommandPath())
			case strings.HasPrefix(err.Error(), "unknown command"):
				return refuse("%s: takes no argument, and was given %q; usage: %s", cmd.Name(), args[0], cmd.UseLine())
			}
			return refuse("%s: %w; usage: %s", cmd.Name(), err, cmd.UseLine())
		}
	}
	for _, sub := range cmd.Commands() {
		tellArgs(sub)
	}
}

// plainUsage keeps cobra from writing [flags] behind CMD [ARG…]: what stands there goes to CMD.
func plainUsage(cmd *cobra.Command) {
	cmd.DisableFlagsInUseLine = true
	for _, sub := range cmd.Commands() {
		plainUsage(sub)
	}
}
