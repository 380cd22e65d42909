package manifest

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Document is a manifest together with its text, so that a change keeps what a person wrote around it: comments,
// order, spelling. It edits the text itself at the positions the parser gives; a YAML printer would restyle the file.
// Every edit is parsed again and compared with what was wanted, so a wrong position is an error and never a policy.
type Document struct {
	name string
	text []byte
	m    *Manifest
	d    *decoder
}

// ParseDocument is Parse, keeping the text.
func ParseDocument(name string, data []byte) (*Document, error) {
	m := new(Manifest)
	d, err := parse(name, data, m, m.Validate)
	if err != nil {
		return nil, err
	}
	return &Document{name: name, text: bytes.Clone(data), m: m, d: d}, nil
}

// Manifest returns a copy of what the document says, free to be changed and handed to Set.
func (d *Document) Manifest() *Manifest { return d.m.Clone() }

// Bytes is the text of the document.
func (d *Document) Bytes() []byte { return bytes.Clone(d.text) }

// Set makes the document say want. Entries added to a list and changed hashes are edited in place; any other change
// writes its top-level key anew, and a comment within that key is lost. On error the document is unchanged.
func (d *Document) Set(want *Manifest) error {
	if err := want.Validate(); err != nil {
		return err
	}
	next := d
	for _, f := range fieldsOf(reflect.TypeFor[Manifest]()) {
		wanted := reflect.ValueOf(want).Elem().FieldByIndex(f.index)
		if next.says(f, wanted) {
			continue
		}
		edited, err := next.change(f, wanted)
		if err != nil {
			return fmt.Errorf("manifest: edit %s in %s: %w", f.name, d.name, err)
		}
		next = edited
	}
	// Whole and strict again: the steps between may have been invalid (a path moving from libraries to exec).
	final, err := ParseDocument(d.name, next.text)
	if err != nil {
		return err
	}
	if !bytes.Equal(Format(final.m), Format(want)) {
		return fmt.Errorf("manifest: edit %s: the edited text does not say what was wanted", d.name)
	}
	*d = *final
	return nil
}

// says compares by canonical text, which leaves out the order that has no meaning.
func (d *Document) says(f field, wanted reflect.Value) bool {
	return canonical(f, reflect.ValueOf(d.m).Elem().FieldByIndex(f.index)) == canonical(f, wanted)
}

func canonical(f field, v reflect.Value) string {
	var m Manifest
	target := reflect.ValueOf(&m).Elem().FieldByIndex(f.index)
	target.Set(v)
	return section(f, reflect.ValueOf(m.sorted()).Elem().FieldByIndex(f.index))
}

// change tries the small edits first, then writes the section anew.
func (d *Document) change(f field, wanted reflect.Value) (*Document, error) {
	if next, err := d.reread(d.smallEdit(f, wanted)); err == nil && next.says(f, wanted) && next.sameBut(f, d) {
		return next, nil
	}
	next, err := d.reread(d.newSection(f, canonical(f, wanted)))
	if err == nil && !(next.says(f, wanted) && next.sameBut(f, d)) {
		err = fmt.Errorf("the new text reads differently")
	}
	return next, err
}

// sameBut: no key but f may have changed its meaning.
func (d *Document) sameBut(f field, old *Document) bool {
	for _, other := range fieldsOf(reflect.TypeFor[Manifest]()) {
		if other.name != f.name && !d.says(other, reflect.ValueOf(old.m).Elem().FieldByIndex(other.index)) {
			return false
		}
	}
	return true
}

// reread parses text without Validate, which holds for the end of Set only.
func (d *Document) reread(text []byte) (*Document, error) {
	m := new(Manifest)
	dec, err := parse(d.name, text, m, func() error { return nil })
	if err != nil {
		return nil, err
	}
	return &Document{name: d.name, text: text, m: m, d: dec}, nil
}

// offset is where a node begins in the text. Columns count characters, not bytes.
func (d *Document) offset(n *yaml.Node) int {
	at, column := d.lineStart(n.Line), 1
	for i := range string(d.text[at:]) {
		if column == n.Column {
			return at + i
		}
		column++
	}
	return len(d.text)
}

// lineStart is the offset of line n, counted from 1; the end of the text for a line past it.
func (d *Document) lineStart(n int) int {
	at := 0
	for ; n > 1; n-- {
		i := bytes.IndexByte(d.text[at:], '\n')
		if i < 0 {
			return len(d.text)
		}
		at += i + 1
	}
	return at
}

func splice(text []byte, from, to int, s string) []byte {
	return append(append(append([]byte{}, text[:from]...), s...), text[to:]...)
}

// newSection replaces the section of a key, or puts it behind the nearest earlier key that is there.
func (d *Document) newSection(f field, s string) []byte {
	if from, to, ok := d.section(f.name); ok {
		return splice(d.text, from, to, s)
	}
	at := d.firstKey()
	for _, other := range fieldsOf(reflect.TypeFor[Manifest]()) {
		if other.name == f.name {
			break
		}
		if _, to, ok := d.section(other.name); ok {
			at = to
		}
	}
	if at > 0 && d.text[at-1] != '\n' {
		s = "\n" + s
	}
	return splice(d.text, at, at, s)
}

// section is the extent of a top-level key: from its line to the last line before the next key that is neither empty
// nor a comment at the margin, which belongs to what follows.
func (d *Document) section(name string) (from, to int, ok bool) {
	k := d.d.keys[name]
	if k == nil || d.d.values[""].Style&yaml.FlowStyle != 0 {
		return 0, 0, false
	}
	from = d.lineStart(k.Line)
	end := len(d.text)
	for _, other := range d.d.values[""].Content {
		if at := d.lineStart(other.Line); at > from && at < end && d.d.keys[other.Value] == other {
			end = at
		}
	}
	to = end
	for to > from {
		line := bytes.LastIndexByte(d.text[:to-1], '\n') + 1
		s := strings.TrimRight(string(d.text[line:to]), " \t\n")
		if line <= from || s != "" && s[0] != '#' {
			break
		}
		to = line
	}
	return from, to, true
}

// remarks is where the comment lines right above an offset begin. Those at the top of the file are about the file.
func (d *Document) remarks(at int) int {
	from := at
	for from > 0 {
		line := bytes.LastIndexByte(d.text[:from-1], '\n') + 1
		if d.text[line] != '#' {
			return from
		}
		from = line
	}
	return at
}

func (d *Document) firstKey() int {
	first := len(d.text)
	for _, k := range d.d.keys {
		first = min(first, d.lineStart(k.Line))
	}
	return first
}
