package manifest

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// MaxBytes is the size of the largest document that is read.
const MaxBytes = 1 << 20

// checkText refuses bytes that a person reading the file would not see as what they are. YAML itself takes UTF-16, four
// more kinds of line break and invisible marks; a policy that reads differently to eye and parser is no policy, and
// the edits of Document count lines by '\n' alone.
func checkText(name string, data []byte) *Error {
	if len(data) > MaxBytes {
		return &Error{File: name, Line: 1, Column: 1, Text: found(fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("at most %d", MaxBytes))}
	}
	line, column := 1, 1
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		var what string
		switch {
		case r == utf8.RuneError && n == 1:
			what = fmt.Sprintf("byte 0x%02x, which is not UTF-8", data[i])
		case r == '\r':
			what = "a carriage return"
		case !visible(r) && r != '\n' && r != '\t':
			what = fmt.Sprintf("the invisible character U+%04X", r)
		}
		if what != "" {
			return &Error{File: name, Line: line, Column: column, Text: found(what, "printable text (inside double quotes write it as an escape: a backslash, u and four hex digits)")}
		}
		column++
		if r == '\n' {
			line, column = line+1, 1
		}
		i += n
	}
	return nil
}

// visible is false for control characters, for the marks that reorder or hide text, and for YAML's other line breaks.
func visible(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r <= 0x9f, r == 0xad, r == 0x61c, r == 0xfeff:
		return false
	case r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f:
		return false
	case r >= 0xe0000 && r <= 0xe0fff, r >= 0xfff9 && r <= 0xfffb, r == 0xfffe, r == 0xffff:
		return false
	}
	return true
}

// lines is the number of lines in data: the position of an error at its end.
func lines(data []byte) int { return bytes.Count(data, []byte{'\n'}) + 1 }
