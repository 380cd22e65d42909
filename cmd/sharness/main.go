// Command sharness runs AI agents in a domain from which a shell is reached in one way only: through the bash-server.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/sharness/sharness/event"
	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "devel"

func main() {
	os.Exit(run())
}

// run returns the exit status: the orchestrator's own, 125 when sharness failed, 126 when it refused to start and
// nothing has changed, 127 when the command was not found.
func run() int {
	root := newRootCmd()
	err := root.Execute()
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		if exit.err != nil {
			complain(exit.err)
		}
		return exit.code
	case err != nil:
		complain(err)
		return 125
	}
	return 0
}

// complain prints one line for each error. Names in it may be anybody's: nothing in it acts on the terminal.
func complain(err error) {
	fmt.Fprintln(os.Stderr, "sharness:", event.Escape(err.Error()))
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
    sharness doctor                                            what this host can do
    sharness events -f                                         what was denied`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newEnforceCmd(), newLearnCmd(), newServeCmd(), newGCCmd(), newGitConfigCmd(), newManifestCmd(), newDoctorCmd(), newEventsCmd(), newDocsCmd())
	return root
}
