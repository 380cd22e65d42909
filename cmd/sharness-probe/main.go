// Sharness-probe is a small orchestrator that turns hostile: it tries every side door and says what happened.
//
// It runs inside a domain, where everything has to be closed, or outside of every domain with --control, where the
// attempts have to succeed. It exits with 0 when nothing is open, 1 when something is, 2 when an attempt broke and so
// proved nothing.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/sharness/sharness/internal/sidedoor/attempt"
)

func main() {
	born := attempt.TakeBirth()
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		os.Exit(attempt.Child(os.Args[1]))
	}
	var o options
	flag.Func("door", "try only this door or attempt; repeatable", func(s string) error { o.doors = append(o.doors, s); return nil })
	flag.Func("skip", "leave out this door or attempt; repeatable", func(s string) error { o.skip = append(o.skip, s); return nil })
	flag.StringVar(&o.bait, "bait", "", "JSON `file` that says what was planted outside")
	flag.DurationVar(&o.pace, "pace", 0, "pause between two attempts")
	flag.BoolVar(&o.list, "list", false, "print the attempts and make none")
	flag.BoolVar(&o.table, "table", false, "print a table instead of JSON lines")
	flag.Bool("json", true, "print JSON lines (the default)")
	flag.BoolVar(&o.control, "control", false, "run outside of every domain: fail unless the attempts succeed")
	flag.BoolVar(&o.command, "command", false, "run as a command in a sandbox of the bash-server")
	flag.StringVar(&o.sandbox, "sandbox", "", "run as an orchestrator that attacks from a sandbox, where this program is `FILE`")
	flag.BoolVar(&o.survey, "survey", false, "attack nothing: say what may be started, read, written and reached")
	flag.BoolVar(&o.demo, "demo", false, "try a dozen doors, then run a command the allowed way")
	flag.Parse()
	status, err := o.run(born, os.Stdout)
	if err != nil {
		fmt.Fprintf(os.Stderr, "sharness-probe: %v\n", err)
		status = 2
	}
	os.Exit(status)
}
