package pin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Native looks for the program that a package's script starts: the first of patterns, relative to the folder of the
// resolved script, that matches a program of this processor. It is empty if none does. Several different files under
// one pattern are an error: which one the script would take is its own affair.
func Native(script string, patterns []string) (string, error) {
	for _, pattern := range patterns {
		files, err := filepath.Glob(escapeGlob(filepath.Dir(script)) + "/" + pattern)
		if err != nil {
			return "", fmt.Errorf("native %s: %w", pattern, err)
		}
		var real []string
		var first fs.FileInfo
		for _, file := range files {
			path, err := filepath.EvalSymlinks(file)
			if err != nil {
				return "", fmt.Errorf("native %s: %w", pattern, err)
			}
			info, err := os.Stat(path)
			if err != nil {
				return "", fmt.Errorf("native %s: %w", pattern, err)
			}
			// The packages for every processor may lie side by side, and one file under several names.
			if !startsHere(path) || first != nil && os.SameFile(first, info) {
				continue
			}
			real, first = append(real, path), info
		}
		if len(real) > 1 {
			return "", fmt.Errorf("native %s: matches %s: name the one that is meant", pattern, strings.Join(real, " and "))
		}
		if len(real) == 1 {
			return real[0], nil
		}
	}
	return "", nil
}

// startsHere is true for an ELF program of this processor whose loader is there.
func startsHere(path string) bool {
	f, err := Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	o, err := readObject(f, path)
	if err != nil {
		return false
	}
	_, err = os.Stat(o.interp)
	return o.interp == "" || !errors.Is(err, fs.ErrNotExist)
}
