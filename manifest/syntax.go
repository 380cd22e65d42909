package manifest

import (
	"bytes"
	"io"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// yamlLine is how the YAML package says where it stopped, if it does.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntaxError places an error of the YAML package. That one names a line at best, and of what does not fit a block the
// line where the block begins, which may be the file's first. Where it really is, is where the shortest beginning of data
// ends that has the same error. Whole lines are tried first: a key that is cut off may be an error of its own.
func syntaxError(name string, data []byte, err error) *Error {
	said := err.Error()
	fails := func(n int) bool { return decodeError(data[:n]) == said }
	at := yamlLine.FindStringSubmatch(said)
	text := strings.ReplaceAll(strings.TrimPrefix(said, at[0]), "\n", " ")
	e := &Error{File: name}
	if unclosed(text) {
		// Any beginning has this error that ends before the other end; the package's line is that of the opening.
		e.Line, _ = strconv.Atoi(at[1])
		if text != neverQuoted {
			e.Line++ // it counts these from 0
		}
		e.Line = min(max(e.Line, 1), lines(data))
	} else {
		e.Line = 1 + sort.Search(lines(data)-1, func(i int) bool {
			_, end := lineBounds(data, i+1)
			return fails(end)
		})
	}
	from, to := lineBounds(data, e.Line)
	here := from + max(sort.Search(to-from, func(n int) bool { return fails(from + n) })-1, 0)
	if here < to && data[here] == ':' && !bytes.Contains(data[from:here], []byte(": ")) { // wrong is the key in front of it
		here = from + len(data[from:to]) - len(bytes.TrimLeft(data[from:to], " "))
	}
	if here > from && (text == noBracket || text == noBrace) && strings.IndexByte("[{", data[here-1]) >= 0 {
		here-- // with the bracket alone the complaint is another
	}
	e.Column = utf8.RuneCount(data[from:here]) + 1
	e.Text = "not YAML: " + explain(text, data[here:to])
	return e
}

// decodeError is what the YAML package says of data, empty if it is one or more documents.
func decodeError(data []byte) string {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var n yaml.Node
		if err := dec.Decode(&n); err == io.EOF {
			return ""
		} else if err != nil {
			return err.Error()
		}
	}
}

// lineBounds are the offsets of a line, counted from 1, of data's last if it has fewer.
func lineBounds(data []byte, line int) (from, to int) {
	for ; line > 1; line-- {
		next := bytes.IndexByte(data[from:], '\n')
		if next < 0 {
			break
		}
		from += next + 1
	}
	if to = bytes.IndexByte(data[from:], '\n'); to < 0 {
		return from, len(data)
	}
	return from, from + to
}

const (
	neverQuoted = "found unexpected end of stream"
	noBracket   = "did not find expected ',' or ']'"
	noBrace     = "did not find expected ',' or '}'"
)

func unclosed(text string) bool { return text == neverQuoted || text == noBracket || text == noBrace }

// explain puts the commonest complaints into the words that this package has for others; here is the rest of the line.
func explain(text string, here []byte) string {
	r, _ := utf8.DecodeRune(here)
	switch text {
	case neverQuoted:
		return found("a quote that nothing closes", "the same quote at the end of the text")
	case noBracket:
		return found("a list that is not closed, or lacks a comma", "',' between its values and ']' behind the last")
	case noBrace:
		return found("a mapping that is not closed, or lacks a comma", "',' between its keys and '}' behind the last")
	case "mapping values are not allowed in this context":
		return found("a second ':' in one value", "each key on a line of its own, as far to the right as its neighbours, or the value in quotes")
	case "could not find expected ':'":
		return found(quote(string(here)), "a key with ':' behind it")
	case "did not find expected node content":
		return found(quote(string(here)), "a value")
	case "did not find expected key":
		return found(quote(string(here)), "a key, as far to the right as those above it")
	case "did not find expected '-' indicator":
		return found(quote(string(here)), "'-' as the values of the list above have it, or a key further to the left")
	case "found character that cannot start any token":
		if r == '\t' {
			return found("a tab", "spaces")
		}
		return found(quote(string(r)), "a value that begins with another character, or one in quotes")
	}
	return text
}
