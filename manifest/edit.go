package manifest

import (
	"bytes"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// smallEdit returns the text with the entries of a list that wanted adds put at its end, and the values of entries that
// are there already set in place. Where it cannot (an entry went away, a value spans lines), its text says something
// else than wanted, and change notices that.
func (d *Document) smallEdit(f field, wanted reflect.Value) []byte {
	if wanted.Kind() != reflect.Slice || d.d.values[f.name] == nil {
		return d.addKeys(f, wanted)
	}
	have := reflect.ValueOf(d.m).Elem().FieldByIndex(f.index)
	type replacement struct {
		from, to int
		s        string
	}
	var edits []replacement
	var added []reflect.Value
	for i := range wanted.Len() {
		w := wanted.Index(i)
		at := indexOf(have, w)
		if at < 0 {
			added = append(added, w)
			continue
		}
		if w.Kind() != reflect.Struct {
			continue
		}
		for _, sub := range fieldsOf(w.Type()) {
			now, old := w.FieldByIndex(sub.index), have.Index(at).FieldByIndex(sub.index)
			n := d.d.values[f.name+"["+strconv.Itoa(at)+"]."+sub.name]
			if now.Equal(old) || n == nil {
				continue
			}
			if from, to, ok := d.scalarExtent(n); ok {
				edits = append(edits, replacement{from, to, inline(now)})
			}
		}
	}
	// From the end of the file to its beginning, so that no edit moves the place of another. Additions stand behind
	// every entry and so come first.
	text := d.appendItems(d.d.values[f.name], added)
	slices.SortFunc(edits, func(a, b replacement) int { return b.from - a.from })
	for _, e := range edits {
		text = splice(text, e.from, e.to, e.s)
	}
	return text
}

// indexOf finds the entry of list that is about the same thing as w.
func indexOf(list, w reflect.Value) int {
	for i := range list.Len() {
		if identity(list.Index(i)) == identity(w) {
			return i
		}
	}
	return -1
}

// identity is the part of an entry that says what it is about.
func identity(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case Exec:
		return x.Path
	case File:
		return x.Path
	case Seed:
		return x.Path
	case Endpoint:
		return x.Name + ":" + strconv.Itoa(int(x.Port))
	case string:
		return x
	}
	panic("manifest: no identity for " + v.Type().String())
}

// scalarExtent finds a plain or quoted scalar on one line.
func (d *Document) scalarExtent(n *yaml.Node) (from, to int, ok bool) {
	from = d.offset(n)
	rest := d.text[from:]
	if eol := bytes.IndexByte(rest, '\n'); eol >= 0 {
		rest = rest[:eol]
	}
	open := ""
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		open = `"`
	case n.Style&yaml.SingleQuotedStyle != 0:
		open = `'`
	}
	// Text with escapes is longer than its value and does not match: no small edit then.
	written := open + n.Value + open
	return from, from + len(written), bytes.HasPrefix(rest, []byte(written))
}

// appendItems puts items behind the last one of a list.
func (d *Document) appendItems(list *yaml.Node, items []reflect.Value) []byte {
	if len(items) == 0 {
		return d.text
	}
	if list.Style&yaml.FlowStyle != 0 {
		return d.appendFlow(list, items)
	}
	var s strings.Builder
	for _, v := range items {
		s.WriteString(item(v, strings.Repeat(" ", list.Column-1)))
	}
	at := d.lineStart(lastLine(list) + 1)
	if at > 0 && d.text[at-1] != '\n' {
		return splice(d.text, at, at, "\n"+s.String())
	}
	return splice(d.text, at, at, s.String())
}

func lastLine(n *yaml.Node) int {
	last := n.Line
	for _, c := range n.Content {
		last = max(last, lastLine(c))
	}
	return last
}

func (d *Document) appendFlow(list *yaml.Node, items []reflect.Value) []byte {
	from := d.offset(list) + 1
	if n := len(list.Content); n > 0 {
		last := list.Content[n-1]
		if last.Kind != yaml.ScalarNode {
			return d.text
		}
		_, end, ok := d.scalarExtent(last)
		if !ok {
			return d.text
		}
		from = end
	}
	s := make([]string, len(items))
	for i, v := range items {
		s[i] = inline(v)
	}
	text := strings.Join(s, ", ")
	if len(list.Content) > 0 {
		text = ", " + text
	}
	return splice(d.text, from, from, text)
}

// addKeys puts keys that a block mapping does not have yet first in it.
func (d *Document) addKeys(f field, wanted reflect.Value) []byte {
	n := d.d.values[f.name]
	if wanted.Kind() == reflect.Pointer {
		wanted = wanted.Elem()
	}
	if n == nil || n.Kind != yaml.MappingNode || n.Style&yaml.FlowStyle != 0 || wanted.Kind() != reflect.Struct {
		return d.text
	}
	var s strings.Builder
	for _, sub := range fieldsOf(wanted.Type()) {
		v := wanted.FieldByIndex(sub.index)
		if d.d.values[f.name+"."+sub.name] == nil && !empty(v) {
			s.WriteString(strings.Repeat(" ", n.Column-1) + sub.name + ": " + inline(v) + "\n")
		}
	}
	at := d.lineStart(d.d.keys[f.name].Line + 1)
	return splice(d.text, at, at, s.String())
}
