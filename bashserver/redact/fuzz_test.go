package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"
)

// passed checks what must hold of any text: the output is the text with some parts replaced by marks, in order, and
// nothing else.
func passed(t *testing.T, s *Set, text, out string) {
	t.Helper()
	// Each piece between two marks has to be found in the text behind the one before; the first and the last at its ends.
	pieces := splitMarks(s, out)
	if len(pieces) == 1 {
		if out != text {
			t.Fatalf("without a mark, %q became %q", text, out)
		}
		return
	}
	rest := text
	for i, p := range pieces {
		at := strings.Index(rest, p)
		if i == len(pieces)-1 {
			at = len(rest) - len(p)
		}
		if at < 0 || i == 0 && at != 0 || rest[at:at+len(p)] != p {
			t.Fatalf("%q became %q: piece %d, %q, is not where it was", text, out, i, p)
		}
		rest = rest[at+len(p):]
	}
}

func splitMarks(s *Set, out string) []string {
	for _, n := range s.names {
		out = strings.ReplaceAll(out, "[redacted:"+n+"]", "\x00mark\x00")
	}
	return strings.Split(out, "\x00mark\x00")
}

// FuzzFilter holds that no named form of a value comes out, wherever the text is cut and whenever time passes, and that
// everything else comes out, in order.
func FuzzFilter(f *testing.F) {
	f.Add("abcd", "bcde", []byte("xabcde"), uint(3), false)
	f.Add("aaaa", "aaaaaaab", []byte("aaaaaaaaab"), uint(1), true)
	f.Add("a+b/c==%", "\\\"\n\t", []byte(`a%2Bb/c==%25 \\\"\n\t YStiL2M9PSU=`), uint(9), true)
	f.Add("ünï😀", "pass word", []byte(`\u00fcn\u00ef\ud83d\ude00 pass+word pass%20word`), uint(30), false)
	f.Add("four", "five", []byte("key = \"k39dJdka83kdDks02kd8\"\nfo1_ ey s.a -----BEGIN PRIVATE KEY-----"), uint(7), true)
	f.Fuzz(func(t *testing.T, a, b string, text []byte, cut uint, late bool) {
		if len(a) < MinValue || len(b) < MinValue || len(a) > 64 || len(b) > 64 || len(text) > 2048 || bytes.Contains(text, []byte("[redacted:")) {
			return
		}
		for _, which := range bothWays {
			s := NewSet([]Secret{{"A", a}, {"B", b}}, which)
			whole := through(s, string(text))
			passed(t, s, string(text), whole)
			i := int(cut % uint(len(text)+1))
			var out appender
			fl := s.Filter(&out)
			at := time.Unix(0, 0)
			fl.now = func() time.Time { return at }
			fl.Write(text[:i])
			if late {
				at = at.Add(Patience)
				fl.Idle()
			}
			fl.Write(text[i:])
			fl.Close()
			passed(t, s, string(text), string(out))
			// Of values that overlap, the cut may decide which gives the name.
			if !late && which == RulesNone && !slices.Equal(splitMarks(s, whole), splitMarks(s, string(out))) {
				t.Fatalf("cut at %d: %q, whole: %q", i, out, whole)
			}
			for _, piece := range splitMarks(s, string(out)) {
				for _, v := range []string{a, b} {
					for _, enc := range []string{v, hex.EncodeToString([]byte(v)), base64.StdEncoding.EncodeToString([]byte(v)), lowerEscapes(everyPercent(v))} {
						if strings.Contains(piece, enc) {
							t.Fatalf("%q, cut at %d, came out as %q: %q", v, i, enc, out)
						}
					}
				}
			}
		}
	})
}

// FuzzMachine holds that the automaton and Go's regexp find the same.
func FuzzMachine(f *testing.F) {
	for i := range rules {
		f.Add(uint(i), []byte("key = \"k39dJdka83kdDks02kd8\" ey s.a sk_live_"))
	}
	f.Fuzz(func(t *testing.T, n uint, text []byte) {
		r := &rules[n%uint(len(rules))]
		if len(text) > 1024 || bytes.ContainsFunc(text, func(c rune) bool { return c >= 0x80 || c == 0 || c == 0x1b }) {
			return
		}
		end := r.ready().match(atBegin, text)
		want := -1
		if g := r.find.FindIndex(text); g != nil {
			want = g[1]
		}
		if end != want {
			t.Fatalf("%s on %q: the automaton ends at %d, regexp at %d", r.id, text, end, want)
		}
	})
}
