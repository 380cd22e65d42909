package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/sharness/sharness/event"
	"github.com/sharness/sharness/launcher"
	"github.com/sharness/sharness/launcher/pin"
)

// accept says of each changed file what it was, what it is and of which version, and how to accept them all.
func accept(changed *launcher.ChangedError, manifest string) error {
	var said []string
	command := "sudo sharness manifest pin -m " + manifestArg(manifest)
	for _, c := range append([]*launcher.ChangedError{changed}, changed.Also...) {
		said = append(said, c.Error()+versionOf(c.Path))
		command += " " + pin.Quote(c.Path)
	}
	it := "it"
	if len(said) > 1 {
		it = "them"
	}
	return fmt.Errorf("%s; if you updated %s: %s", strings.Join(said, "; "), it, command)
}

// maxPackage bounds a package.json.
const maxPackage = 1 << 20

// versionOf is the package that a file belongs to, as far as a package.json beside or above it says: the file itself is not
// asked, because that would run it.
func versionOf(path string) string {
	for dir := filepath.Dir(path); dir != "/" && filepath.Base(dir) != "node_modules"; dir = filepath.Dir(dir) {
		f, err := os.Open(filepath.Join(dir, "package.json"))
		if err != nil {
			continue
		}
		var p struct{ Name, Version string }
		err = json.NewDecoder(io.LimitReader(f, maxPackage)).Decode(&p)
		f.Close()
		if err != nil || p.Version == "" {
			continue
		}
		return " (now of " + event.Escape(strings.TrimSpace(p.Name+" "+p.Version)) + ")"
	}
	return ""
}
