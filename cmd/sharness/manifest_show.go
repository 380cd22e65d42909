package main

import (
	"fmt"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/launcher"
	"github.com/sharness/sharness/launcher/pin"
	"github.com/sharness/sharness/manifest"
	"github.com/spf13/cobra"
)

func newManifestShowCmd() *cobra.Command {
	var file string
	var written bool
	cmd := &cobra.Command{
		Use:   "show -m FILE",
		Short: "Print a manifest as enforce reads it, defaults filled in",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, _, err := loadManifest(file)
			if err != nil {
				return err
			}
			m := d.Manifest()
			if !written {
				m = m.WithDefaults()
			}
			_, err = cmd.OutOrStdout().Write(manifest.Format(m))
			return err
		},
	}
	manifestFlag(cmd, &file)
	cmd.Flags().BoolVar(&written, "written", false, "leave out what the manifest does not say")
	return cmd
}

func newManifestDiffCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "diff A B",
		Short: "List what manifest B says otherwise than A (exit 1 if anything)",
		Args:  cobra.ExactArgs(2),

		ValidArgsFunction: twoManifests,
		RunE: func(cmd *cobra.Command, args []string) error {
			a, _, err := loadManifest(args[0])
			if err != nil {
				return err
			}
			b, _, err := loadManifest(args[1])
			if err != nil {
				return err
			}
			changes := manifest.Diff(a.Manifest(), b.Manifest())
			for _, c := range changes {
				fmt.Fprintln(cmd.OutOrStdout(), c)
			}
			if len(changes) > 0 {
				return &exitError{1, nil}
			}
			return nil
		},
	}
}

func newManifestCheckCmd() *cobra.Command {
	var file, path, workspace string
	var setid bool
	cmd := &cobra.Command{
		Use:   "check -m FILE",
		Short: "Compare a manifest with this host: hashes, owners, missing libraries",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, file, err := loadManifest(file)
			if err != nil {
				return err
			}
			m := d.Manifest()
			o := pin.VerifyOptions{File: file, Path: userPath(path), Privileged: setid}
			if workspace != "" {
				if err := launcher.CheckFolder(workspace); err != nil {
					return refuse("%w", err)
				}
				o.WritableBy = []string{workspace}
			}
			var problems []pin.Problem
			own := o.WritableBy
			if m.State != nil {
				own = append(own, m.State.Path)
			}
			if err := pin.CheckManifest(file, own...); err != nil {
				problems = append(problems, pin.Problem{Path: "manifest", Text: err.Error()})
			}
			if err := launcher.CheckShares(m); err != nil {
				problems = append(problems, pin.Problem{Path: "state", Text: err.Error()})
			}
			for _, tree := range launcher.MissingTrees(m) {
				problems = append(problems, pin.Problem{Path: "read " + tree, Text: "is not on this host; nothing is shown there", Warning: true})
			}
			return report(cmd, file, append(problems, pin.Verify(m, o)...))
		},
	}
	manifestFlag(cmd, &file)
	cmd.Flags().StringVar(&path, "path", "", "`LIST` of folders in which scripts find their interpreters, instead of PATH")
	cmd.Flags().StringVar(&workspace, "workspace", "", "`FOLDER` that the agent will work on: nothing pinned may lie in it")
	cmd.Flags().BoolVar(&setid, "setid", false, "accept files with set-uid, set-gid or capabilities")
	return cmd
}

func report(cmd *cobra.Command, file string, problems []pin.Problem) error {
	out, wrong := cmd.OutOrStdout(), 0
	last := map[string]int{} // one command accepts all that a program has come to need
	for i, p := range problems {
		last[p.Accept] = i
	}
	for i, p := range problems {
		if p.Warning {
			fmt.Fprintf(out, "warning: %s\n", event.Escape(p.String()))
			continue
		}
		wrong++
		fmt.Fprintln(out, event.Escape(p.String()))
		if p.Accept != "" && last[p.Accept] == i {
			fmt.Fprintf(out, "  to accept it: %s\n", p.Accept)
		}
	}
	if wrong > 0 {
		return refuse("%s: %s", file, count(wrong, "problem", "problems"))
	}
	fmt.Fprintf(out, "%s: fits this host\n", file)
	return nil
}

func newManifestSchemaCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of manifests, for editors",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := cmd.OutOrStdout().Write(manifest.Schema())
			return err
		},
	}
}
