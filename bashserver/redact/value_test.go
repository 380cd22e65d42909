package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

// encodings are the forms that a value is looked for in, as the tools of others write them.
func encodings(v string) map[string]string {
	out := map[string]string{
		"plain":         v,
		"hex":           hex.EncodeToString([]byte(v)),
		"HEX":           strings.ToUpper(hex.EncodeToString([]byte(v))),
		"query":         url.QueryEscape(v),
		"path":          url.PathEscape(v),
		"lower query":   lowerEscapes(url.QueryEscape(v)),
		"hex in lines":  wrap(hex.EncodeToString([]byte(v)), 60),
		"hex in CRLF":   strings.ReplaceAll(wrap(hex.EncodeToString([]byte(v)), 60), "\n", "\r\n"),
		"every percent": everyPercent(v),
		"bytes percent": bytesPercent(v),
	}
	if !strings.Contains(v, "%") { // its beginning could as well be text before it
		out["one percent"] = bytesPercent(v[:1]) + v[1:]
	}
	if utf8.ValidString(v) { // JSON has no other text
		quoted, _ := json.Marshal(v)
		out["json"] = string(quoted[1 : len(quoted)-1])
		out["ascii json"] = asciiJSON(out["json"])
		units := ""
		for _, u := range utf16.Encode([]rune(v)) {
			units += fmt.Sprintf("\\u%04x", u)
		}
		out["json units"] = units
	}
	for name, enc := range map[string]*base64.Encoding{"std": base64.StdEncoding, "url": base64.URLEncoding, "raw std": base64.RawStdEncoding, "raw url": base64.RawURLEncoding} {
		for before := range 3 {
			for after := range 3 {
				s := enc.EncodeToString([]byte("<<<"[:before] + v + ">>>"[:after]))
				kind := name + " base64 " + strconv.Itoa(before) + "+" + strconv.Itoa(after)
				out[kind] = s
				out[kind+" in lines"] = wrap(s, 76)
			}
		}
	}
	return out
}

func asciiJSON(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r < 0x80 {
			b.WriteRune(r)
			continue
		}
		for _, u := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, u)
		}
	}
	return b.String()
}

func lowerEscapes(s string) string {
	b := []byte(s)
	for i := range b {
		if b[i] == '%' {
			copy(b[i+1:], strings.ToLower(string(b[i+1:i+3])))
		}
	}
	return string(b)
}

// bytesPercent escapes letters and digits, too, which no tool has to and any may.
func bytesPercent(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02x", s[i])
	}
	return b.String()
}

func everyPercent(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; alphanumeric(rune(c)) {
			b.WriteByte(c)
		} else {
			b.WriteString("%" + strings.ToUpper(hex.EncodeToString([]byte{c})))
		}
	}
	return b.String()
}

func wrap(s string, n int) string {
	var lines []string
	for len(s) > n {
		lines, s = append(lines, s[:n]), s[n:]
	}
	return strings.Join(append(lines, s), "\n")
}

// values are made-up secrets: one of every kind of token, and passwords of all sorts.
func values(t *testing.T, r *rand.Rand) []string {
	var out []string
	for i := range rules {
		if k := tokenOf(t, r, &rules[i]); len(k.secret()) >= MinValue {
			out = append(out, k.secret())
		}
	}
	random := make([]byte, 300)
	r.Read(random)
	out = append(out, "four", "pass word", `quo"te\back`, "new\nline\ttab", "\n\n\r\n", "ünïcödé→", "emoji 😀 key", "a+b/c==", "100%25", "<tag>&amp;", `\\\\`, `C:\u0041`,
		"postgres://user:p%40ss@db.internal:5432/app?sslmode=require", string(random[:20]), string(random), "-----BEGIN X-----\nabc\ndef\n-----END X-----\n", "%%%%", "++++", "____")
	return out
}

// TestValuesAreRedactedInEveryForm takes each form whole and cut at every byte. What is left of it beside the mark are at
// most the characters at its ends that it shares with its neighbours.
func TestValuesAreRedactedInEveryForm(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	kinds := values(t, r)
	if len(kinds) < 60 {
		t.Fatalf("%d kinds", len(kinds))
	}
	for _, v := range kinds {
		s := NewSet([]Secret{{"A", v}}, RulesNone)
		for name, text := range encodings(v) {
			in := "before " + text + " after\n"
			got := through(s, in)
			rest := strings.Replace(strings.TrimSuffix(strings.TrimPrefix(got, "before "), " after\n"), "[redacted:A]", "", 1)
			most := 0
			if strings.Contains(name, "base64") {
				most = 9 // neighbours, 3+2 at most, padding, and a line's end
			}
			if !strings.Contains(got, "[redacted:A]") || len(rest) > most || !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after\n") {
				t.Errorf("%q in %s: %q gives %q", v, name, in, got)
				continue
			}
			step := 1 + len(in)/100
			for cut := 0; cut < len(in); cut += step {
				if parts := through(s, in[:cut], in[cut:]); parts != got {
					t.Errorf("%q in %s, cut at %d: %q, whole: %q", v, name, cut, parts, got)
					break
				}
			}
			if parts := through(s, strings.Split(in, "")...); len(in) < 200 && !strings.Contains(in, "ü") && parts != got {
				t.Errorf("%q in %s, byte by byte: %q, whole: %q", v, name, parts, got)
			}
		}
	}
}

func TestValueIsFoundWithoutItsWhiteSpaceAndOnATerminal(t *testing.T) {
	s := NewSet([]Secret{{"A", "two\nlines of it\n"}}, RulesNone)
	for in, want := range map[string]string{
		"<two\nlines of it\n>":      "<[redacted:A]>",
		"<two\nlines of it>":        "<[redacted:A]>",
		"<two\r\nlines of it\r\n>":  "<[redacted:A]>",
		"<two\r\nlines of it>":      "<[redacted:A]>",
		"<two\nlines of something>": "<two\nlines of something>",
		`<two\nlines of it\n>`:      "<[redacted:A]>",
		"dHdvCmxpbmVzIG9mIGl0 more": "[redacted:A] more",
	} {
		if got := through(s, in); got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
}

// TestStreamsDoNotDisturbEachOther interleaves the pieces of two streams, as stdout and stderr come.
func TestStreamsDoNotDisturbEachOther(t *testing.T) {
	r := rand.New(rand.NewSource(4))
	for i := range rules {
		k := tokenOf(t, r, &rules[i])
		s := NewSet([]Secret{{"A", "hunter22!"}}, RulesAll)
		texts := [2]string{k.text + "hunter22!", "hunter22! " + k.text}
		var out [2]appender
		filters := [2]*Filter{s.Filter(&out[0]), s.Filter(&out[1])}
		for rest := texts; rest[0] != "" || rest[1] != ""; {
			which := r.Intn(2)
			n := min(len(rest[which]), 1+r.Intn(9))
			filters[which].Write([]byte(rest[which][:n]))
			rest[which] = rest[which][n:]
		}
		for which := range out {
			filters[which].Close()
			whole := through(s, texts[which])
			if got := string(out[which]); strings.Contains(got, k.secret()) || strings.Contains(got, "hunter22!") || strings.Count(got, "[redacted:") != strings.Count(whole, "[redacted:") {
				t.Errorf("%s: %q gives %q, whole %q", rules[i].id, texts[which], got, whole)
			}
		}
	}
}
