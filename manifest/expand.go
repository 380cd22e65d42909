package manifest

import (
	"errors"
	"maps"
	"slices"
	"strings"
)

// Expand replaces each {{name}} in s by its value. A name that is not in values and a "{{" that is not closed are
// errors; values are not expanded again. A lone "}}" stays as it is (JSON is full of them).
func Expand(s string, values map[string]string) (string, error) {
	var out strings.Builder
	for {
		before, rest, open := strings.Cut(s, "{{")
		out.WriteString(before)
		if !open {
			return out.String(), nil
		}
		name, after, closed := strings.Cut(rest, "}}")
		if !closed {
			return "", errors.New(found(quote("{{"+rest), "}} after the name"))
		}
		value, known := values[name]
		if !known {
			return "", errors.New(found(quote("{{"+name+"}}"), "one of {{"+strings.Join(sortedKeys(values), "}}, {{")+"}}"))
		}
		out.WriteString(value)
		s = after
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
