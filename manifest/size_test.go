package manifest

import (
	"strings"
	"testing"
	"time"
)

// A manifest is root's own, but a slow one would still hold up every start; ten seconds leave room for a busy machine.
func TestParseOfTheLargestDocumentsEnds(t *testing.T) {
	for name, text := range map[string]string{
		"nested lists":    strings.Repeat("[", MaxBytes),
		"nested mappings": strings.Repeat("{a: ", MaxBytes/4),
		"nested entries":  strings.Repeat("- ", MaxBytes/2),
		"nested keys":     strings.Repeat("? ", MaxBytes/2),
		"comments":        strings.Repeat("#\n", MaxBytes/2),
		"keys":            strings.Repeat("a:\n", MaxBytes/3),
		"one line":        strings.Repeat("a", MaxBytes),
		"images":          small + strings.Repeat("  - {path: /x, sha256: "+hashA+", role: program}\n", 9000),
		"quotes":          `"` + strings.Repeat(`\"`, MaxBytes/2-1) + `"`,
		"anchors":         strings.Repeat("- &a b\n", MaxBytes/7),
	} {
		start := time.Now()
		if _, err := Parse("m", []byte(text)); err == nil {
			t.Errorf("%s: taken", name)
		}
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("%s: took %v", name, d)
		} else {
			t.Logf("%s: %v", name, d.Round(time.Millisecond))
		}
	}
}
