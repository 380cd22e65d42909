package pin

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/sharness/sharness/manifest"
)

// object is what the loader reads of one ELF file.
type object struct {
	path       string // resolved
	interp     string // PT_INTERP, not resolved; empty for a static program and for most libraries
	needed     []string
	soname     string
	rpath      []string
	runpath    []string
	noDefault  bool // DF_1_NODEFLIB: only the paths of the object itself count
	hasRunpath bool
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "riscv64": elf.EM_RISCV, "loong64": elf.EM_LOONGARCH, "s390x": elf.EM_S390, "ppc64le": elf.EM_PPC64}

var errForeign = errors.New("built for another processor")

// maxStrings bounds a string table and a dynamic section: the largest seen in real programs are below 2 MiB.
const maxStrings = 64 << 20

// readObject reads the program headers and the dynamic section they point at. Section headers are not looked at for
// that: the loader does not read them either, and they may be missing or say something else.
func readObject(r io.ReaderAt, path string) (*object, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f.Machine != machines[runtime.GOARCH] || f.Class != elf.ELFCLASS64 {
		return nil, fmt.Errorf("%s: %s, %s: %w", path, f.Machine, f.Class, errForeign)
	}
	o := &object{path: path}
	for _, p := range f.Progs {
		switch p.Type {
		case elf.PT_INTERP:
			// binfmt_elf.c refuses a longer one, and one without a NUL at its end.
			if p.Filesz < 2 || p.Filesz > 4096 {
				return nil, fmt.Errorf("%s: PT_INTERP of %d bytes", path, p.Filesz)
			}
			b := make([]byte, p.Filesz)
			if _, err := p.ReadAt(b, 0); err != nil {
				return nil, fmt.Errorf("%s: PT_INTERP: %w", path, err)
			}
			interp, _, ended := strings.Cut(string(b), "\x00")
			if !ended || !filepath.IsAbs(interp) {
				return nil, fmt.Errorf("%s: PT_INTERP %q: not an absolute path with a NUL at its end", path, interp)
			}
			o.interp = interp
		case elf.PT_DYNAMIC:
			if err := o.dynamic(f, p); err != nil {
				return nil, fmt.Errorf("%s: PT_DYNAMIC: %w", path, err)
			}
		}
	}
	return o, nil
}

func (o *object) dynamic(f *elf.File, p *elf.Prog) error {
	if p.Filesz > maxStrings {
		return fmt.Errorf("%d bytes", p.Filesz)
	}
	b := make([]byte, p.Filesz)
	if _, err := p.ReadAt(b, 0); err != nil {
		return err
	}
	type tagged struct{ tag, value uint64 }
	var entries []tagged
	var at, size uint64
	for ; len(b) >= 16; b = b[16:] {
		e := tagged{f.ByteOrder.Uint64(b), f.ByteOrder.Uint64(b[8:])}
		if elf.DynTag(e.tag) == elf.DT_NULL {
			break
		}
		switch elf.DynTag(e.tag) {
		case elf.DT_STRTAB:
			at = e.value
		case elf.DT_STRSZ:
			size = e.value
		}
		entries = append(entries, e)
	}
	table, err := stringTable(f, at, size)
	if err != nil {
		return err
	}
	for _, e := range entries {
		text := func() (string, error) {
			if e.value >= uint64(len(table)) {
				return "", fmt.Errorf("a name behind the end of the string table")
			}
			s, _, _ := strings.Cut(table[e.value:], "\x00")
			return s, nil
		}
		var s string
		switch elf.DynTag(e.tag) {
		case elf.DT_NEEDED, elf.DT_SONAME, elf.DT_RPATH, elf.DT_RUNPATH, elf.DT_AUXILIARY, elf.DT_FILTER:
			if s, err = text(); err != nil {
				return err
			}
		}
		switch elf.DynTag(e.tag) {
		case elf.DT_NEEDED, elf.DT_AUXILIARY, elf.DT_FILTER:
			o.needed = append(o.needed, s)
		case elf.DT_SONAME:
			o.soname = s
		case elf.DT_RPATH:
			o.rpath = strings.Split(s, ":")
		case elf.DT_RUNPATH:
			o.runpath, o.hasRunpath = strings.Split(s, ":"), true
		case elf.DT_FLAGS_1:
			o.noDefault = elf.DynFlag1(e.value)&elf.DF_1_NODEFLIB != 0
		}
	}
	return nil
}

// stringTable finds the table by its address, through the segment that maps it.
func stringTable(f *elf.File, at, size uint64) (string, error) {
	if size == 0 {
		return "", nil
	}
	if size > maxStrings {
		return "", fmt.Errorf("a string table of %d bytes", size)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && at >= p.Vaddr && at-p.Vaddr <= p.Filesz && size <= p.Filesz-(at-p.Vaddr) {
			b := make([]byte, size)
			if _, err := p.ReadAt(b, int64(at-p.Vaddr)); err != nil {
				return "", err
			}
			return string(b), nil
		}
	}
	return "", fmt.Errorf("the string table lies in no segment")
}

// elf follows a program to its loader, and through the loader's eyes to its libraries.
func (w *walk) elf(f *os.File, path string, depth int) error {
	o, err := readObject(f, path)
	if err != nil {
		return err
	}
	if o.interp == "" {
		// A static program, or a loader itself. What a static glibc loads late (NSS) is not found this way.
		return nil
	}
	loaderPath, err := w.image(o.interp, manifest.RoleLoader, depth+1)
	if err != nil {
		return fmt.Errorf("%s: loader: %w", path, err)
	}
	l := w.loaders[loaderPath]
	if l == nil {
		if l, err = newLoader(o.interp, loaderPath); err != nil {
			return fmt.Errorf("%s: loader %s: %w", path, o.interp, err)
		}
		w.loaders[loaderPath] = l
	}
	return l.load(w, o)
}
