// Package pin finds what a program needs to start, and says whether it is still what it was.
//
// Resolve follows a command to the images and libraries that the kernel and the dynamic loader will take: through
// PATH, symlinks, #! lines, PT_INTERP and DT_NEEDED. Verify reads all of it again. CheckOwner and ReadManifest refuse
// files that something inside a session could change.
//
// It reads files and starts nothing. What a program opens by name later (dlopen, plug-ins) it cannot know, except for
// the few libraries that the C library itself loads that way. It promises nothing about a file between two calls: who
// starts a program hashes it once more through the descriptor that is executed (HashFD).
package pin

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sharness/sharness/manifest"
)

// Closure is a command and everything that has to be pinned for it to start.
type Closure struct {
	Way       []string        // from the command as it was found to Program; each but the last is a symlink, its folder resolved
	Program   string          // resolved
	Exec      []manifest.Exec // ordered by path
	Libraries []manifest.File // ordered by path
	Links     []string        // symlinks by which the rest is found, and which have to be visible where the program starts
	Warnings  []string        // what a person should know before pinning this
}

// Options change what Resolve accepts. The zero value has no PATH and accepts no privileged file.
type Options struct {
	Path       string // where commands are looked up, as the environment variable
	Privileged bool   // accept set-uid and set-gid files and files with capabilities
}

// Resolve finds cmd in pathEnv and follows it. The error wraps ErrNotFound if there is no such command.
func Resolve(cmd, pathEnv string) (*Closure, error) { return Options{Path: pathEnv}.Resolve(cmd) }

// Resolve finds cmd in o.Path and follows it, then hashes what it found.
func (o Options) Resolve(cmd string) (*Closure, error) {
	found, err := LookPath(cmd, o.Path)
	if err != nil {
		return nil, err
	}
	w := newWalk(o)
	program, err := w.image(found, manifest.RoleProgram, 0)
	if err != nil {
		return nil, fmt.Errorf("pin %s: %w", cmd, err)
	}
	way, err := hops(found)
	if err != nil {
		return nil, fmt.Errorf("pin %s: %w", cmd, err)
	}
	c := &Closure{Way: way, Program: program, Warnings: w.warnings}
	for _, link := range w.links {
		if !slices.Contains(way, link) {
			c.Links = append(c.Links, link)
		}
	}
	for path, role := range w.exec {
		sum, err := Hash(path)
		if err != nil {
			return nil, fmt.Errorf("pin %s: %w", cmd, err)
		}
		c.Exec = append(c.Exec, manifest.Exec{Path: path, SHA256: sum, Role: role})
	}
	for path := range w.libraries {
		sum, err := Hash(path)
		if err != nil {
			return nil, fmt.Errorf("pin %s: %w", cmd, err)
		}
		c.Libraries = append(c.Libraries, manifest.File{Path: path, SHA256: sum})
	}
	slices.SortFunc(c.Exec, func(a, b manifest.Exec) int { return strings.Compare(a.Path, b.Path) })
	slices.SortFunc(c.Libraries, func(a, b manifest.File) int { return strings.Compare(a.Path, b.Path) })
	slices.Sort(c.Links)
	c.Links = slices.Compact(c.Links)
	return c, nil
}

// ErrNotFound says that no folder of PATH has the command.
var ErrNotFound = errors.New("command not found")
