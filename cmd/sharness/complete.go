package main

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/internal/sidedoor"
)

// completeWords lets a shell offer the words of a flag.
func completeWords(cmd *cobra.Command, flag string, words func() []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words(), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic("completion: " + err.Error()) // no such flag
	}
}

// completeManifests offers the names of manifests, and files.
func completeManifests(cmd *cobra.Command) {
	err := cmd.RegisterFlagCompletionFunc("manifest", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return manifestNames(), cobra.ShellCompDirectiveDefault
	})
	if err != nil {
		panic("completion: " + err.Error())
	}
}

func manifestNames() (names []string) {
	files, err := filepath.Glob(filepath.Join(manifestDir, "*.yaml"))
	if err != nil {
		panic("completion: the pattern is wrong: " + err.Error())
	}
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".yaml"))
	}
	return names
}

// twoManifests offers names of manifests for both arguments of diff and merge, and files.
func twoManifests(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return manifestNames(), cobra.ShellCompDirectiveDefault
}

// commandNames offers what there are manifests for, and programs by their path.
func commandNames(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault // the command's own
	}
	return manifestNames(), cobra.ShellCompDirectiveDefault
}

// logNames offers the logs that events and why find by name, and files. Only root can list the logs; the names of manifests
// anybody can, and a log has that of its manifest.
func logNames(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	files, err := filepath.Glob(filepath.Join(logDir, "*.jsonl"))
	if err != nil {
		panic("completion: the pattern is wrong: " + err.Error())
	}
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".jsonl"))
	}
	if len(names) == 0 {
		names = manifestNames()
	}
	return names, cobra.ShellCompDirectiveDefault
}

func doorIDs() (ids []string) {
	for _, d := range sidedoor.Doors() {
		ids = append(ids, d.ID)
	}
	return ids
}

func eventTypes() (names []string) {
	for _, t := range event.Types() {
		names = append(names, string(t))
	}
	slices.Sort(names)
	return names
}
