package host

import (
	"fmt"
	"os"
	"path"
	"strings"
)

// mount is one line of mountinfo (proc_pid_mountinfo(5)).
type mount struct {
	root, point, fstype string
	options             []string // per mount
	super               []string // per filesystem
}

func readMounts(name string) ([]mount, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parseMounts(string(b))
}

func parseMounts(text string) ([]mount, error) {
	var out []mount
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 6 || len(right) < 2 {
			return nil, fmt.Errorf("mountinfo: line %q has too few fields", line)
		}
		m := mount{root: unescape(left[3]), point: unescape(left[4]), options: strings.Split(left[5], ","), fstype: right[0]}
		if len(right) > 2 {
			m.super = strings.Split(right[len(right)-1], ",")
		}
		out = append(out, m)
	}
	return out, nil
}

// unescape undoes the kernel's octal escapes of blanks and backslashes.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#").Replace

// mountOf is the mount that the clean absolute path p lies on: the last of those with the longest mount point.
func mountOf(mounts []mount, p string) (mount, bool) {
	best, found := mount{}, false
	for _, m := range mounts {
		if m.point == p || m.point == "/" || strings.HasPrefix(p, m.point+"/") {
			if !found || len(path.Clean(m.point)) >= len(path.Clean(best.point)) {
				best, found = m, true
			}
		}
	}
	return best, found
}

func has(list []string, word string) bool {
	for _, w := range list {
		if w == word {
			return true
		}
	}
	return false
}
