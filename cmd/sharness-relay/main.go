// Command sharness-relay carries the connections of one session to its endpoints. The supervisor starts it with a uid of
// its own, in the host's network namespace, with descriptors 4 (events), 5 (configuration) and from 6 on one listening
// socket for each endpoint, made in the domain's network namespace. It confines itself before it accepts anything.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/sharness/sharness/internal/confine"
	"github.com/sharness/sharness/launcher/relay"
)

const (
	eventsFD      = 4
	configFD      = 5
	firstListener = 6
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "sharness-relay:", err)
		os.Exit(125)
	}
}

func run() error {
	config, err := readConfig()
	if err != nil {
		return err
	}
	events, err := net.FileConn(os.NewFile(eventsFD, "events"))
	if err != nil {
		return fmt.Errorf("events socket: %w", err)
	}
	keep := []int{eventsFD}
	var listeners []*net.TCPListener
	for i, e := range config.Endpoints {
		fd := firstListener + i
		l, err := net.FileListener(os.NewFile(uintptr(fd), "listener"))
		if err != nil {
			return fmt.Errorf("listener of %s: %w", e.Name, err)
		}
		tcp, ok := l.(*net.TCPListener)
		if !ok {
			return fmt.Errorf("listener of %s is %s", e.Name, l.Addr().Network())
		}
		listeners, keep = append(listeners, tcp), append(keep, fd)
	}
	drop, err := config.Drop(keep)
	if err != nil {
		return err
	}
	if err := confine.Self(drop); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return relay.Serve(ctx, config, listeners, events)
}

func readConfig() (relay.Config, error) {
	f := os.NewFile(configFD, "config")
	defer f.Close()
	data, err := io.ReadAll(io.NewSectionReader(f, 0, relay.MaxConfigBytes+1))
	if err != nil {
		return relay.Config{}, fmt.Errorf("relay config: %w", err)
	}
	return relay.ReadConfig(data)
}
