package pin

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// dispatchers put a script for each program into a folder "shims" and start the version that is in use. Each says which
// that is, as TOOL which NAME.
var dispatchers = []string{"pyenv", "rbenv", "nodenv", "goenv", "jenv", "plenv", "asdf"}

// warnShell says of a shell's script that it is one: what it starts is not found by following it, and is not pinned.
func (w *walk) warnShell(path, interpreter string) {
	shell := filepath.Base(interpreter)
	if !slices.Contains(shells, shell) {
		return
	}
	dir, name := filepath.Dir(path), filepath.Base(path)
	is := fmt.Sprintf("%s is a script of %s, and what it starts is not pinned", path, shell)
	if filepath.Base(dir) != "shims" {
		w.warnings = append(w.warnings, is+": if it only starts a program, name that program's file instead")
		return
	}
	next := "name that program's file instead"
	if tool := strings.TrimPrefix(filepath.Base(filepath.Dir(dir)), "."); slices.Contains(dispatchers, tool) {
		next = fmt.Sprintf("name that program instead, as \"$(%s which %s)\"", tool, Quote(name))
	}
	w.warnings = append(w.warnings, fmt.Sprintf("%s: most likely a shim, which starts the version of %s that is in use; %s", is, name, next))
}
