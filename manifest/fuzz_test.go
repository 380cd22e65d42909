package manifest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// FuzzParse: whatever is accepted survives a round through Format, an edit keeps to what was wanted, and whatever is
// refused is refused with a position.
func FuzzParse(f *testing.F) {
	seeds, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(seeds) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, name := range seeds {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(small))
	f.Add([]byte(small + "a: &a [*a]\n"))
	f.Add([]byte(small + "env: {set: {A: \"\\u202e\\\"\\\\\", yes: 'no', B: |\n  x\n   y\n}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := ParseDocument("f", data)
		if err != nil {
			if e := (*Error)(nil); !errors.As(err, &e) || e.Line < 1 || e.Column < 1 || e.Line > bytes.Count(data, []byte("\n"))+1 {
				t.Fatalf("an error without a position in the text: %v", err)
			}
			return
		}
		m := doc.Manifest()
		text := Format(m)
		again, err := Parse("again", text)
		if err != nil {
			t.Fatalf("Format wrote what Parse refuses: %v\n%s", err, text)
		}
		if !reflect.DeepEqual(m.sorted(), again.sorted()) {
			t.Fatalf("Format changed the meaning:\n%+v\n%+v\n%s", m, again, text)
		}
		if changes := Diff(m, again); len(changes) > 0 {
			t.Fatalf("a difference to itself: %v", changes)
		}
		m.Learned, again.Learned = nil, nil // whose runs add up
		text = Format(m)
		if both, err := Merge(m, again); err != nil || !bytes.Equal(Format(both), text) {
			t.Fatalf("a merge with itself: %v\n%s\n%s", err, Format(both), text)
		}
		m = doc.Manifest()
		m.Exec = append(m.Exec, Exec{Path: "/added/by the/fuzzer", SHA256: hashB, Role: RoleLoader})
		m.Exec[0].SHA256 = hashB
		if err := m.Validate(); err != nil {
			return
		}
		// The edit may give up (a document in flow style); it must never say something else.
		if err := doc.Set(m); err == nil && !bytes.Equal(Format(doc.Manifest()), Format(m)) {
			t.Fatalf("the edit says something else:\n%s", doc.Bytes())
		}
	})
}
