package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sharness/sharness/launcher/host"
	"github.com/sharness/sharness/launcher/resolve"
	"github.com/sharness/sharness/manifest"
)

// diagnosis is what doctor found, and its --json.
type diagnosis struct {
	Features *host.Features    `json:"features"`
	Decision *resolve.Decision `json:"decision"` // null when it was not run as root: nothing can be decided then
	Starts   bool              `json:"starts"`   // a session would start here
	Why      string            `json:"why,omitempty"`
}

func newDoctorCmd() *cobra.Command {
	var asJSON bool
	var workspace, file string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Show what this host has, what is missing, and how to get it",
		Long: `Show what this host has, which layer closes which side door, and what to do about those that stay open.

Everything is tried, not looked up by version; nothing on the host is changed. Exit status 0 means that a session
would start here, 1 that it would not.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := diagnose(workspace, file)
			if err != nil {
				return &exitError{125, err}
			}
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				err = enc.Encode(d)
			} else {
				err = printDiagnosis(cmd.OutOrStdout(), d)
			}
			if err != nil {
				return &exitError{125, fmt.Errorf("doctor: %w", err)}
			}
			if !d.Starts {
				return &exitError{1, errors.New("doctor: " + d.Why)}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.Flags().StringVar(&workspace, "workspace", ".", "the folder an agent would work on")
	cmd.Flags().StringVarP(&file, "manifest", "m", "", "the manifest a session would use")
	return cmd
}

func diagnose(workspace, file string) (*diagnosis, error) {
	var m *manifest.Manifest
	if file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("doctor: read manifest: %w", err)
		}
		if m, err = manifest.Parse(file, data); err != nil {
			return nil, err
		}
	}
	paths, err := probePaths(workspace, m)
	if err != nil {
		return nil, fmt.Errorf("doctor: workspace: %w", err)
	}
	f, err := host.Probe(host.Options{Paths: paths})
	if err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	decision, err := resolve.Resolve(m, f, nil)
	if err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	d := &diagnosis{Features: f, Decision: decision, Starts: true}
	if err := decision.Err(); err != nil {
		d.Starts, d.Why = false, err.Error()
	}
	if f.UID != 0 {
		d.Decision = nil
	}
	return d, nil
}

// probePaths are the folders whose filesystems have to take an idmap: the workspace, and the state or, while it does
// not exist, the folder it will be made in.
func probePaths(workspace string, m *manifest.Manifest) ([]string, error) {
	workspace, err := filepath.Abs(workspace)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(workspace); err != nil {
		return nil, err
	}
	paths := []string{workspace}
	if m == nil || m.State == nil {
		return paths, nil
	}
	state := filepath.Clean(m.State.Path)
	for {
		_, err := os.Stat(state)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || state == "/" {
			return append(paths, state), nil
		}
		state = filepath.Dir(state)
	}
}
