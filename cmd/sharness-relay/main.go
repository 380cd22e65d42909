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
		l, err := listener(fd)
		if err != nil {
			return fmt.Errorf("listener of %s: %w", e.Name, err)
		}
		listeners, keep = append(listeners, l), append(keep, fd)
	}
	var learning *relay.Learning
	if config.Learn != nil {
		first := firstListener + len(config.Endpoints)
		if learning, err = learns(config.Learn, first); err != nil {
			return err
		}
		for i := range 2 + len(config.Learn.Ports) {
			keep = append(keep, first+i)
		}
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
	return relay.Serve(ctx, config, listeners, learning, events)
}

func listener(fd int) (*net.TCPListener, error) {
	l, err := net.FileListener(os.NewFile(uintptr(fd), "listener"))
	if err != nil {
		return nil, err
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("is %s", l.Addr().Network())
	}
	return tcp, nil
}

// learns takes what a session that learns has besides: a socket for queries, where to tell, and a listener for each port.
func learns(l *relay.Learn, first int) (*relay.Learning, error) {
	dns, err := net.FilePacketConn(os.NewFile(uintptr(first), "queries"))
	if err != nil {
		return nil, fmt.Errorf("socket for queries: %w", err)
	}
	out := &relay.Learning{DNS: dns, Told: os.NewFile(uintptr(first+1), "told")}
	for i, port := range l.Ports {
		tcp, err := listener(first + 2 + i)
		if err != nil {
			return nil, fmt.Errorf("listener of port %d: %w", port, err)
		}
		out.Listeners = append(out.Listeners, tcp)
	}
	return out, nil
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
