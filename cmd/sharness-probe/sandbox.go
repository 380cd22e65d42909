package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/sharness/sharness/internal/sidedoor/attempt"
)

// fromSandbox attacks from commands: one for each door, so that none takes longer than a command may.
func (o options) fromSandbox(w io.Writer) error {
	if out, err := exec.Command(client, "-c", "exec "+o.sandbox+" mark").CombinedOutput(); err != nil {
		return fmt.Errorf("run a command: %w: %s", err, out)
	}
	last := ""
	for _, a := range o.choose(attempt.InCommand()) {
		if a.Door == last {
			continue
		}
		last = a.Door
		cmd := exec.Command(client, "-c", fmt.Sprintf("exec %s --command --bait %s --door %s", o.sandbox, o.bait, a.Door))
		cmd.Stdout, cmd.Stderr = w, os.Stderr
		// Its status says that something was open, which its results say too.
		if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
			return fmt.Errorf("run a command: %w", err)
		}
	}
	return nil
}
