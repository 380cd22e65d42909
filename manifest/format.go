package manifest

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Format writes m in the one canonical form: keys in the order of the types, lists of images, endpoints and files
// sorted, nothing written that was not set. Equal manifests give equal bytes, and Parse gives m back (sorted).
func Format(m *Manifest) []byte {
	var b bytes.Buffer
	v := reflect.ValueOf(m.sorted()).Elem()
	for _, f := range fieldsOf(v.Type()) {
		if s := section(f, v.FieldByIndex(f.index)); s != "" {
			b.WriteString(s)
		}
	}
	return b.Bytes()
}

// remarks stand behind the keys whose meaning is easily missed.
var remarks = map[string]string{
	"exec":      "EXECUTE allowlist",
	"libraries": "may be mapped executable, not executed",
	"route":     "these paths are the bash-server's client inside",
	"read":      "bound read-only, nothing in them executable",
	"connect":   "the only upstreams there are inside",
	"integrity": "files that must be as they were",
	"learned":   "what varies from run to run",
}

// sorted returns a copy whose unordered lists are in order. Lists whose order a reader chose (route, args, share …)
// keep it.
func (m *Manifest) sorted() *Manifest {
	s := *m
	s.Exec = slices.SortedStableFunc(slices.Values(m.Exec), func(a, b Exec) int { return cmp.Compare(a.Path, b.Path) })
	byPath := func(a, b File) int { return cmp.Compare(a.Path, b.Path) }
	s.Libraries = slices.SortedStableFunc(slices.Values(m.Libraries), byPath)
	s.Integrity = slices.SortedStableFunc(slices.Values(m.Integrity), byPath)
	s.Connect = slices.SortedStableFunc(slices.Values(m.Connect), func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port))
	})
	return &s
}

// section is the whole text of one top-level key, or nothing if it need not be written.
func section(f field, v reflect.Value) string {
	if f.optional && empty(v) {
		return ""
	}
	remark := ""
	if r := remarks[f.name]; r != "" {
		remark = " # " + r
	}
	return entry(f.name, v, 0, remark)
}

// empty is what omitempty leaves out: a pointer to nothing set still says something (learned: present).
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return v.IsZero()
		}
		for _, f := range fieldsOf(v.Type()) {
			if !empty(v.FieldByIndex(f.index)) {
				return false
			}
		}
		return true
	}
	return v.IsZero()
}

// wide is the column past which a list is written one item a line.
const wide = 110

// entry writes "name: value" at the given depth.
func entry(name string, v reflect.Value, depth int, remark string) string {
	pad := strings.Repeat("  ", depth)
	head := pad + scalar(name) + ":"
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if s, ok := literal(v, pad+"  "); ok {
		return head + " " + s + remark + "\n"
	}
	if !itemwise(v) {
		if line := head + " " + inline(v) + remark + "\n"; len(line) <= wide || v.Kind() != reflect.Slice {
			return line
		}
	}
	var b strings.Builder
	b.WriteString(head + remark + "\n")
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			b.WriteString(item(v.Index(i), pad+"  "))
		}
	case reflect.Map:
		for _, k := range sortedValues(v) {
			b.WriteString(entry(k.String(), v.MapIndex(k), depth+1, ""))
		}
	case reflect.Struct:
		for _, f := range fieldsOf(v.Type()) {
			if fv := v.FieldByIndex(f.index); !f.optional || !empty(fv) {
				b.WriteString(entry(f.name, fv, depth+1, ""))
			}
		}
	}
	return b.String()
}

// itemwise is true for what reads better one entry a line even when it would fit.
func itemwise(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice:
		return v.Len() > 0 && v.Type().Elem().Kind() == reflect.Struct
	case reflect.Struct:
		return v.Type() != reflect.TypeFor[time.Time]() && !empty(v)
	}
	return v.Kind() == reflect.Map && v.Len() > 0
}

// item writes one element of a list.
func item(v reflect.Value, pad string) string {
	if seed, ok := v.Interface().(Seed); ok {
		if s, ok := literal(reflect.ValueOf(seed.Content), pad+"    "); ok {
			return pad + "- path: " + scalar(seed.Path) + "\n" + pad + "  content: " + s + "\n"
		}
	}
	return pad + "- " + inline(v) + "\n"
}

// inline writes a value in flow style, on one line.
func inline(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case fmt.Stringer:
		if t, ok := x.(time.Time); ok {
			return t.UTC().Format(time.RFC3339Nano)
		}
		return x.String()
	}
	switch v.Kind() {
	case reflect.String:
		return scalar(v.String())
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.Int:
		return strconv.FormatInt(v.Int(), 10)
	case reflect.Uint16:
		return strconv.FormatUint(v.Uint(), 10)
	case reflect.Slice:
		var items []string
		for i := range v.Len() {
			items = append(items, inline(v.Index(i)))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case reflect.Struct:
		var items []string
		for _, f := range fieldsOf(v.Type()) {
			if fv := v.FieldByIndex(f.index); !f.optional || !empty(fv) {
				items = append(items, f.name+": "+inline(fv))
			}
		}
		return "{" + strings.Join(items, ", ") + "}"
	case reflect.Map:
		return "{}"
	}
	panic("manifest: no rule to write " + v.Type().String())
}

func sortedValues(m reflect.Value) []reflect.Value {
	return slices.SortedFunc(slices.Values(m.MapKeys()), func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
}
