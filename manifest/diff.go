package manifest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Kind says what happened to a part of a manifest.
type Kind string

// The three things that can happen.
const (
	Added   Kind = "added"
	Removed Kind = "removed"
	Changed Kind = "changed"
)

// Change is one difference. Key names entries of lists by what they are about: exec[/usr/bin/node].sha256.
type Change struct {
	Kind     Kind
	Key      string
	Old, New string // as the manifest writes the value; Old is empty for Added, New for Removed
}

// String is one line: "+ key: value", "- key: value", "~ key: old -> new".
func (c Change) String() string {
	switch c.Kind {
	case Added:
		return fmt.Sprintf("+ %s: %s", c.Key, c.New)
	case Removed:
		return fmt.Sprintf("- %s: %s", c.Key, c.Old)
	}
	return fmt.Sprintf("~ %s: %s -> %s", c.Key, c.Old, c.New)
}

// Diff lists what b says otherwise than a, in the order of the document. What stands under learned differs from run to
// run by design and is left out; so are differences of order in lists that have none.
func Diff(a, b *Manifest) []Change {
	var changes []Change
	x, y := reflect.ValueOf(a.sorted()).Elem(), reflect.ValueOf(b.sorted()).Elem()
	for _, f := range fieldsOf(x.Type()) {
		if f.name != "learned" {
			changes = append(changes, differences(f.name, x.FieldByIndex(f.index), y.FieldByIndex(f.index))...)
		}
	}
	return changes
}

func differences(key string, a, b reflect.Value) []Change {
	if a.Kind() == reflect.Pointer {
		switch {
		case a.IsNil() && b.IsNil():
			return nil
		case a.IsNil():
			return []Change{{Added, key, "", inline(b.Elem())}}
		case b.IsNil():
			return []Change{{Removed, key, inline(a.Elem()), ""}}
		}
		return differences(key, a.Elem(), b.Elem())
	}
	switch {
	case a.Kind() == reflect.Struct:
		var changes []Change
		for _, f := range fieldsOf(a.Type()) {
			changes = append(changes, differences(key+"."+f.name, a.FieldByIndex(f.index), b.FieldByIndex(f.index))...)
		}
		return changes
	case a.Kind() == reflect.Map:
		return mapDifferences(key, a, b)
	case a.Kind() == reflect.Slice && key != "command" && key != "args":
		return listDifferences(key, a, b)
	}
	switch old, now := written(a), written(b); {
	case old == now:
		return nil
	case old == "":
		return []Change{{Added, key, "", now}}
	case now == "":
		return []Change{{Removed, key, old, ""}}
	default:
		return []Change{{Changed, key, old, now}}
	}
}

// written is a value as the manifest writes it, and nothing for one that it would leave out.
func written(v reflect.Value) string {
	if empty(v) {
		return ""
	}
	return inline(v)
}

func listDifferences(key string, a, b reflect.Value) []Change {
	var changes []Change
	for i := range a.Len() {
		if indexOf(b, a.Index(i)) < 0 {
			changes = append(changes, Change{Removed, key, inline(a.Index(i)), ""})
		}
	}
	for i := range b.Len() {
		switch at := indexOf(a, b.Index(i)); {
		case at < 0:
			changes = append(changes, Change{Added, key, "", inline(b.Index(i))})
		case b.Index(i).Kind() == reflect.Struct:
			changes = append(changes, differences(key+"["+identity(b.Index(i))+"]", a.Index(at), b.Index(i))...)
		}
	}
	return changes
}

func mapDifferences(key string, a, b reflect.Value) []Change {
	var changes []Change
	keys := slices.Concat(sortedValues(a), sortedValues(b))
	slices.SortStableFunc(keys, func(x, y reflect.Value) int { return strings.Compare(x.String(), y.String()) })
	for i, k := range keys {
		if i > 0 && keys[i-1].String() == k.String() {
			continue
		}
		old, now, here := a.MapIndex(k), b.MapIndex(k), key+"."+k.String()
		switch {
		case !old.IsValid():
			changes = append(changes, Change{Added, here, "", inline(now)})
		case !now.IsValid():
			changes = append(changes, Change{Removed, here, inline(old), ""})
		case !old.Equal(now):
			changes = append(changes, Change{Changed, here, inline(old), inline(now)})
		}
	}
	return changes
}
