package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/prove"
	"github.com/sharness/sharness/launcher"
	"github.com/spf13/cobra"
)

func newGCCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "gc",
		Short: "Remove what sessions that were killed have left",
		Long: `gc removes runtime folders and empty cgroups of sessions whose supervisor is gone. A session that runs is not
touched. The folder of a prove that was killed goes too. What was quarantined stays, in /var/lib/sharness/quarantine.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if os.Geteuid() != 0 {
				return &exitError{126, fmt.Errorf("gc: must be root; try: sudo sharness gc")}
			}
			removed, err := launcher.GC()
			more, perr := prove.GC()
			removed, err = append(removed, more...), errors.Join(err, perr)
			for _, r := range removed {
				fmt.Println("removed", event.Escape(r))
			}
			if err != nil {
				return &exitError{125, err}
			}
			if len(removed) == 0 {
				fmt.Println("nothing to remove")
			}
			return nil
		},
	}
}
