package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// form is one way in which a value may be written.
type form struct {
	name int // of the mark
	kind kind
	text []byte // base64: what the value alone decides; escaped: the value
	tail string // base64: what may follow if the value is the end
}

type kind uint8

const (
	plain    kind = iota
	base64ed      // in either alphabet, broken over lines or not
	hexed         // in either case, broken over lines or not
	urlEscaped
	backslashed // as JSON, JavaScript, C and the shell do
)

// variants are a value, the same without white space around it, which programs strip of what they read from a file, and
// the same with the ends of lines that a terminal makes.
func variants(value string) []string {
	out := []string{value}
	if s := strings.TrimSpace(value); s != value && len(s) >= MinValue {
		out = append(out, s)
	}
	for _, v := range out {
		if s := strings.ReplaceAll(v, "\n", "\r\n"); s != v {
			out = append(out, s)
		}
	}
	return out
}

// forms are the ways in which a value is looked for.
func forms(name int, value string) []form {
	v := []byte(value)
	out := []form{{name: name, kind: plain, text: v}, {name: name, kind: hexed, text: []byte(hex.EncodeToString(v))}}
	for before := range 3 {
		out = append(out, base64Form(name, v, before))
	}
	// Letters and digits can be escaped like anything else.
	return append(out, form{name: name, kind: urlEscaped, text: v}, form{name: name, kind: backslashed, text: v})
}

func alphanumeric(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

// base64Form is a value in the middle of something, before bytes behind a multiple of three. The characters at its ends
// that hold bits of its neighbours, too, are left alone; the last, if nothing follows, is in tail.
func base64Form(name int, v []byte, before int) form {
	padded := append(make([]byte, before, before+len(v)), v...)
	all := base64.StdEncoding.EncodeToString(padded)
	from, to := (before*8+5)/6, len(padded)*8/6
	return form{name: name, kind: base64ed, text: []byte(all[from:to]), tail: all[to:]}
}

// match says how many bytes of text, from its beginning, are the value in this form: full, if it is all there; more, if
// text ends before that, or before it is clear where it ends.
func (f *form) match(text []byte) (n int, full, more bool) {
	switch f.kind {
	case plain:
		n = min(len(text), len(f.text))
		if !bytes.Equal(text[:n], f.text[:n]) {
			return 0, false, false
		}
		return n, n == len(f.text), n < len(f.text)
	case base64ed, hexed:
		return f.wrapped(text)
	}
	for j := 0; j < len(f.text); {
		t, v, ok, more := f.unit(text[n:], j)
		if !ok {
			return n, false, more
		}
		n, j = n+t, j+v
	}
	return n, true, false
}

// wrapped is match for what tools break over lines.
func (f *form) wrapped(text []byte) (n int, full, more bool) {
	for j := 0; j < len(f.text); n++ {
		switch {
		case n == len(text):
			return n, false, true
		case f.same(text[n], f.text[j]):
			j++
		case j > 0 && (text[n] == '\n' || text[n] == '\r' && text[n-1] != '\r') && text[n-1] != '\n':
		default:
			return 0, false, false
		}
	}
	for j := range len(f.tail) {
		if n+j == len(text) {
			return n + j, true, true
		}
		if !f.same(text[n+j], f.tail[j]) {
			if j == 1 { // the first of the padding: without it, what was taken for the end is
				return n + 1, true, false
			}
			return n, true, false
		}
	}
	return n + len(f.tail), true, false
}

func (f *form) same(text, want byte) bool {
	if text == want {
		return true
	}
	if f.kind == hexed {
		return text|0x20 == want && want >= 'a'
	}
	return text == '-' && want == '+' || text == '_' && want == '/'
}

// unit reads the value's byte j, or its character, however it is escaped: t bytes of text stand for v of the value.
func (f *form) unit(text []byte, j int) (t, v int, ok, more bool) {
	if len(text) == 0 {
		return 0, 0, false, true
	}
	want := f.text[j]
	escape := byte('%')
	if f.kind == backslashed {
		escape = '\\'
	}
	if text[0] == escape {
		if f.kind == urlEscaped {
			t, ok, more = percent(text, want)
			v = 1
		} else {
			t, v, ok, more = backslash(text, f.text[j:])
		}
		if ok || more {
			return t, v, ok, more
		}
	}
	if text[0] == want || f.kind == urlEscaped && text[0] == '+' && want == ' ' {
		return 1, 1, true, false
	}
	return 0, 0, false, false
}

// percent reads %41.
func percent(text []byte, want byte) (n int, ok, more bool) {
	for i, digit := range [2]byte{want >> 4, want & 15} {
		if len(text) == i+1 {
			return 0, false, true
		}
		if unhex(text[i+1]) != int(digit) {
			return 0, false, false
		}
	}
	return 3, true, false
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

var short = map[byte]byte{'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// backslash reads \n, \", \u0041, and the pair that stands for a character above U+FFFF.
func backslash(text, value []byte) (n, v int, ok, more bool) {
	if len(text) == 1 {
		return 0, 0, false, true
	}
	c := text[1]
	if c != 'u' {
		ok := c == value[0] && !alphanumeric(rune(c)) || short[c] == value[0] && value[0] != 0
		return 2, 1, ok, false
	}
	r, size := utf8.DecodeRune(value)
	if r == utf8.RuneError && size == 1 {
		return 0, 0, false, false
	}
	units := []rune{r}
	if r > 0xffff {
		a, b := utf16.EncodeRune(r)
		units = []rune{a, b}
	}
	for _, u := range units {
		want := [6]int{'\\', 'u', int(u >> 12), int(u >> 8 & 15), int(u >> 4 & 15), int(u & 15)}
		for i, w := range want {
			if n == len(text) {
				return 0, 0, false, true
			}
			if got := int(text[n]); i < 2 && got != w || i >= 2 && unhex(text[n]) != w {
				return 0, 0, false, false
			}
			n++
		}
	}
	return n, size, true, false
}

// beginnings are the first four bytes that the form may have, folded.
func (f *form) beginnings() []string {
	found := map[string]bool{}
	var grow func(read string, j int)
	grow = func(read string, j int) {
		if len(read) >= held || j == len(f.text) {
			found[folded(read[:held])] = true
			return
		}
		for _, s := range f.spellings(j, read != "") {
			next := j + 1
			if (f.kind == base64ed || f.kind == hexed) && (s == "\n" || s == "\r") { // a line's end, and no byte of the text
				next = j
				if strings.HasSuffix(read, s) || s == "\r" && strings.HasSuffix(read, "\n") {
					continue
				}
			}
			grow(read+s, next)
		}
	}
	grow("", 0)
	out := make([]string, 0, len(found))
	for g := range found {
		out = append(out, g)
	}
	return out
}

// spellings are how byte j may be written, as far as four bytes of text can tell.
func (f *form) spellings(j int, inside bool) []string {
	b := f.text[j]
	out := []string{string([]byte{b})}
	switch f.kind {
	case base64ed:
		switch b {
		case '+':
			out = append(out, "-")
		case '/':
			out = append(out, "_")
		}
		fallthrough
	case hexed:
		if inside {
			out = append(out, "\n", "\r")
		}
	case urlEscaped:
		out = append(out, "%"+hex.EncodeToString([]byte{b}))
		if b == ' ' {
			out = append(out, "+")
		}
	case backslashed:
		for c, v := range short {
			if v == b {
				out = append(out, `\`+string(rune(c)))
			}
		}
		if !alphanumeric(rune(b)) {
			out = append(out, `\`+string([]byte{b}))
		}
		if r, _ := utf8.DecodeRune(f.text[j:]); r != utf8.RuneError {
			u := utf16.Encode([]rune{r})[0]
			out = append(out, `\u`+hex.EncodeToString([]byte{byte(u >> 8)}))
		}
	}
	return out
}

func folded(s string) string {
	b := []byte(s)
	for i := range b {
		b[i] |= 0x20
	}
	return string(b)
}
