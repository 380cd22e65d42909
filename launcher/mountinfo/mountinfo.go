// Package mountinfo reads the table of mounts that the kernel shows a process (proc_pid_mountinfo(5)).
package mountinfo

import (
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
)

// Mount is one line.
type Mount struct {
	ID          uint64 // as statx(2) gives it by STATX_MNT_ID
	Device      string // MAJOR:MINOR of the file system
	Root        string // which of its folders is mounted
	Point       string // where
	FSType      string
	Options     []string // per mount
	SuperOption []string // per file system
}

// Read is the table of the calling process.
func Read() ([]Mount, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return Parse(string(b))
}

// Parse reads a table.
func Parse(text string) ([]Mount, error) {
	var out []Mount
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 6 || len(right) < 2 {
			return nil, fmt.Errorf("mountinfo: line %q has too few fields", line)
		}
		id, err := strconv.ParseUint(left[0], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("mountinfo: line %q: %w", line, err)
		}
		m := Mount{ID: id, Device: left[2], Root: unescape(left[3]), Point: unescape(left[4]), Options: strings.Split(left[5], ","), FSType: right[0]}
		if len(right) > 2 {
			m.SuperOption = strings.Split(right[len(right)-1], ",")
		}
		out = append(out, m)
	}
	return out, nil
}

// unescape undoes the kernel's octal escapes of blanks and backslashes.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#").Replace

// Of is the mount that the clean absolute path p lies on: the last of those with the longest mount point.
func Of(mounts []Mount, p string) (Mount, bool) {
	best, found := Mount{}, false
	for _, m := range mounts {
		if m.Point == p || m.Point == "/" || strings.HasPrefix(p, m.Point+"/") {
			if !found || len(path.Clean(m.Point)) >= len(path.Clean(best.Point)) {
				best, found = m, true
			}
		}
	}
	return best, found
}
