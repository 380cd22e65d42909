package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Bounds of the parts of an event. They keep the sum below MaxBytes as long as little has to be escaped.
const (
	maxPath      = 4096 // PATH_MAX
	maxText      = 1024
	maxWord      = 128
	maxAncestors = 32
	maxList      = 16
	maxData      = 32 // keys of Data
	maxDepth     = 8  // nesting of one document
)

// ErrTooBig is a datagram or line that is over MaxBytes.
var ErrTooBig = errors.New("event: too big")

// Encode returns e as one line without its newline. Strings are made valid UTF-8 and cut to their bounds (e itself is
// not changed); characters that a terminal would obey or hide are written as JSON escapes, so that a log may be shown
// with cat. It fails only when Data holds what JSON cannot, or the time is outside of years 0 to 9999.
func Encode(e *Event) ([]byte, error) {
	for _, cut := range []int{maxPath, maxText / 2, maxWord} {
		line, err := encode(e.bounded(cut))
		if err != nil {
			return nil, err
		}
		if len(line) <= MaxBytes {
			return line, nil
		}
	}
	// What is left names what happened and to whom; a denial must not go unreported because of what surrounds it.
	bare := e.bounded(maxWord / 2)
	bare.Data, bare.Ancestors = nil, nil
	return encode(bare)
}

func encode(e *Event) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return nil, fmt.Errorf("event: encode: %w", err)
	}
	return EscapeJSON(bytes.TrimSuffix(b.Bytes(), []byte{'\n'})), nil
}

// EscapeJSON rewrites characters that do not show themselves as \u escapes. Outside of strings a JSON text is ASCII, so
// whatever is rewritten stands in a string. text must be valid JSON.
func EscapeJSON(text []byte) []byte {
	quiet := true
	for _, c := range text {
		if c >= 0x7f {
			quiet = false
			break
		}
	}
	if quiet {
		return text
	}
	out := make([]byte, 0, len(text)+len(text)/4)
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		switch {
		case r == 0x7f || r >= 0x80 && !unicode.IsPrint(r):
			for _, unit := range utf16.Encode([]rune{r}) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
		default:
			out = append(out, text[i:i+size]...)
		}
		i += size
	}
	return out
}

// Decode reads one datagram of a producer, strictly: at most MaxBytes, valid UTF-8, one object without unknown keys,
// this schema, a known type, every part within its bound. An error says what is wrong without repeating the bytes.
func Decode(b []byte) (*Event, error) {
	if len(b) > MaxBytes {
		return nil, ErrTooBig
	}
	if !utf8.Valid(b) {
		return nil, errors.New("event: not UTF-8")
	}
	if err := shallow(b); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var e Event
	if err := dec.Decode(&e); err != nil {
		return nil, errors.New("event: not an event of schema 1")
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("event: more than one value")
	}
	if e.Schema != Schema {
		return nil, fmt.Errorf("event: schema %d, want %d", e.Schema, Schema)
	}
	if !e.Type.Known() {
		return nil, errors.New("event: unknown type")
	}
	return e.bounded(maxPath), nil
}

// shallow refuses nesting that no event has, before anything recurses over it.
func shallow(b []byte) error {
	depth, inString, escaped := 0, false, false
	for _, c := range b {
		switch {
		case escaped:
			escaped = false
		case inString && c == '\\':
			escaped = true
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return errors.New("event: nested too deep")
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// Parse reads one line of a log. Logs may come from a newer sharness, which adds keys and types: it takes what it knows
// and leaves the rest. The line must be at most MaxBytes of JSON of this schema.
func Parse(line []byte) (*Event, error) {
	if len(line) > MaxBytes {
		return nil, ErrTooBig
	}
	if err := shallow(line); err != nil {
		return nil, err
	}
	var e Event
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, errors.New("event: not JSON of an event")
	}
	if e.Schema != Schema {
		return nil, fmt.Errorf("event: schema %d, want %d", e.Schema, Schema)
	}
	return &e, nil
}

// bounded returns a copy of e whose strings are valid UTF-8 and within their bounds, long ones within cut.
func (e *Event) bounded(cut int) *Event {
	c := *e
	word := func(s string) string { out, _ := clip(s, min(cut, maxWord)); return out }
	text := func(s string) string { out, _ := clip(s, min(cut, maxText)); return out }
	path := func(s string) string { out, _ := clip(s, cut); return out }
	c.Session, c.Type, c.Door = word(c.Session), Type(word(string(c.Type))), word(c.Door)
	c.Errno, c.Syscall, c.Cause = word(c.Errno), word(c.Syscall), word(c.Cause)
	c.CauseSource, c.Layer, c.Phase = word(c.CauseSource), word(c.Layer), word(c.Phase)
	c.Blocker, c.Detail = path(c.Blocker), text(c.Detail)
	if e.Process != nil {
		p := *e.Process
		p.Comm, p.Exe = word(p.Comm), path(p.Exe)
		c.Process = &p
	}
	if e.Target != nil {
		t := *e.Target
		var cutAsked, cutResolved, cutOld bool
		t.Asked, cutAsked = clip(t.Asked, cut)
		t.Resolved, cutResolved = clip(t.Resolved, cut)
		t.Old, cutOld = clip(t.Old, cut)
		t.Source, t.Truncated = word(t.Source), t.Truncated || cutAsked || cutResolved || cutOld
		c.Target = &t
	}
	if e.Command != nil {
		cmd := *e.Command
		cmd.LimitsHit = each(cmd.LimitsHit, maxList, word)
		c.Command = &cmd
	}
	if e.Hint != nil {
		c.Hint = &Hint{Person: text(e.Hint.Person), Model: text(e.Hint.Model)}
	}
	c.Ancestors = each(e.Ancestors, maxAncestors, word)
	c.Data = boundedData(e.Data, cut)
	return &c
}

func each(in []string, max int, f func(string) string) []string {
	if in == nil {
		return nil
	}
	out := make([]string, 0, min(len(in), max))
	for _, s := range in[:min(len(in), max)] {
		out = append(out, f(s))
	}
	return out
}
