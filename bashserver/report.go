package bashserver

import (
	"bufio"
	"fmt"
	"io"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sharness/sharness/bashserver/redact"
	"github.com/sharness/sharness/bashserver/wire"
)

// report is what --json prints.
type report struct {
	exitCode, signal int
	stdout, stderr   []byte
	truncated        bool
	durationMS       int64
	limits           []string
	notes            []string
	taken            []redact.Count
}

// tellRefusal prints the object of a command that does not run, to a client that has a moment to read it.
func (c *conn) tellRefusal(status uint32, text string) {
	to := c.out
	if to != nil {
		defer to.close()
	} else {
		fds := c.frames.TakeFDs()
		defer wire.CloseAll(fds)
		if len(fds) != 3 {
			return // it was told already, and did not listen
		}
		var err error
		if to, err = newClientFD(fds[1], 1, c.s.poll); err != nil {
			return // not what an answer could go to
		}
	}
	late := make(chan struct{})
	defer time.AfterFunc(answerTime, func() { close(late) }).Stop()
	r := &report{exitCode: int(status), notes: []string{text}}
	_ = r.write(&sink{to: to, quit: late}) // the status says it too
}

// write prints the object and a newline. It does not build it first: escapes make output up to six times longer.
func (r *report) write(to io.Writer) error {
	w := bufio.NewWriterSize(to, 32<<10)
	fmt.Fprintf(w, `{"exit_code":%d,"signal":%d,"stdout":`, r.exitCode, r.signal)
	quote(w, r.stdout)
	w.WriteString(`,"stderr":`)
	quote(w, r.stderr)
	fmt.Fprintf(w, `,"truncated":%v,"duration_ms":%d,"limits_hit":[`, r.truncated, r.durationMS)
	list(w, r.limits)
	w.WriteString(`],"notes":[`)
	list(w, r.notes)
	sum := uint64(0)
	w.WriteString(`],"denied":[],"redacted":{`)
	for i, c := range r.taken {
		if i > 0 {
			w.WriteByte(',')
		}
		quote(w, []byte(c.Name))
		fmt.Fprintf(w, ":%d", c.N)
		sum += c.N
	}
	fmt.Fprintf(w, "},\"redactions\":%d,\"binary\":%v}\n", sum, !utf8.Valid(r.stdout) || !utf8.Valid(r.stderr))
	return w.Flush()
}

func list(w *bufio.Writer, items []string) {
	for i, s := range items {
		if i > 0 {
			w.WriteByte(',')
		}
		quote(w, []byte(s))
	}
}

// quote writes b as a JSON string of printable characters. Control and format characters (escape sequences, bidi
// overrides) are escaped, so that the object can be shown on a terminal; bytes that are no UTF-8 become U+FFFD.
func quote(w *bufio.Writer, b []byte) {
	w.WriteByte('"')
	for len(b) > 0 {
		c, n := utf8.DecodeRune(b)
		switch {
		case c == '"' || c == '\\':
			w.WriteByte('\\')
			w.WriteByte(byte(c))
		case c == '\n':
			w.WriteString(`\n`)
		case c == '\t':
			w.WriteString(`\t`)
		case c == utf8.RuneError && n == 1:
			w.WriteString(`\ufffd`)
		case c < 0x10000 && !plain(c):
			fmt.Fprintf(w, `\u%04x`, c)
		case !plain(c):
			c -= 0x10000
			fmt.Fprintf(w, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		default:
			w.Write(b[:n])
		}
		b = b[n:]
	}
	w.WriteByte('"')
}

func plain(c rune) bool {
	return c >= ' ' && c < 0x7f || c > 0x9f && !unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co)
}
