package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sharness/sharness/launcher/pin"
	"github.com/sharness/sharness/manifest"
)

// proposedSuffix marks what learn writes beside a manifest.
const proposedSuffix = ".proposed"

func newManifestApproveCmd() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:     "approve [-m FILE]",
		Short:   "Make what learn proposed the policy",
		Long:    "Shows what FILE.proposed changes and puts it in the place of FILE, in one step. Without -m there must be one proposal\nin " + manifestDir + ".",
		Example: "  sudo sharness manifest approve -m claude",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				var err error
				if file, err = onlyProposal(); err != nil {
					return err
				}
			}
			file, err := manifestPath(file)
			if err != nil {
				return err
			}
			return approve(cmd.OutOrStdout(), file)
		},
	}
	manifestFlag(cmd, &file)
	return cmd
}

// onlyProposal is the manifest for which there is a proposal, if that is one.
func onlyProposal() (string, error) {
	found, err := filepath.Glob(filepath.Join(manifestDir, "*.yaml"+proposedSuffix))
	if err != nil {
		panic("manifest: the pattern is wrong: " + err.Error())
	}
	switch len(found) {
	case 0:
		return "", refuse("%s: no proposal lies there; make one: sudo sharness learn -- CMD", manifestDir)
	case 1:
		return strings.TrimSuffix(found[0], proposedSuffix), nil
	}
	return "", refuse("%s: several proposals lie there: name one with -m: %s", manifestDir, strings.Join(found, ", "))
}

// approve puts a proposal into force. It is read as strictly as a manifest that is enforced, and only root can have
// written it.
func approve(out io.Writer, file string) error {
	proposed := file + proposedSuffix
	if _, err := os.Lstat(proposed); errors.Is(err, os.ErrNotExist) {
		return refuse("%s: there is no such proposal; make one: sudo sharness learn -m %s -- CMD", proposed, manifestArg(file))
	}
	data, err := pin.ReadManifest(proposed)
	if err != nil {
		return refuse("proposal %w", err)
	}
	next, err := manifest.Parse(proposed, data)
	if err != nil {
		return refuse("%w", err)
	}
	if next.Learned == nil || !next.Learned.Complete {
		return refuse("%s: was learned from an incomplete run; learn again", proposed)
	}
	switch former, err := pin.ReadManifest(file); {
	case errors.Is(err, os.ErrNotExist):
		fmt.Fprintf(out, "%s: new: %s, %s, %s\n", file, count(len(next.Exec), "program", "programs"),
			count(len(next.Libraries), "library", "libraries"), count(len(next.Route), "route", "routes"))
	case err != nil:
		return refuse("manifest %w", err)
	default:
		old, err := manifest.Parse(file, former)
		if err != nil {
			return refuse("%w", err)
		}
		for _, c := range manifest.Diff(old, next) {
			fmt.Fprintln(out, c)
		}
	}
	// The bytes that were checked, whatever the name leads to by now.
	if err := replaceFile(file, data); err != nil {
		return unwritten(err)
	}
	if err := os.Remove(proposed); err != nil {
		return &exitError{125, fmt.Errorf("remove the proposal: %w", err)}
	}
	fmt.Fprintf(out, "approved %s\nnext: sudo sharness enforce -m %s -- %s\n", file, manifestArg(file), pin.Quote(next.Command[0]))
	return nil
}
