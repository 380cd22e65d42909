package pin

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// LookPath finds the file that cmd means, as an absolute path, not resolved. A cmd with a slash is taken as it is.
// Relative and empty folders of path are passed over: they mean the current folder, which is where an agent writes.
func LookPath(cmd, path string) (string, error) {
	if cmd == "" {
		return "", fmt.Errorf("%w: the name is empty", ErrNotFound)
	}
	if strings.Contains(cmd, "/") {
		abs, err := filepath.Abs(cmd)
		if err != nil {
			return "", fmt.Errorf("%s: %w", cmd, err)
		}
		return abs, executable(abs)
	}
	var first error
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		file := filepath.Join(dir, cmd)
		err := executable(file)
		if err == nil {
			return file, nil
		}
		if first == nil && !os.IsNotExist(err) {
			first = err
		}
	}
	if first != nil {
		return "", fmt.Errorf("%s: %w (%v)", cmd, ErrNotFound, first)
	}
	return "", fmt.Errorf("%s: %w in %s", cmd, ErrNotFound, path)
}

// executable asks for any execute bit: root may start a file that has one, whoever it is for.
func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &os.PathError{Op: "exec", Path: path, Err: errNotRegular}
	}
	if info.Mode()&0o111 == 0 {
		return &os.PathError{Op: "exec", Path: path, Err: fmt.Errorf("%w: it has no execute bit; if it is a program: chmod +x %s", os.ErrPermission, Quote(path))}
	}
	return nil
}

// UserPath is path with the folders behind it where a person's programs are, home being theirs. sudo's secure_path
// hides them, and asking the person's shell would run their files as root. Nothing is started here; folders that do
// not exist do no harm.
func UserPath(path, home string) string {
	list := filepath.SplitList(path)
	if filepath.IsAbs(home) {
		for _, dir := range []string{".local/bin", "bin", ".npm-global/bin", ".bun/bin"} {
			list = append(list, filepath.Join(home, dir))
		}
	}
	list = append(list, "/usr/local/bin")
	opt, err := filepath.Glob("/opt/*/bin")
	if err != nil {
		panic("pin: the pattern is wrong: " + err.Error())
	}
	var once []string
	for _, dir := range append(list, opt...) {
		if !slices.Contains(once, dir) {
			once = append(once, dir)
		}
	}
	return strings.Join(once, string(filepath.ListSeparator))
}
