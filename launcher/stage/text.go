package stage

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// Paths, arguments and variables are bytes, and JSON is text. A string that is not UTF-8 travels as this mark and base64;
// no such string begins with a NUL by itself.
const bytesMark = "\x00base64:"

// Encode is the form in which a plan travels. The plan must not be used afterwards.
func (p *Plan) Encode() ([]byte, error) {
	if err := eachString(reflect.ValueOf(p), toText); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	data, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return data, nil
}

func toText(s string) (string, error) {
	if strings.HasPrefix(s, "\x00") {
		return "", fmt.Errorf("string %q begins with a NUL", s)
	}
	if utf8.ValidString(s) {
		return s, nil
	}
	return bytesMark + base64.StdEncoding.EncodeToString([]byte(s)), nil
}

func fromText(s string) (string, error) {
	coded, ok := strings.CutPrefix(s, bytesMark)
	if !ok {
		return s, nil
	}
	b, err := base64.StdEncoding.DecodeString(coded)
	return string(b), err
}

// eachString replaces every string below v.
func eachString(v reflect.Value, change func(string) (string, error)) error {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return eachString(v.Elem(), change)
	case reflect.Struct:
		for i := range v.NumField() {
			if err := eachString(v.Field(i), change); err != nil {
				return err
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return nil
		}
		for i := range v.Len() {
			if err := eachString(v.Index(i), change); err != nil {
				return err
			}
		}
	case reflect.String:
		old := v.String()
		s, err := change(old)
		if err != nil {
			return err
		}
		if s != old { // tables of constants are shared between plans
			v.SetString(s)
		}
	}
	return nil
}
