package redact

import (
	"bytes"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Text is a writer that knows text from binary, and what a terminal shows from what it obeys.
type Text struct {
	Neutralise bool // make escape sequences visible that do more than colour text and move the cursor
	Refuse     bool // pass nothing on from the first NUL

	Neutralised uint64 // sequences so far
	Binary      bool   // there was a NUL

	dst  io.Writer
	part []byte // of a sequence that is not all there
}

// Refused stands in the place of what was refused.
const Refused = "[binary output refused]"

// maxSequence is the longest sequence that is waited for; what is longer is none that a terminal needs.
const maxSequence = 64

// NewText returns a Text in front of dst, which its fields may be set of before the first Write.
func NewText(dst io.Writer) *Text { return &Text{dst: dst} }

// Write passes on what may pass. Its error is that of the writer behind it.
func (t *Text) Write(p []byte) (int, error) {
	n := len(p)
	if t.Refuse && t.Binary {
		return n, nil
	}
	if i := bytes.IndexByte(p, 0); i >= 0 {
		t.Binary = true
		if t.Refuse {
			return n, t.pass(append(slices.Clone(p[:i]), Refused...))
		}
	}
	return n, t.pass(p)
}

// Close passes on what was waited for.
func (t *Text) Close() error {
	if len(t.part) == 0 {
		return nil
	}
	p := t.part
	t.part = nil
	if p[0] == 0x1b {
		p = visible(p)
		t.Neutralised++
	}
	_, err := t.dst.Write(p)
	return err
}

func (t *Text) pass(p []byte) error {
	if !t.Neutralise || len(t.part) == 0 && bytes.IndexByte(p, 0x1b) < 0 && bytes.IndexByte(p, 0xc2) < 0 {
		_, err := t.dst.Write(p)
		return err
	}
	var out []byte
	if len(t.part) > 0 {
		p = append(t.part, p...)
		t.part = nil
	}
	for len(p) > 0 {
		i := bytes.IndexFunc(p, func(r rune) bool { return r == 0x1b || r >= 0x80 && r < 0xa0 })
		if i < 0 {
			// The first half of a C1 character may stand at the end.
			if p[len(p)-1] == 0xc2 {
				t.part = []byte{0xc2}
				p = p[:len(p)-1]
			}
			out = append(out, p...)
			break
		}
		out, p = append(out, p[:i]...), p[i:]
		n, harmless, all := sequence(p)
		switch {
		case !all:
			t.part = slices.Clone(p)
			p = nil
		case harmless:
			out, p = append(out, p[:n]...), p[n:]
		default:
			t.Neutralised++
			out, p = append(out, visible(p[:n])...), p[n:]
		}
	}
	if len(out) == 0 {
		return nil
	}
	_, err := t.dst.Write(out)
	return err
}

// visible writes the character that begins a sequence as people do.
func visible(p []byte) []byte {
	if p[0] == 0x1b {
		return append([]byte("^["), p[1:]...)
	}
	return append([]byte{'^', '[', p[1] - 0x40}, p[2:]...) // C1: ESC and a letter in one
}

// sequence looks at the escape sequence that p begins with: its first n bytes are harmless, or are to be made visible.
// Not all, if more has to come to tell.
func sequence(p []byte) (n int, harmless, all bool) {
	if p[0] != 0x1b {
		return 2, false, true
	}
	if len(p) == 1 {
		return 0, false, false
	}
	switch {
	case strings.IndexByte("78=>MDEH", p[1]) >= 0: // cursor and keypad
		return 2, true, true
	case p[1] == '(' || p[1] == ')': // line drawing
		if len(p) == 2 {
			return 0, false, false
		}
		return 2, p[2] == 'B' || p[2] == '0', true
	case p[1] != '[':
		return 1, false, true
	}
	for i := 2; i < len(p); i++ {
		switch c := p[i]; {
		case i >= maxSequence || c < ' ' || c > '~':
			return 1, false, true
		case c >= '@':
			if control(string(p[2:i]), c) {
				return i + 1, true, true
			}
			return 1, false, true
		}
	}
	return 0, false, len(p) > maxSequence
}

// screens are the private modes that change what is shown and make the terminal send nothing: wrapping, the cursor, the
// other screen, whole frames.
var screens = []int{7, 12, 25, 47, 1047, 1048, 1049, 2026}

// control says whether a control sequence only shows something.
func control(params string, final byte) bool {
	if private, ok := strings.CutPrefix(params, "?"); ok && (final == 'h' || final == 'l') {
		for _, p := range strings.Split(private, ";") {
			if n, err := strconv.Atoi(p); err != nil || !slices.Contains(screens, n) {
				return false
			}
		}
		return true
	}
	return strings.Trim(params, "0123456789;:") == "" && strings.IndexByte("mABCDEFGHJKLMPSTXZ@dfrsu`a", final) >= 0
}
