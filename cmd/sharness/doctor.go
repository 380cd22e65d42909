package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sharness/sharness/launcher"
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
	Refused  []string          `json:"refused,omitempty"` // what the workspace is refused for
	Notices  []string          `json:"notices,omitempty"` // what a session would say when it starts
}

func newDoctorCmd() *cobra.Command {
	var asJSON bool
	var workspace, file string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Show what this host has, what is missing, and how to get it",
		Long: `Show what this host has, which layer closes which side door, and what to do about those that stay open.

Everything is tried, not looked up by version; nothing on the host is changed. Exit status 0 means that a session
would start here, 1 that it would not, or that this was not decided: for that it has to be root. Whether the files of
a manifest are as they were pinned is for sharness manifest check.`,
		Example:       "  sudo sharness doctor\n  sudo sharness doctor -m claude --workspace ~/project",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := diagnose(workspace, file)
			if err != nil {
				return err
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
	cmd.Flags().StringVar(&workspace, "workspace", ".", "`FOLDER` that an agent would work on")
	cmd.Flags().StringVarP(&file, "manifest", "m", "", "manifest `FILE` that a session would use, or the name of one in "+manifestDir)
	completeManifests(cmd)
	_ = cmd.MarkFlagDirname("workspace")
	return cmd
}

func diagnose(workspace, file string) (*diagnosis, error) {
	var m *manifest.Manifest
	if file != "" {
		d, path, err := loadManifest(file)
		if err != nil {
			return nil, refuse("doctor: %w", err)
		}
		m = d.Manifest()
		if file, err = filepath.Abs(path); err != nil {
			return nil, refuse("doctor: manifest %s: %w", path, err)
		}
	}
	paths, err := probePaths(workspace, m)
	if err != nil {
		return nil, refuse("doctor: workspace: %w; give another folder with --workspace", err)
	}
	f, err := host.Probe(host.Options{Paths: paths})
	if err != nil {
		return nil, &exitError{125, fmt.Errorf("doctor: %w", err)}
	}
	decision, err := resolve.Resolve(m, f, nil)
	if err != nil {
		return nil, &exitError{125, fmt.Errorf("doctor: %w", err)}
	}
	d := &diagnosis{Features: f, Decision: decision, Starts: true}
	if f.UID != 0 {
		d.Decision, d.Starts, d.Why = nil, false, "not decided: run sudo sharness doctor"
		return d, nil
	}
	if err := decision.Err(); err != nil {
		d.Starts, d.Why = false, err.Error()
	}
	d.place(m, file, workspace)
	return d, nil
}

// place adds what has to do with where a session would work, and not with what the host can do.
func (d *diagnosis) place(m *manifest.Manifest, file, workspace string) {
	if m == nil {
		m = &manifest.Manifest{}
	}
	if err := launcher.CheckWorkspace(m, file, workspace); err != nil {
		d.Refused = append(d.Refused, err.Error())
		if d.Starts {
			d.Starts, d.Why = false, err.Error()
		}
	}
	for _, tree := range launcher.MissingTrees(m) {
		d.Notices = append(d.Notices, "read "+tree+": is not on this host; nothing is shown there")
	}
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
