package pin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// loader knows where a dynamic loader looks for libraries: ld.so(8) for glibc, ldso/dynlink.c for musl.
type loader struct {
	path  string // resolved
	musl  bool
	cache map[string][]string // glibc: /etc/ld.so.cache
	dirs  []string            // what it looks through last
}

// newLoader reads the loader's configuration on this host. asked is PT_INTERP, whose name tells the C library.
func newLoader(asked, real string) (*loader, error) {
	l := &loader{path: real}
	if name := filepath.Base(asked); strings.HasPrefix(name, "ld-musl-") {
		l.musl = true
		l.dirs = []string{"/lib", "/usr/local/lib", "/usr/lib"}
		conf := strings.TrimSuffix(name, ".so.1") + ".path"
		data, err := os.ReadFile(filepath.Join("/etc", conf))
		if err == nil {
			l.dirs = strings.FieldsFunc(string(data), func(r rune) bool { return r == ':' || r == '\n' })
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		return l, nil
	}
	data, err := os.ReadFile("/etc/ld.so.cache")
	if err == nil {
		l.cache, err = parseCache(data)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("/etc/ld.so.cache: %w", err)
	}
	// Debian's own triplet folders first; others have lib64. What does not exist is passed over.
	for _, lib := range libDirs {
		l.dirs = append(l.dirs, "/"+lib, "/usr/"+lib)
	}
	return l, nil
}

// libDirs are the values $LIB has on distributions.
var libDirs = map[string][]string{
	"amd64":   {"lib/x86_64-linux-gnu", "lib64", "lib"},
	"arm64":   {"lib/aarch64-linux-gnu", "lib64", "lib"},
	"riscv64": {"lib/riscv64-linux-gnu", "lib64", "lib"},
	"loong64": {"lib/loongarch64-linux-gnu", "lib64", "lib"},
	"s390x":   {"lib/s390x-linux-gnu", "lib64", "lib"},
	"ppc64le": {"lib/powerpc64le-linux-gnu", "lib64", "lib"},
}[runtime.GOARCH]

// late are libraries that glibc opens by name when it needs them, so no program lists them. Without libgcc_s a thread
// that is cancelled, or a backtrace, aborts the program; without the two NSS modules names and users do not resolve
// (since 2.34 they are part of libc, and stubs where they exist).
var late = []string{"libgcc_s.so.1", "libnss_files.so.2", "libnss_dns.so.2"}

// muslOwn are the names that musl's loader answers itself, being its libc too.
var muslOwn = []string{"libc.", "libpthread.", "librt.", "libm.", "libdl.", "libutil.", "libxnet."}

// loading is one library, and the chain of objects that led to it (DT_RPATH is inherited).
type loading struct {
	*object
	parents []*object
}

// search is the loading of one program.
type search struct {
	*loader
	w     *walk
	named map[string]bool // names that need no file any more
	queue []loading
	late  bool
}

// load adds every library of a program to w, in the loader's order: breadth first, each name once.
func (l *loader) load(w *walk, program *object) error {
	s := &search{loader: l, w: w, named: map[string]bool{filepath.Base(program.interp): true}, queue: []loading{{program, nil}}}
	if err := s.rest(); err != nil || l.musl {
		return err
	}
	s.late = true
	for _, name := range late {
		if err := s.add(name, loading{program, nil}); err != nil {
			return err
		}
	}
	return s.rest()
}

// rest follows what is queued until nothing is.
func (s *search) rest() error {
	for ; len(s.queue) > 0; s.queue = s.queue[1:] {
		by := s.queue[0]
		for _, name := range by.needed {
			if err := s.add(name, by); err != nil {
				return err
			}
		}
	}
	return nil
}

// add finds the library that by asks for under name.
func (s *search) add(name string, by loading) error {
	own := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	if s.named[name] || s.musl && slices.ContainsFunc(muslOwn, own) {
		return nil
	}
	s.named[name] = true
	files, err := s.find(name, by)
	if err != nil {
		return err
	}
	if len(files) == 0 && !s.late {
		return fmt.Errorf("%s needs %s, which is nowhere that %s looks", by.path, name, s.path)
	}
	for _, file := range files {
		real, err := s.w.resolve(file)
		if err != nil {
			return err
		}
		if real == s.path {
			continue
		}
		o, err := openObject(real)
		if err != nil {
			return err
		}
		// A later DT_NEEDED of the same soname is this library.
		s.named[o.soname] = true
		if _, also := s.w.exec[real]; !also {
			s.w.late[real] = s.late && (s.w.late[real] || !s.w.libraries[real])
			s.w.libraries[real] = true
		}
		s.queue = append(s.queue, loading{o, append([]*object{by.object}, by.parents...)})
	}
	return nil
}

func openObject(path string) (*object, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := unprivileged(f); err != nil {
		return nil, err
	}
	return readObject(f, path)
}

// find returns the file that the loader takes for name. Where it prefers a variant for the processor it runs on
// (glibc-hwcaps), every variant in that folder comes along: a manifest should not depend on which host it was made on.
func (l *loader) find(name string, by loading) ([]string, error) {
	if strings.Contains(name, "/") {
		var all []string
		for _, file := range expand(name, by.object) {
			if !filepath.IsAbs(file) {
				return nil, fmt.Errorf("%s needs %s: a relative path is whatever lies in the current folder", by.path, name)
			}
			if fits(file) {
				all = append(all, file)
			}
		}
		return all, nil
	}
	for _, dir := range l.own(by) {
		if !filepath.IsAbs(dir) {
			return nil, fmt.Errorf("%s looks for libraries in %q: a relative path is whatever lies in the current folder", by.path, dir)
		}
		if files := variants(dir, name); len(files) > 0 {
			return files, nil
		}
	}
	if cached := slices.DeleteFunc(slices.Clone(l.cache[name]), func(file string) bool { return !fits(file) }); len(cached) > 0 && !by.noDefault {
		return cached, nil
	}
	if by.noDefault && !l.musl {
		return nil, nil
	}
	for _, dir := range l.dirs {
		if files := variants(dir, name); len(files) > 0 {
			return files, nil
		}
	}
	return nil, nil
}

// own are the folders the objects themselves name. glibc: DT_RPATH of the object and of those that loaded it, unless the
// object has a DT_RUNPATH, which counts for it alone. musl makes no difference between the two and inherits both.
func (l *loader) own(by loading) []string {
	var dirs []string
	add := func(o *object, paths []string) {
		for _, p := range paths {
			if p != "" {
				dirs = append(dirs, expand(p, o)...)
			}
		}
	}
	chain := append([]*object{by.object}, by.parents...)
	if l.musl {
		for _, o := range chain {
			add(o, o.rpath)
			add(o, o.runpath)
		}
		return dirs
	}
	if !by.hasRunpath {
		for _, o := range chain {
			if !o.hasRunpath {
				add(o, o.rpath)
			}
		}
	}
	add(by.object, by.runpath)
	return dirs
}

// expand replaces the loader's own variables.
func expand(path string, o *object) []string {
	for _, name := range []string{"ORIGIN", "PLATFORM", "LIB"} {
		path = strings.ReplaceAll(path, "${"+name+"}", "$"+name)
	}
	path = strings.ReplaceAll(path, "$ORIGIN", filepath.Dir(o.path))
	path = strings.ReplaceAll(path, "$PLATFORM", map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH])
	if !strings.Contains(path, "$LIB") {
		return []string{path}
	}
	var all []string
	for _, lib := range libDirs {
		all = append(all, strings.ReplaceAll(path, "$LIB", lib))
	}
	return all
}

// variants are the files of that name in dir that this processor could run, the plain one and those of glibc-hwcaps.
func variants(dir, name string) []string {
	var all []string
	special, err := filepath.Glob(escapeGlob(dir) + "/glibc-hwcaps/*/" + escapeGlob(name))
	if err != nil {
		panic("pin: the pattern is wrong: " + err.Error())
	}
	for _, file := range append(special, filepath.Join(dir, name)) {
		if fits(file) {
			all = append(all, file)
		}
	}
	return all
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}

// fits: the loader passes over what it cannot open and what was built for another processor, and looks further.
func fits(file string) bool {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return false
	}
	f, err := Open(real)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = readObject(f, real)
	return err == nil
}
