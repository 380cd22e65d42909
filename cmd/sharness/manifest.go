package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sharness/sharness/launcher/pin"
	"github.com/sharness/sharness/manifest"
	"github.com/spf13/cobra"
)

// manifestDir is where manifests are looked for by name.
const manifestDir = "/etc/sharness"

func newManifestCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "manifest",
		Short: "Make, read, check and change the policy of an agent",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newManifestNewCmd(), newManifestShowCmd(), newManifestCheckCmd(), newManifestDiffCmd(),
		newManifestPinCmd(), newManifestApproveCmd(), newManifestAllowCmd(), newManifestMergeCmd(), newManifestSchemaCmd())
	return cmd
}

// manifestFlag adds -m to a command that works on one manifest.
func manifestFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "manifest", "m", "", "manifest `FILE`, or the name of one in "+manifestDir)
	completeManifests(cmd)
}

// manifestPath turns what a person gave for a manifest into the absolute path of its file.
func manifestPath(given string) (string, error) {
	if given == "" {
		return "", refuse("no manifest was named: give one with -m FILE")
	}
	return filepath.Abs(manifestFile(given))
}

// manifestFile is the file that -m means, everywhere: a word without a slash is a name, unless it is a file name already.
func manifestFile(given string) string {
	if strings.Contains(given, "/") || strings.HasSuffix(given, ".yaml") || strings.HasSuffix(given, ".yml") {
		return given
	}
	return filepath.Join(manifestDir, given+".yaml")
}

// manifestArg is what a person types behind -m for a file: its name, if it is one of manifestDir.
func manifestArg(file string) string {
	if name := strings.TrimSuffix(filepath.Base(file), ".yaml"); manifestFile(name) == file {
		return pin.Quote(name)
	}
	return pin.Quote(file)
}

// meant is what a person may have meant with a manifest that is not there: a name is looked for in one folder, in one spelling.
func meant(given string) string {
	if given == "" || manifestFile(given) == given {
		return ""
	}
	for _, file := range []string{"./" + given, "./" + given + ".yaml", "./" + given + ".yml", filepath.Join(manifestDir, given+".yml")} {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return fmt.Sprintf("%s is a name, and there is none of that name in %s; for the file write -m %[3]s, or ", pin.Quote(given), manifestDir, pin.Quote(file))
		}
	}
	return ""
}

// refuse is the error of a request that is understood and not done.
func refuse(format string, args ...any) error {
	return &exitError{126, fmt.Errorf(format, args...)}
}

// loadManifest reads a manifest to look at it. Whether it could be used is for check and enforce to say.
func loadManifest(given string) (*manifest.Document, string, error) {
	file, err := manifestPath(given)
	if err != nil {
		return nil, "", err
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", refuse("%s: there is no such manifest; %smake one: sudo sharness manifest new -m %s -- CMD", file, meant(given), pin.Quote(file))
	}
	if err != nil {
		return nil, "", refuse("%w", err)
	}
	d, err := manifest.ParseDocument(file, data)
	if err != nil {
		return nil, "", refuse("%w", err)
	}
	return d, file, nil
}

// checkManifest refuses a manifest that anything but root could have written.
func checkManifest(file string) error {
	abs, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	if err := pin.CheckManifest(abs); err != nil {
		return fmt.Errorf("manifest %w", err)
	}
	return nil
}

// openManifest reads a manifest to change it. Root changes only what root alone can have written: anything else would
// turn a policy of unknown origin into one that looks approved.
func openManifest(given string) (*manifest.Document, string, error) {
	d, file, err := loadManifest(given)
	if err != nil || os.Geteuid() != 0 {
		return d, file, err
	}
	if err := checkManifest(file); err != nil {
		return nil, "", refuse("%w", err)
	}
	return d, file, nil
}

// saveManifest makes the document say want, writes it and prints what changed.
func saveManifest(cmd *cobra.Command, d *manifest.Document, file string, want *manifest.Manifest) error {
	before := d.Manifest()
	if err := d.Set(want); err != nil {
		return refuse("%s: %w", file, err)
	}
	changes := manifest.Diff(before, d.Manifest())
	if len(changes) == 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "%s: nothing to change\n", file)
		return nil
	}
	if err := replaceFile(file, d.Bytes()); err != nil {
		return unwritten(err)
	}
	for _, c := range changes {
		fmt.Fprintln(cmd.OutOrStdout(), c)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "wrote %s\n", file)
	return nil
}
