package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// replaceFile puts data in the place of file in one step: a session that starts meanwhile reads the old text or the new.
func replaceFile(file string, data []byte) error {
	return besideFile(file, data, os.Rename)
}

// createFile is replaceFile for a file that must not be there: link, unlike rename, does not replace.
func createFile(file string, data []byte) error {
	return besideFile(file, data, os.Link)
}

// besideFile writes a file in the same folder and hands it to place.
func besideFile(file string, data []byte, place func(from, to string) error) error {
	dir := filepath.Dir(file)
	tmp, err := os.CreateTemp(dir, ".manifest-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	// Gone already when it was renamed.
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if _, err := tmp.Write(data); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	if err := tmp.Chmod(0o644); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	// Before the name points at it: after a power cut an empty manifest would be read as damage.
	if err := tmp.Sync(); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	if err := place(tmp.Name(), file); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}
