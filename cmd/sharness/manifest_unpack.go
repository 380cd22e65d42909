package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/sharness/sharness/internal/embedded"
	"github.com/sharness/sharness/launcher/pin"
	"github.com/sharness/sharness/manifest"
)

// libraryDir holds the libraries that were taken out of programs: a folder for each manifest, and in it one for each
// version of its program.
const libraryDir = "/var/lib/sharness/lib"

// ownNames are what sharness keeps beside the agents' folders.
var ownNames = []string{"lib", "protected", "quarantine", "uids", "uids.lock"}

// unpack writes the libraries that the profile knows to lie in the program where the program will look for them, and
// pins them in m. A library that is not there is a warning: another version of the program may do without.
func unpack(m *manifest.Manifest, list []manifest.Embedded, o pin.Options, program string) (warnings []string, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	f, err := pin.Open(program)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	found, err := embedded.Find(f, info.Size())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	// As the rest of sharness makes it: others may look for a name in it, and not list it.
	if err := os.MkdirAll(filepath.Dir(libraryDir), 0o711); err != nil {
		return nil, fmt.Errorf("make the folder for libraries: %w", err)
	}
	for _, e := range list {
		same := slices.DeleteFunc(slices.Clone(found), func(l embedded.Library) bool { return l.Soname != e.Soname })
		if len(same) != 1 {
			warnings = append(warnings, fmt.Sprintf("%s: holds %s named %s, where the profile expects one: what needs it will not work", program, count(len(same), "library", "libraries"), e.Soname))
			continue
		}
		data := make([]byte, same[0].Size)
		if _, err := io.ReadFull(io.NewSectionReader(f, same[0].Offset, same[0].Size), data); err != nil {
			return nil, fmt.Errorf("%s: read %s: %w", program, e.Soname, err)
		}
		dir := versionDir(m, program)
		place, err := e.Place()
		if err != nil {
			return nil, err
		}
		path := filepath.Join(dir, place)
		if err := makeFolder(filepath.Dir(path)); err != nil {
			return nil, err
		}
		if err := replaceFile(path, data); err != nil {
			return nil, err
		}
		files, err := o.Library(path, program)
		if err != nil {
			return nil, err
		}
		known := paths(m)
		for _, file := range files {
			if !slices.Contains(known, file.Path) {
				m.Libraries = append(m.Libraries, file)
			}
		}
		if m.Env.Set == nil {
			m.Env.Set = map[string]string{}
		}
		m.Env.Set[e.Env] = dir
	}
	return warnings, nil
}

// versionDir is the folder for the libraries of one version of a program: a session that runs keeps those it started with.
func versionDir(m *manifest.Manifest, program string) string {
	version := ""
	for _, e := range m.Exec {
		if e.Path == program {
			version = e.SHA256[:16]
		}
	}
	return filepath.Join(libraryDir, m.Name, version)
}

// makeFolder makes a folder and those above it, whatever the umask, and refuses one that others could write to.
func makeFolder(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := makeFolder(filepath.Dir(dir)); err != nil {
			return err
		}
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make the folder for libraries: %w", err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			return fmt.Errorf("make the folder for libraries: %w", err)
		}
	}
	return pin.CheckManifest(dir)
}

// unpackAgain does for the program, if it is among what was pinned anew, what manifest new did. Variables that a person
// has set otherwise since, or taken out, stay as they are.
func unpackAgain(m *manifest.Manifest, o pin.Options, pinned []string) (warnings []string, err error) {
	program, err := realPath(m.Command[0])
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // check says so
	}
	if err != nil {
		return nil, err
	}
	is := func(path string) bool {
		real, err := realPath(path)
		return err == nil && real == program
	}
	if !slices.ContainsFunc(pinned, is) || !slices.Contains(manifest.Profiles(), m.Profile) {
		return nil, nil
	}
	profile, err := manifest.Profile(m.Profile)
	if err != nil {
		return nil, err
	}
	var list []manifest.Embedded
	for _, e := range profile.Embedded {
		if old := m.Env.Set[e.Env]; pin.Below(old, filepath.Join(libraryDir, m.Name)) {
			m.Libraries = slices.DeleteFunc(m.Libraries, func(f manifest.File) bool { return pin.Below(f.Path, old) })
			list = append(list, e)
		}
	}
	for _, e := range list {
		delete(m.Env.Set, e.Env)
	}
	return unpack(m, list, o, program)
}
