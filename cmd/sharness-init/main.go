// Command sharness-init is the stage: pid 1 of a domain, and the process that becomes its target. Only the supervisor
// starts it.
package main

import (
	"fmt"
	"os"

	"github.com/sharness/sharness/launcher/stage"
)

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "enter":
		os.Exit(stage.Enter())
	case len(os.Args) == 2 && os.Args[1] == "box":
		os.Exit(stage.Box())
	case len(os.Args) == 3 && os.Args[1] == "probe":
		os.Exit(stage.Probe(os.Args[2]))
	case len(os.Args) == 1 && os.Getpid() == 1:
		os.Exit(stage.Init())
	}
	fmt.Fprintln(os.Stderr, "sharness-init: started by sharness enforce, never by hand")
	os.Exit(125)
}
