// Package embedded finds shared objects that lie whole inside another file.
//
// Programs made of one file carry their native libraries with them, write them into /tmp under a new name at each
// start, and load them from there. In a domain nothing in /tmp may be mapped executable, and a name that changes cannot
// be pinned. A library that is taken out beforehand, by its SONAME, can be: at one path, with one hash.
//
// Only what is stored as it is can be found: not what is compressed, and not a library without a SONAME.
package embedded

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Library is one shared object within a file.
type Library struct {
	Soname string
	Offset int64
	Size   int64
}

// magic begins a 64-bit little-endian ELF file; sharness runs on no other kind of machine.
var magic = []byte{0x7f, 'E', 'L', 'F', 2, 1, 1}

// chunk is how much of the file is searched at once.
const chunk = 1 << 20

// Find returns the shared objects within the first size bytes of r, in the order of their offsets. The file itself,
// at offset 0, does not count, and neither does anything inside a library that was found.
func Find(r io.ReaderAt, size int64) ([]Library, error) {
	var found []Library
	buf := make([]byte, chunk+len(magic)-1) // chunks overlap, so that no magic is cut in two
	for at := int64(1); at < size; {
		n, err := r.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if err != nil && !(errors.Is(err, io.EOF) && n > 0) {
			return nil, fmt.Errorf("embedded: read at %d: %w", at, err)
		}
		i := bytes.Index(buf[:n], magic)
		if i < 0 {
			at += chunk
			continue
		}
		at += int64(i)
		l, ok := library(r, at, size-at)
		if !ok {
			at++
			continue
		}
		found = append(found, l)
		at += l.Size
	}
	return found, nil
}

// library reads the object at an offset. That it is none, or is cut off, is no error: the magic may stand anywhere.
func library(r io.ReaderAt, offset, limit int64) (Library, bool) {
	f, err := elf.NewFile(io.NewSectionReader(r, offset, limit))
	if err != nil || f.Type != elf.ET_DYN {
		return Library{}, false
	}
	defer f.Close()
	names, err := f.DynString(elf.DT_SONAME)
	if err != nil || len(names) != 1 {
		return Library{}, false
	}
	size, err := extent(r, offset, f)
	if err != nil || size <= 0 || size > limit {
		return Library{}, false
	}
	return Library{Soname: names[0], Offset: offset, Size: size}, true
}

// extent is where the last part of the object ends. The section headers usually come last, but nothing says so.
func extent(r io.ReaderAt, offset int64, f *elf.File) (int64, error) {
	var h elf.Header64
	if err := binary.Read(io.NewSectionReader(r, offset, 64), f.ByteOrder, &h); err != nil {
		return 0, err
	}
	end := h.Shoff + uint64(h.Shnum)*uint64(h.Shentsize)
	for _, p := range f.Progs {
		end = max(end, p.Off+p.Filesz)
	}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOBITS {
			end = max(end, s.Offset+s.FileSize)
		}
	}
	const most = 1 << 40 // far above any library; keeps a sum of hostile numbers from wrapping into a small one
	if end > most {
		return 0, fmt.Errorf("embedded: object of %d bytes", end)
	}
	return int64(end), nil
}
