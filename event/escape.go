package event

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape returns s as it may be shown on a terminal or in a log line: what a terminal obeys (C0, DEL, C1), what turns
// text round or hides it (format characters, bidi controls among them), private and unassigned characters and bytes
// that are no UTF-8 become visible escapes. A backslash is doubled, so that an escape cannot be forged.
func Escape(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\\':
			b.WriteString(`\\`)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x80 && !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\x%02x`, r)
		case !visible(r):
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
		i += size
	}
	return b.String()
}

func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '\\' {
			return false
		}
	}
	return true
}

// visible reports whether r is a character that shows itself and moves nothing. IsPrint leaves out controls, format
// characters, private use and every space but U+0020; a combining mark stays, because names in many languages have them.
func visible(r rune) bool { return unicode.IsPrint(r) && r != utf8.RuneError }

// clip returns s as valid UTF-8 of at most max bytes, bytes that are none written as \xNN, and whether it was cut: then it
// ends with Cut.
func clip(s string, max int) (string, bool) {
	if utf8.ValidString(s) && len(s) <= max {
		return s, false
	}
	var b strings.Builder
	room := 0 // what stands before a mark that still fits
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		piece := s[i : i+size]
		if r == utf8.RuneError && size == 1 {
			piece = fmt.Sprintf(`\x%02x`, s[i])
		}
		if b.Len()+len(piece) > max {
			return b.String()[:room] + Cut, true
		}
		b.WriteString(piece)
		if b.Len() <= max-len(Cut) {
			room = b.Len()
		}
		i += size
	}
	return b.String(), false
}
