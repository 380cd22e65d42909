package pin

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/sharness/sharness/manifest"
	"golang.org/x/sys/unix"
)

// script follows a #! line the way fs/binfmt_script.c does.
func (w *walk) script(path string, head []byte, depth int) error {
	interpreter, arg, err := shebang(head)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if !filepath.IsAbs(interpreter) {
		return fmt.Errorf("%s: #!%s: a relative interpreter is whatever lies in the current folder", path, interpreter)
	}
	if _, err := w.image(interpreter, manifest.RoleInterpreter, depth+1); err != nil {
		return fmt.Errorf("%s: #!: %w", path, err)
	}
	if filepath.Base(interpreter) != "env" {
		w.warnShell(path, interpreter)
		return nil
	}
	name, err := envCommand(arg)
	if err != nil {
		return fmt.Errorf("%s: #!%s %s: %w", path, interpreter, arg, err)
	}
	found, err := LookPath(name, w.Path)
	if err != nil {
		return fmt.Errorf("%s: #!%s: %w", path, interpreter, err)
	}
	// env execs it: not one more interpreter in the kernel's count, which begins anew.
	if _, err := w.image(found, manifest.RoleInterpreter, 0); err != nil {
		return fmt.Errorf("%s: #!%s: %w", path, interpreter, err)
	}
	w.warnShell(path, found)
	return nil
}

// shebang splits the first line into the interpreter and its one argument. head is what the kernel sees of the file.
func shebang(head []byte) (interpreter, arg string, err error) {
	line, _, whole := bytes.Cut(head[len("#!"):], []byte("\n"))
	if i := bytes.IndexByte(line, 0); i >= 0 {
		line, whole = line[:i], true
	}
	line = bytes.TrimLeft(line, " \t")
	// The kernel cuts a longer argument off. What is left of it may name another program than the one meant.
	if !whole && len(head) == headBytes {
		return "", "", fmt.Errorf("the #! line is longer than the %d bytes the kernel reads: %w", headBytes, unix.ENOEXEC)
	}
	line = bytes.TrimRight(line, " \t")
	if len(line) == 0 {
		return "", "", fmt.Errorf("the #! line names no interpreter: %w", unix.ENOEXEC)
	}
	if i := bytes.IndexAny(line, " \t"); i >= 0 {
		return string(line[:i]), strings.TrimLeft(string(line[i:]), " \t"), nil
	}
	return string(line), "", nil
}

// envCommand says which program env starts for the one argument a #! line can give it. Without -S that argument is one
// word, spaces and all. Options that change the search or the folder are refused rather than interpreted.
func envCommand(arg string) (string, error) {
	words := []string{arg}
	for _, option := range []string{"-S", "--split-string="} {
		if rest, ok := strings.CutPrefix(arg, option); ok {
			if strings.ContainsAny(rest, "\"'\\$#") {
				return "", fmt.Errorf("quotes, escapes and variables in it are not followed")
			}
			words = strings.Fields(rest)
		}
	}
	for _, word := range words {
		switch name, _, assigns := strings.Cut(word, "="); {
		case strings.HasPrefix(word, "-"), word == "":
			return "", fmt.Errorf("cannot tell which program that starts")
		case assigns && name == "PATH":
			return "", fmt.Errorf("it sets PATH, which is not followed")
		case assigns:
		default:
			return word, nil
		}
	}
	return "", fmt.Errorf("cannot tell which program that starts")
}
