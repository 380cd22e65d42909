package pin

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sharness/sharness/manifest"
)

// Library follows a shared object that program loads by path once it runs, which DT_NEEDED of the program does not
// tell. It returns the object and what it needs beyond what the program has loaded by then, ordered by path.
func (o Options) Library(library, program string) ([]manifest.File, error) {
	p, err := o.started(program)
	if err != nil {
		return nil, fmt.Errorf("pin %s: %w", library, err)
	}
	more, err := p.follow(library)
	if err != nil {
		return nil, fmt.Errorf("pin %s: %w", library, err)
	}
	var files []manifest.File
	for _, path := range more {
		sum, err := Hash(path)
		if err != nil {
			return nil, fmt.Errorf("pin %s: %w", library, err)
		}
		files = append(files, manifest.File{Path: path, SHA256: sum})
	}
	return files, nil
}

// started is a program with what it has loaded when it runs.
type started struct {
	*object
	loader *loader
	walk   *walk
	have   map[string]bool
}

func (o Options) started(program string) (*started, error) {
	w := newWalk(o)
	real, err := w.image(program, manifest.RoleProgram, 0)
	if err != nil {
		return nil, err
	}
	f, err := Open(real)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	by, err := readObject(f, real)
	if err != nil {
		return nil, err
	}
	for _, l := range w.loaders {
		return &started{by, l, w, w.libraries}, nil // one program has one at most
	}
	return nil, fmt.Errorf("%s is static and loads no libraries", real)
}

// follow lists library and what it needs beyond what the program has.
func (p *started) follow(library string) ([]string, error) {
	if err := sharedObject(library); err != nil {
		return nil, err
	}
	p.walk.libraries = map[string]bool{}
	s := &search{loader: p.loader, w: p.walk, named: map[string]bool{}}
	if err := s.add(library, loading{p.object, nil}); err != nil {
		return nil, err
	}
	if err := s.rest(); err != nil {
		return nil, err
	}
	var more []string
	for path := range p.walk.libraries {
		if !p.have[path] {
			more = append(more, path)
		}
	}
	slices.Sort(more)
	return more, nil
}

// sharedObject refuses a file that no loader takes, whatever it looks for beside it.
func sharedObject(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the search says so, and where it looked
	}
	if err != nil {
		return err
	}
	f, err := Open(real)
	if err != nil {
		return err
	}
	defer f.Close()
	magic := make([]byte, 4)
	if n, _ := f.ReadAt(magic, 0); string(magic[:n]) != elf.ELFMAG {
		return errors.New("is no shared object")
	}
	return nil
}

// Extensions adds to c the modules that an interpreter in it keeps as shared objects and loads by path: those of Python's
// standard library, without which "import ssl" fails. What cannot be followed is a warning: a module whose library is
// not installed does not work outside either. Packages beside the standard library are not looked for.
func (o Options) Extensions(c *Closure) error {
	for _, e := range c.Exec {
		if !isPython(filepath.Base(e.Path)) {
			continue
		}
		p, err := o.started(e.Path)
		if err != nil {
			continue // static: it has its modules within
		}
		for _, module := range pythonModules(e.Path) {
			more, err := p.follow(module)
			if err != nil {
				c.Warnings = append(c.Warnings, fmt.Sprintf("%s is left out: %v", module, err))
				continue
			}
			for _, path := range more {
				if slices.ContainsFunc(c.Libraries, func(f manifest.File) bool { return f.Path == path }) {
					continue
				}
				sum, err := Hash(path)
				if err != nil {
					return fmt.Errorf("pin %s: %w", module, err)
				}
				c.Libraries = append(c.Libraries, manifest.File{Path: path, SHA256: sum})
			}
		}
	}
	slices.SortFunc(c.Libraries, func(a, b manifest.File) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

// isPython is true for python3.11, the name that python3 and the links of an environment lead to.
func isPython(base string) bool {
	minor, ok := strings.CutPrefix(base, "python3.")
	return ok && minor != "" && strings.Trim(minor, "0123456789") == ""
}

// pythonModules are the files of lib-dynload, without those that are there to test the interpreter.
func pythonModules(program string) (modules []string) {
	for _, lib := range []string{"lib", "lib64"} {
		dir := filepath.Join(filepath.Dir(filepath.Dir(program)), lib, filepath.Base(program), "lib-dynload")
		files, err := filepath.Glob(escapeGlob(dir) + "/*.so")
		if err != nil {
			panic("pin: the pattern is wrong: " + err.Error())
		}
		for _, file := range files {
			base := filepath.Base(file)
			if !strings.HasPrefix(base, "_test") && !strings.HasPrefix(base, "_xx") && !strings.HasPrefix(base, "xx") {
				modules = append(modules, file)
			}
		}
	}
	return modules
}
