package bashserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sharness/sharness/bashserver/redact"
	"github.com/sharness/sharness/internal/lean"
)

// Config is everything bashd is told, as JSON in a memfd. Zero values of the limits mean the defaults.
type Config struct {
	Session       string   `json:"session"`
	ClientPath    string   `json:"client_path"` // where the client lies in the orchestrator's view; stands for the shell
	Routes        []string `json:"routes"`      // further paths that are the client there and the real program in a command's view
	ShellPath     string   `json:"shell_path"`
	Home          string   `json:"home"`           // HOME of a command
	WorkspaceRoot string   `json:"workspace_root"` // a command's working directory lies in it
	Env           Env      `json:"env"`

	Secrets      []Secret `json:"secrets"`
	Rules        string   `json:"rules"`         // redact.Rules, for what looks like a secret
	Neutralise   bool     `json:"neutralise"`    // escape sequences that act
	RefuseBinary bool     `json:"refuse_binary"` // output that is no text

	Bounds          map[string]string `json:"bounds"`       // of the limits in limits_hit, as the manifest writes them: what the sentences name
	OutputLimit     int64             `json:"output_limit"` // bytes of stdout and stderr together
	Jobs            int               `json:"jobs"`         // commands that may run on without a client; 0: none
	JobsLast        bool              `json:"jobs_last"`    // a job may run for longer than a command
	OneNetwork      bool              `json:"one_network"`  // commands and jobs reach each other
	JobLog          int               `json:"job_log"`      // bytes of a job's output that are kept
	MaxCommands     int               `json:"max_commands"`
	MaxConns        int               `json:"max_conns"`
	MaxConnsPerPeer int               `json:"max_conns_per_peer"` // of one process
	RequestTimeout  time.Duration     `json:"request_timeout"`    // nanoseconds from connect to Start

	LandlockABI int    `json:"landlock_abi"`
	Seccomp     []byte `json:"seccomp"`

	lull *lean.Lull // nil: memory is kept
}

// Env says which of a client's variables reach a command.
type Env struct {
	Pass []string          `json:"pass"` // names, or prefixes that end in *; empty means all
	Drop []string          `json:"drop"` // wins over Pass
	Set  map[string]string `json:"set"`  // wins over everything
}

// Secret is a value that must not leave in a command's output. Name goes into the mark that replaces it.
type Secret = redact.Secret

// MinSecret is the fewest bytes of a value.
const MinSecret = redact.MinValue

// Defaults and bounds of Config.
const (
	DefaultOutputLimit    = 64 << 20
	DefaultMaxCommands    = 64
	DefaultJobLog         = 1 << 20
	DefaultRequestTimeout = 10 * time.Second
	DefaultClientPath     = "/run/sharness/bin/sharness-bash"
	DefaultShellPath      = "/usr/bin/bash"
	DefaultHome           = "/home/agent"

	maxSecrets   = 256 // with maxSecretSum: the forms of a value are about ten times its bytes
	maxSecretSum = 256 << 10
	maxConfig    = 4 << 20
)

// ReadConfig reads the JSON of a Config strictly and gives it its defaults.
func ReadConfig(f *os.File) (Config, error) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxConfig+1))
	if err != nil {
		return Config{}, fmt.Errorf("read config: %w", err)
	}
	if len(b) > maxConfig {
		return Config{}, fmt.Errorf("read config: more than %d bytes", maxConfig)
	}
	var c Config
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return Config{}, fmt.Errorf("read config: %w", err)
	}
	return c, c.complete()
}

// complete fills in the defaults and refuses what cannot be served.
func (c *Config) complete() error {
	or(&c.ClientPath, DefaultClientPath)
	or(&c.ShellPath, DefaultShellPath)
	or(&c.Home, DefaultHome)
	or(&c.OutputLimit, DefaultOutputLimit)
	or(&c.MaxCommands, DefaultMaxCommands)
	or(&c.MaxConns, 2*c.MaxCommands)
	or(&c.MaxConnsPerPeer, c.MaxCommands)
	or(&c.RequestTimeout, DefaultRequestTimeout)
	or(&c.JobLog, DefaultJobLog)
	or(&c.Rules, string(redact.RulesDefault))
	if c.Jobs < 0 || c.JobLog < 0 || c.OutputLimit < 0 || c.MaxCommands < 0 || c.MaxConns < 0 || c.MaxConnsPerPeer < 0 || c.RequestTimeout < 0 {
		return errors.New("config: a limit is negative")
	}
	for _, p := range append([]string{c.ClientPath, c.ShellPath, c.Home, c.WorkspaceRoot}, c.Routes...) {
		if !strings.HasPrefix(p, "/") {
			return fmt.Errorf("config: path %q is not absolute", p)
		}
	}
	if !slices.Contains(redact.AllRules, redact.Rules(c.Rules)) {
		return fmt.Errorf("config: rules %q are unknown", c.Rules)
	}
	sum := 0
	for _, s := range c.Secrets {
		if len(s.Value) < redact.MinValue {
			return fmt.Errorf("config: the value of secret %s is shorter than %d bytes: it cannot be redacted", s.Name, redact.MinValue)
		}
		sum += len(s.Value)
	}
	if len(c.Secrets) > maxSecrets || sum > maxSecretSum {
		return fmt.Errorf("config: more than %d secrets or %d bytes of them", maxSecrets, maxSecretSum)
	}
	return nil
}

func or[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}
