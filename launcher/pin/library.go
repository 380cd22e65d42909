package pin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sharness/sharness/manifest"
)

// Library follows a shared object that program loads by path once it runs, which DT_NEEDED of the program does not
// tell. It returns the object and what it needs beyond what the program has loaded by then, ordered by path.
func (o Options) Library(library, program string) ([]manifest.File, error) {
	w := newWalk(o)
	real, err := w.image(program, manifest.RoleProgram, 0)
	if err != nil {
		return nil, fmt.Errorf("pin %s: %w", library, err)
	}
	f, err := Open(real)
	if err != nil {
		return nil, fmt.Errorf("pin %s: %w", library, err)
	}
	defer f.Close()
	by, err := readObject(f, real)
	if err != nil {
		return nil, fmt.Errorf("pin %s: %w", library, err)
	}
	var l *loader
	for _, l = range w.loaders {
		break // one program has one at most
	}
	if l == nil {
		return nil, fmt.Errorf("pin %s: %s is static and loads no libraries", library, real)
	}
	have := w.libraries
	w.libraries = map[string]bool{}
	s := &search{loader: l, w: w, named: map[string]bool{}}
	if err := s.add(library, loading{by, nil}); err != nil {
		return nil, fmt.Errorf("pin %s: %w", library, err)
	}
	if err := s.rest(); err != nil {
		return nil, fmt.Errorf("pin %s: %w", library, err)
	}
	var files []manifest.File
	for path := range w.libraries {
		if have[path] {
			continue
		}
		sum, err := Hash(path)
		if err != nil {
			return nil, fmt.Errorf("pin %s: %w", library, err)
		}
		files = append(files, manifest.File{Path: path, SHA256: sum})
	}
	slices.SortFunc(files, func(a, b manifest.File) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}
