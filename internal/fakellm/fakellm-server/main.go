// Command fakellm-server plays a script (see package fakellm) to any agent that asks, for tries by hand.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/sharness/sharness/internal/fakellm"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	vars := map[string]string{}
	file := flag.String("script", "", "script `file` (JSON)")
	port := flag.Int("port", 0, "port of 127.0.0.1; 0 lets the kernel choose")
	flag.Func("var", "`NAME=VALUE` replaces {{NAME}} in the script; repeatable", func(s string) error {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("want NAME=VALUE")
		}
		vars[name] = value
		return nil
	})
	flag.Parse()
	f, err := os.Open(*file)
	if err != nil {
		return err
	}
	script, err := fakellm.ReadScript(f)
	f.Close()
	if err != nil {
		return err
	}
	if script, err = script.Expand(vars); err != nil {
		return err
	}
	s, err := fakellm.New(script, *port, os.Stdout)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, s.URL)
	end := make(chan os.Signal, 1)
	signal.Notify(end, os.Interrupt, syscall.SIGTERM)
	<-end
	return s.Close()
}
