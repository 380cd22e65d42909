package launcher

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestJSONDiffNamesTheKeysThatChanged(t *testing.T) {
	var many strings.Builder
	for i := range 13 {
		fmt.Fprintf(&many, `"k%02d":%d,`, i, i)
	}
	long := strings.Repeat("é", 40)
	for _, c := range []struct {
		name, old, now string
		want           []string
	}{
		{"changed", `{"a":1,"b":2}`, `{"b":3,"a":1}`, []string{"  - b: 2", "  + b: 3"}},
		{"added and removed", `{"a":1}`, `{"b":[1, 2]}`, []string{"  - a: 1", "  + b: [1,2]"}},
		{"other spelling", `{"a": {"x": 1}}`, "{\n  \"a\": {\n    \"x\": 1\n  }\n}\n", nil},
		{"a new file", "", `{"a":"x"}`, []string{`  + a: "x"`}},
		{"a file that went", `{"a":"x"}`, "", []string{`  - a: "x"`}},
		{"many", "{}", "{" + strings.TrimSuffix(many.String(), ",") + "}", []string{"  + k00: 0", "  + k01: 1", "  + k02: 2", "  + k03: 3", "  + k04: 4",
			"  + k05: 5", "  + k06: 6", "  + k07: 7", "  + k08: 8", "  + k09: 9", "  … and 3 more keys"}},
		// The quote and 29 letters of two bytes; the thirtieth would be cut in two.
		{"long", "{}", `{"a":"` + long + `"}`, []string{`  + a: "` + strings.Repeat("é", 29) + "…"}},
		{"long key", "{}", `{"` + strings.Repeat("k", 70) + `":1}`, []string{"  + " + strings.Repeat("k", 60) + "…: 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := jsonDiff(c.old, c.now)
			if !ok || !slices.Equal(got, c.want) {
				t.Errorf("got %q, %v, want %q", got, ok, c.want)
			}
		})
	}
	// Raw control characters are no JSON within a string, so the only way for one is a key, which is decoded.
	got, ok := jsonDiff("{}", `{"\u001b[2J\n  + fine":"\u202e"}`)
	if !ok || len(got) != 1 || strings.ContainsAny(got[0], "\x1b\n\u202e") {
		t.Errorf("escape sequence in a key: got %q, %v", got, ok)
	}
}

func TestJSONDiffLeavesOtherTextsToLines(t *testing.T) {
	for _, text := range []string{"[1]", "1", "x", "{", `{"a":1`, `{"a":1}{`, `{"a":1} x`, `{"a":1,"a":2}`, `{a:1}`, "{} {}", "null"} {
		if got, ok := jsonDiff("{}", text); ok {
			t.Errorf("%s: got %q as an object's", text, got)
		}
		if got, ok := jsonDiff(text, "{}"); ok {
			t.Errorf("%s before: got %q as an object's", text, got)
		}
	}
}
