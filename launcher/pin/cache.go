package pin

import (
	"bytes"
	"encoding/binary"
	"errors"
	"path/filepath"
)

const (
	cacheOld = "ld.so-1.7.0\x00"
	cacheNew = "glibc-ld.so.cache1.1"
)

var errCache = errors.New("not a cache that ldconfig of glibc 2.2 or later writes")

// parseCache reads /etc/ld.so.cache (glibc: sysdeps/generic/dl-cache.h) into the paths of each library name, in the
// order of the file. Entries of other processors are in it too: who asks has to look at the file.
func parseCache(data []byte) (map[string][]string, error) {
	// Before glibc 2.32 the new format stood behind the old one, aligned to 8 bytes.
	if bytes.HasPrefix(data, []byte(cacheOld)) && len(data) >= 16 {
		count := uint64(binary.NativeEndian.Uint32(data[12:]))
		end := (16 + 12*count + 7) &^ 7
		if end > uint64(len(data)) {
			return nil, errCache
		}
		data = data[end:]
	}
	const header, entry = 48, 24
	if !bytes.HasPrefix(data, []byte(cacheNew)) || len(data) < header {
		return nil, errCache
	}
	count := uint64(binary.NativeEndian.Uint32(data[20:]))
	if count > uint64(len(data)-header)/entry {
		return nil, errCache
	}
	text := func(at uint32) (string, bool) {
		if uint64(at) >= uint64(len(data)) {
			return "", false
		}
		s, _, ended := bytes.Cut(data[at:], []byte{0})
		return string(s), ended
	}
	paths := map[string][]string{}
	for i := range count {
		e := data[header+i*entry:]
		name, ok := text(binary.NativeEndian.Uint32(e[4:]))
		path, also := text(binary.NativeEndian.Uint32(e[8:]))
		if !ok || !also || !filepath.IsAbs(path) {
			return nil, errCache
		}
		paths[name] = append(paths[name], path)
	}
	return paths, nil
}
