package launcher

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/sharness/sharness/event"
	"golang.org/x/sys/unix"
)

// stateFiles is what the files of state.diff held at the start. An agent's own settings must stay writable for it; what
// it changed is shown when it ends.
type stateFiles struct {
	content map[string]string
}

// Bounds of what is compared and shown.
const (
	maxStateFile = 1 << 20
	maxShown     = 12
	maxLine      = 160
)

func readState(s *Session) *stateFiles {
	f := &stateFiles{content: map[string]string{}}
	if s.State == nil {
		return f
	}
	for _, rel := range s.Manifest.State.Diff {
		if rel, err := s.expand(rel); err == nil { // the manifest was checked for placeholders that do not exist
			f.content[rel] = readBeneath(s.State, rel)
		}
	}
	return f
}

// readBeneath reads a file of the state folder without leaving it. What cannot be read is shown as empty.
func readBeneath(dir *os.File, rel string) string {
	root, err := openRoot(dir)
	if err != nil {
		return ""
	}
	defer root.Close()
	if fi, err := root.Lstat(rel); err != nil || !fi.Mode().IsRegular() {
		return ""
	}
	file, err := root.OpenFile(rel, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO may have taken its place
	if err != nil {
		return ""
	}
	defer file.Close()
	data, err := readAtMost(file, maxStateFile)
	if err != nil {
		return ""
	}
	return string(data)
}

// changes lists the lines that are new and those that are gone, file by file, safe for a terminal. It does not look into
// them: this runs as root, and the orchestrator wrote the file.
func (f *stateFiles) changes(s *Session) []string {
	var out []string
	for _, rel := range slices.Sorted(maps.Keys(f.content)) {
		old := f.content[rel]
		now := readBeneath(s.State, rel)
		if now == old {
			continue
		}
		out = append(out, fmt.Sprintf("%s/%s changed during the session:", s.State.Name(), rel))
		lines := lineDiff(old, now)
		if len(lines) > maxShown {
			lines = append(lines[:maxShown], fmt.Sprintf("  … and %d more lines", len(lines)-maxShown))
		}
		out = append(out, lines...)
	}
	return out
}

// lineDiff gives the lines of a that b lacks and the other way round; the order within each is kept.
func lineDiff(a, b string) []string {
	count := map[string]int{}
	for line := range strings.SplitSeq(a, "\n") {
		count[line]++
	}
	var added []string
	for line := range strings.SplitSeq(b, "\n") {
		if count[line]--; count[line] < 0 {
			added = append(added, "  + "+event.Escape(shorten(line)))
		}
	}
	var out []string
	for line := range strings.SplitSeq(a, "\n") {
		if count[line] > 0 {
			count[line]--
			out = append(out, "  - "+event.Escape(shorten(line)))
		}
	}
	return append(out, added...)
}

// shorten cuts a line that is too long to be looked at.
func shorten(line string) string {
	if len(line) <= maxLine {
		return line
	}
	return line[:maxLine] + "…"
}
