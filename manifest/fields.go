package manifest

import (
	"reflect"
	"strings"
)

// field is one key of a mapping, as its yaml tag names it.
type field struct {
	name     string
	optional bool
	index    []int
	typ      reflect.Type
}

// fieldsOf lists the keys of a struct type in the order they are written; the keys of an inline field stand among them.
func fieldsOf(t reflect.Type) []field {
	var all []field
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		name, rest, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if rest == "inline" {
			for _, in := range fieldsOf(f.Type) {
				in.index = append([]int{i}, in.index...)
				all = append(all, in)
			}
			continue
		}
		all = append(all, field{name: name, optional: rest == "omitempty", index: []int{i}, typ: f.Type})
	}
	return all
}

func names(fields []field) string {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = f.name
	}
	return strings.Join(all, ", ")
}
