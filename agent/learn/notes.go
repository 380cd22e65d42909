package learn

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mark begins every remark of ours, so that the next run can take its predecessor's away.
const mark = "# learned: "

// note says how the image at a path was seen, in words that are the same after every run of the same kind.
func note(i *Image, path string) string {
	var b strings.Builder
	switch {
	case i.Script != "":
		b.WriteString("script, run")
	case i.Execs > 0:
		b.WriteString("run")
	default:
		b.WriteString("mapped")
	}
	if len(i.By) > 0 {
		b.WriteString(" by " + list(i.By))
	}
	var asked []string
	for _, name := range i.Asked {
		if name != i.Path && name != path {
			asked = append(asked, name)
		}
	}
	if len(asked) > 0 {
		b.WriteString(" as " + list(asked))
	}
	return b.String()
}

// listed is how many names a remark holds at most.
const listed = 3

func list(names []string) string {
	shown := []string{}
	for _, n := range names[:min(len(names), listed)] {
		shown = append(shown, quote(n))
	}
	s := strings.Join(shown, ", ")
	if len(names) > listed {
		s += " and others"
	}
	return s
}

// quote writes a name that may be anybody's so that it ends neither the remark nor the line.
func quote(s string) string {
	if q := strconv.QuoteToASCII(s); q != `"`+s+`"` || strings.Contains(s, "#") {
		return q
	}
	return s
}

var entryLine = regexp.MustCompile(`^\s*- \{path: ("(?:[^"\\]|\\.)*"|[^,"]+), sha256: [0-9a-f]{64}[^}]*\}`)

// Annotate puts the notes into the text of a manifest: behind the entries that stand on a line of their own, above the key
// route, and, above learned, what was asked for. A remark about a file stays where there is no new one. It changes remarks
// alone.
func Annotate(text []byte, notes map[string]string, routes, asked []string) []byte {
	var out bytes.Buffer
	above := map[string]string{} // of routes
	for line := range bytes.Lines(text) {
		s := strings.TrimSuffix(string(line), "\n")
		if rest, ours := strings.CutPrefix(s, mark); ours {
			if strings.HasPrefix(rest, couldAdd) || strings.HasPrefix(rest, askedFor) {
				continue
			}
			if name, n, ok := strings.Cut(rest, ": "); ok {
				above[unquote(name)] = n
			}
			continue
		}
		if strings.HasPrefix(s, "route:") {
			for _, r := range slices.Sorted(slices.Values(routes)) {
				if n := cmp.Or(notes[r], above[r]); n != "" {
					out.WriteString(mark + quote(r) + ": " + n + "\n")
				}
			}
		}
		if strings.HasPrefix(s, "learned:") {
			for _, a := range asked {
				out.WriteString(mark + a + "\n")
			}
		}
		if m := entryLine.FindStringSubmatch(s); m != nil && notes[unquote(m[1])] != "" {
			entry, remark := m[0], strings.TrimSpace(s[len(m[0]):])
			if remark == "" || strings.HasPrefix(remark, mark) {
				s = entry + " " + mark + notes[unquote(m[1])]
			}
		}
		out.WriteString(s + "\n")
	}
	return out.Bytes()
}

func unquote(s string) string {
	if u, err := strconv.Unquote(s); err == nil {
		return u
	}
	return s
}
