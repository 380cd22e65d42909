package manifest

import (
	"maps"
	"reflect"
	"time"
)

// Clone returns a copy that shares nothing with m.
func (m *Manifest) Clone() *Manifest {
	c := *m
	deepen(reflect.ValueOf(&c).Elem())
	return &c
}

// deepen replaces every slice, map and pointer below v by a copy of its own.
func deepen(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			own := reflect.New(v.Type().Elem())
			own.Elem().Set(v.Elem())
			deepen(own.Elem())
			v.Set(own)
		}
	case reflect.Slice:
		if !v.IsNil() {
			own := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
			reflect.Copy(own, v)
			v.Set(own)
			for i := range v.Len() {
				deepen(v.Index(i))
			}
		}
	case reflect.Map:
		v.Set(reflect.ValueOf(maps.Clone(v.Interface().(map[string]string))))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for _, f := range fieldsOf(v.Type()) {
			deepen(v.FieldByIndex(f.index))
		}
	}
}
