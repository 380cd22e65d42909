// Command sharness-agent is the process that holds the event sinks and traces the domain. The supervisor starts it with
// the receiving ends of the producers' sockets and the opened sinks, either with a uid of its own, or as root: then it
// attaches the tracing programs first and takes that uid itself. It gives up everything else before it reads a byte of an
// event. People do not start it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sharness/sharness/bashserver/redact"
	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/event/sink"
	"github.com/sharness/sharness/internal/confine"
)

// configFD is the memfd with a Config; the descriptors it names come before and after it (sink.Arrange).
const configFD = 5

// maxConfig bounds the configuration; a compiled filter is the largest part of it.
const maxConfig = 1 << 20

// Config is what the supervisor hands over.
type Config struct {
	sink.Config
	Fold    event.FoldOptions `json:"fold"`
	Confine confine.Drop      `json:"confine"` // Keep is filled in here
	Trace   *Trace            `json:"trace,omitempty"`
	Secrets []redact.Secret   `json:"secrets,omitempty"` // taken out of every event, of every producer
	Rules   redact.Rules      `json:"rules,omitempty"`   // for what looks like one; none when empty
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "sharness-agent: %v\n", err)
		os.Exit(125)
	}
}

func run() error {
	config, err := readConfig()
	if err != nil {
		return err
	}
	// A terminal's Ctrl-C reaches the whole group; the log ends when the supervisor says so, or when all producers end.
	signal.Ignore(syscall.SIGINT, syscall.SIGQUIT)
	rotated := make(chan os.Signal, 1)
	signal.Notify(rotated, syscall.SIGHUP)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	parent := os.Getppid()
	config.Confine.Keep = config.FDs()
	var tracer *tracing
	if config.Trace != nil {
		config.Confine.Keep = append(config.Confine.Keep, config.Trace.Ready, config.Trace.Names)
		if config.Trace.Learn != nil {
			config.Confine.Keep = append(config.Confine.Keep, config.Trace.Learn.FD)
		}
		if tracer, err = startTracing(&config); err != nil {
			return err
		}
	}
	collector, err := sink.New(config.Config, config.Fold)
	if err != nil {
		return err
	}
	if config.Rules == "" {
		config.Rules = redact.RulesNone
	}
	if len(config.Secrets) > 0 || config.Rules != redact.RulesNone {
		collector.Rewrite = redact.NewSet(config.Secrets, config.Rules).String
	}
	_, _ = time.Now().Zone() // reads /etc/localtime, which no longer exists for us in a moment
	if tracer != nil {
		if err := tracer.drop(parent); err != nil {
			return err
		}
	}
	if err := confine.Self(config.Confine); err != nil {
		return err
	}
	if tracer != nil {
		if err := tracer.ready(); err != nil {
			return err
		}
		go tracer.run(ctx, config.Fold)
	}
	go func() {
		for range rotated {
			collector.Reopen()
		}
	}()
	return collector.Run(ctx)
}

// readConfig reads strictly and closes the descriptor.
func readConfig() (Config, error) {
	var c Config
	f := os.NewFile(configFD, "config")
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxConfig+1))
	if err != nil {
		return c, fmt.Errorf("read config: %w", err)
	}
	if len(b) > maxConfig {
		return c, fmt.Errorf("read config: over %d bytes", maxConfig)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return c, fmt.Errorf("read config: %w", err)
	}
	return c, nil
}
