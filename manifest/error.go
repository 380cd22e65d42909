package manifest

import (
	"fmt"
	"strconv"
)

// Error is one thing wrong with a document. Line and Column count from 1; both are 0 for a manifest that was built
// in memory and never was text.
type Error struct {
	File         string
	Line, Column int
	Key          string // path of the key, as in exec[0].sha256; empty for the document as a whole
	Text         string // what was found and what was expected
}

func (e *Error) Error() string {
	s := e.Text
	if e.Key != "" {
		s = e.Key + ": " + s
	}
	if e.Line == 0 {
		return s
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, s)
}

// found phrases the two halves every complaint has.
func found(what, want string) string { return "found " + what + ", expected " + want }

// quote shows text from the document so that no control character reaches a terminal and no message grows past a line.
func quote(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return strconv.QuoteToGraphic(s)
}
