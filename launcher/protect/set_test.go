package protect

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func encoded(t testing.TB, s *Set) []byte {
	var b bytes.Buffer
	if err := s.Encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestDecodeReturnsWhatEncodeWrote(t *testing.T) {
	want := &Set{Existing: []Entry{{"a", Pin, Dir}, {"a/b", ReadOnly, Link}, {"\xff\n", ReadOnly, File}}, Absent: []string{"x/\x01"},
		Repos: []Repo{{"", ".git", false}, {"w", "", true}}, Notes: []string{"n"}}
	got, err := Decode(bytes.NewReader(encoded(t, want)))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Existing, want.Existing) || !slices.Equal(got.Absent, want.Absent) || !slices.Equal(got.Repos, want.Repos) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestDecodeRefusesWhatIsNotBelowTheWorkspace(t *testing.T) {
	for _, rel := range []string{"", ".", "..", "../x", "/etc", "a/../../x", "a//b", "a/", "./a", "a\x00b", strings.Repeat("a/", 2100) + "b"} {
		for _, s := range []*Set{
			{Existing: []Entry{{rel, ReadOnly, File}}}, {Absent: []string{rel}}, {Repos: []Repo{{Rel: rel}}},
		} {
			if rel == "" && s.Repos != nil {
				continue // the workspace itself
			}
			if _, err := Decode(bytes.NewReader(encoded(t, s))); err == nil {
				t.Errorf("%q in %+v: accepted", rel, s)
			}
		}
	}
}

func TestDecodeRefusesMalformedSets(t *testing.T) {
	ok := Entry{"a", ReadOnly, File}
	for name, s := range map[string]*Set{
		"mode":     {Existing: []Entry{{"a", "rw", File}}},
		"kind":     {Existing: []Entry{{"a", Pin, "socket"}}},
		"twice":    {Existing: []Entry{ok, ok}},
		"order":    {Existing: []Entry{{"b", ReadOnly, File}, ok}},
		"many":     {Absent: slices.Repeat([]string{"a"}, MaxAbsent+1)},
		"escape":   {Notes: []string{"\x1b[2J"}},
		"too long": {Notes: []string{strings.Repeat("x", 2000)}},
	} {
		if _, err := Decode(bytes.NewReader(encoded(t, s))); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, text := range []string{"", "{}{}", `{"x":1}`, "[]", `{"existing":[{"rel":"%%"}]}`, strings.Repeat(" ", MaxSetBytes+1)} {
		if _, err := Decode(strings.NewReader(text)); err == nil {
			t.Errorf("%.20q: accepted", text)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encoded(f, &Set{Existing: []Entry{{"a", ReadOnly, File}}, Absent: []string{"b"}, Repos: []Repo{{"", ".git", false}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Decode(bytes.NewReader(b))
		if err != nil {
			return
		}
		for _, m := range Mounts(s, "") {
			if checkRel(m.Rel) != nil {
				t.Errorf("%q was accepted", m.Rel)
			}
		}
	})
}

func TestReadConfigFindsPaths(t *testing.T) {
	for name, c := range map[string]struct{ text, hooks, includes string }{
		"plain":      {"[core]\n\thooksPath = .husky\n", ".husky", ""},
		"any case":   {"[CORE]\nHOOKSPATH=.h", ".h", ""},
		"one line":   {"[core] hooksPath = h", "h", ""},
		"quotes":     {"[core]\nhooksPath = \" a b \" # c\n", " a b ", ""},
		"escapes":    {`[core]` + "\n" + `hooksPath = a\"b\\c` + "\n", `a"b\c`, ""},
		"continued":  {"[core]\nhooksPath = a\\\nb\n", "ab", ""},
		"comment":    {"[core]\n;hooksPath = x\n#hooksPath = y\nhooksPath = z ; w\n", "z", ""},
		"twice":      {"[core]\nhooksPath = a\n[x]\nhooksPath = no\n[core]\nhooksPath = b\n", "a,b", ""},
		"include":    {"[include]\npath = ../i\n[includeIf \"gitdir:~/x]y\"]\npath = j\n", "", "../i,j"},
		"crlf, bom":  {"\ufeff[core]\r\nhooksPath = a\r\n", "a", ""},
		"no value":   {"[core]\nbare\nhooksPath = a\n", "a", ""},
		"subsection": {"[core \"x\"]\nhooksPath = a\n", "a", ""}, // git ignores it; protecting more does no harm
	} {
		got := readConfig(c.text)
		if h, i := strings.Join(got.hooks, ","), strings.Join(got.includes, ","); h != c.hooks || i != c.includes {
			t.Errorf("%s: got %q, %q, want %q, %q", name, h, i, c.hooks, c.includes)
		}
	}
}

func FuzzReadConfig(f *testing.F) {
	f.Add("[core]\nhooksPath = \"a\\\nb\" ; c\n[include \"x\"] path=y")
	f.Fuzz(func(t *testing.T, text string) {
		c := readConfig(text)
		if b, err := json.Marshal(c.hooks); err != nil || len(b) > 12*len(text)+64 {
			t.Errorf("%d bytes of text made %d bytes of paths: %v", len(text), len(b), err)
		}
	})
}
