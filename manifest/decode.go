package manifest

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// decoder turns nodes into values by the yaml tags of the types, and remembers where each key path stood. The YAML
// package's own decoder is not used: it converts (a number becomes text, null becomes zero), takes anchors and merge
// keys, and says neither column nor key path.
type decoder struct {
	file   string
	last   int                   // the last line: an empty document may be placed behind it
	values map[string]*yaml.Node // by key path
	keys   map[string]*yaml.Node // the key of a mapping entry, by the path of its value
}

func (d *decoder) errorf(n *yaml.Node, key, format string, args ...any) *Error {
	return &Error{File: d.file, Line: min(max(n.Line, 1), d.last), Column: max(n.Column, 1), Key: key, Text: fmt.Sprintf(format, args...)}
}

// place gives e the position of its key, or of the nearest enclosing key that was written.
func (d *decoder) place(e *Error) *Error {
	for key := e.Key; ; key = parentKey(key) {
		if n, ok := d.values[key]; ok {
			return d.errorf(n, e.Key, "%s", e.Text)
		}
		if key == "" {
			return &Error{File: d.file, Line: 1, Column: 1, Key: e.Key, Text: e.Text}
		}
	}
}

func parentKey(key string) string {
	return key[:max(strings.LastIndexAny(key, ".["), 0)]
}

// value decodes n into v.
func (d *decoder) value(n *yaml.Node, v reflect.Value, key string) error {
	d.values[key] = n
	if err := d.plainYAML(n, key); err != nil {
		return err
	}
	switch v.Interface().(type) {
	case time.Time, Size, Timeout, Percent:
		return d.unit(n, v, key)
	case Network:
		if n.Kind == yaml.MappingNode {
			return d.errorf(n, key, "found a mapping (an allow list for commands is not offered in this release), expected none or session")
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return d.value(n, v.Elem(), key)
	case reflect.Struct:
		return d.structure(n, v, key)
	case reflect.Map:
		return d.mapping(n, v, key)
	case reflect.Slice:
		return d.list(n, v, key)
	case reflect.String:
		return d.text(n, v, key)
	case reflect.Bool:
		return d.boolean(n, v, key)
	case reflect.Int, reflect.Uint16:
		return d.number(n, v, key)
	}
	panic("manifest: no rule to decode " + v.Type().String())
}

// plainYAML refuses what makes one place of the file mean another: aliases, anchors, tags.
func (d *decoder) plainYAML(n *yaml.Node, key string) error {
	switch {
	case n.Kind == yaml.AliasNode:
		return d.errorf(n, key, "found the alias *%s, expected the value itself", n.Value)
	case n.Anchor != "":
		return d.errorf(n, key, "found the anchor &%s, expected a value without one", n.Anchor)
	case n.Style&yaml.TaggedStyle != 0:
		return d.errorf(n, key, "found the tag %s, expected a value without one", n.Tag)
	}
	return nil
}

// entries calls each for every key of a mapping, after refusing keys that are not text or come twice.
func (d *decoder) entries(n *yaml.Node, key string, each func(name string, k, v *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return d.errorf(n, key, "%s", found(describe(n), "a mapping"))
	}
	seen := map[string]int{}
	for i := 0; i < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.ShortTag() == "!!merge" {
			return d.errorf(k, key, "found the merge key <<, expected the keys themselves")
		}
		if err := d.plainYAML(k, key); err != nil {
			return err
		}
		if k.Kind != yaml.ScalarNode || k.ShortTag() != "!!str" {
			return d.errorf(k, key, "%s", found(describe(k)+" as a key", "a word"))
		}
		if line, twice := seen[k.Value]; twice {
			return d.errorf(k, join(key, k.Value), "found the key a second time, expected it once (first on line %d)", line)
		}
		seen[k.Value] = k.Line
		if err := each(k.Value, k, v); err != nil {
			return err
		}
	}
	return nil
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

func (d *decoder) structure(n *yaml.Node, v reflect.Value, key string) error {
	fields := fieldsOf(v.Type())
	return d.entries(n, key, func(name string, k, node *yaml.Node) error {
		for _, f := range fields {
			if f.name == name {
				d.keys[join(key, name)] = k
				return d.value(node, v.FieldByIndex(f.index), join(key, name))
			}
		}
		return d.errorf(k, key, "%s", found("the unknown key "+quote(name), "one of "+names(fields)))
	})
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, key string) error {
	m := reflect.MakeMap(v.Type())
	err := d.entries(n, key, func(name string, k, node *yaml.Node) error {
		elem := reflect.New(v.Type().Elem()).Elem()
		d.keys[join(key, name)] = k
		if err := d.value(node, elem, join(key, name)); err != nil {
			return err
		}
		m.SetMapIndex(reflect.ValueOf(name), elem)
		return nil
	})
	if err == nil && m.Len() > 0 {
		v.Set(m)
	}
	return err
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, key string) error {
	if n.Kind != yaml.SequenceNode {
		return d.errorf(n, key, "%s", found(describe(n), "a list"))
	}
	for i, item := range n.Content {
		elem := reflect.New(v.Type().Elem()).Elem()
		if err := d.value(item, elem, key+"["+strconv.Itoa(i)+"]"); err != nil {
			return err
		}
		v.Set(reflect.Append(v, elem))
	}
	return nil
}

func (d *decoder) text(n *yaml.Node, v reflect.Value, key string) error {
	if n.Kind != yaml.ScalarNode {
		return d.errorf(n, key, "%s", found(describe(n), "text"))
	}
	if n.ShortTag() != "!!str" {
		return d.errorf(n, key, "%s", found(describe(n), "text (put it in quotes if it is meant)"))
	}
	v.SetString(n.Value)
	return nil
}

func (d *decoder) boolean(n *yaml.Node, v reflect.Value, key string) error {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Value != "true" && n.Value != "false" {
		return d.errorf(n, key, "%s", found(describe(n), "true or false"))
	}
	v.SetBool(n.Value == "true")
	return nil
}

// decimal leaves out the octal, hexadecimal and underscored spellings: a reader of 010 should not have to know YAML.
var decimal = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)

func (d *decoder) number(n *yaml.Node, v reflect.Value, key string) error {
	bits, want := 32, "a whole number above 0"
	if v.Kind() == reflect.Uint16 {
		bits, want = 17, "a number from 1 to 65535"
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || !decimal.MatchString(n.Value) {
		return d.errorf(n, key, "%s", found(describe(n), want))
	}
	x, err := strconv.ParseInt(n.Value, 10, bits)
	// A written 0 would read back as "not written" and so as the default.
	if err != nil || x == 0 {
		return d.errorf(n, key, "%s", found(n.Value, want))
	}
	if v.Kind() == reflect.Uint16 {
		v.SetUint(uint64(x))
		return nil
	}
	v.SetInt(x)
	return nil
}

// describe says what a node is, in the words of someone who does not know YAML's.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!int", "!!float":
		return "the number " + quote(n.Value)
	case "!!bool":
		return "the truth value " + quote(n.Value)
	case "!!timestamp":
		return "the date " + quote(n.Value)
	}
	return quote(n.Value)
}
