package launcher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/sharness/sharness/event"
)

// Bounds of what is shown of a JSON object. A value may hold a secret or a page of text; its beginning tells what it is.
const (
	maxKeys  = 10
	maxValue = 60 // bytes, before what a terminal must not get is escaped
)

// jsonDiff gives the keys of two JSON objects that were added, removed or changed, in their order; false if either text
// is something else. Programs write their objects in any order and on any number of lines, so lines say little.
func jsonDiff(a, b string) ([]string, bool) {
	old, ok := jsonObject(a)
	now, also := jsonObject(b)
	if !ok || !also {
		return nil, false
	}
	var keys []string
	for key := range old {
		keys = append(keys, key)
	}
	for key := range now {
		if _, known := old[key]; !known {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	var out []string
	more := 0
	for _, key := range keys {
		was, had := old[key]
		is, has := now[key]
		if had && has && was == is {
			continue
		}
		if more++; more > maxKeys {
			continue
		}
		if had {
			out = append(out, "  - "+short(key)+": "+short(was))
		}
		if has {
			out = append(out, "  + "+short(key)+": "+short(is))
		}
	}
	if more -= maxKeys; more > 0 {
		out = append(out, fmt.Sprintf("  … and %d more keys", more))
	}
	return out, true
}

// jsonObject reads one object, each value compact. What is empty counts as an object without keys: a file that was not
// there yet. A key that is written twice is not shown by what a parser takes for its value.
func jsonObject(text string) (map[string]string, bool) {
	object := map[string]string{}
	if text == "" {
		return object, true
	}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, false
		}
		key, isText := t.(string)
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil || !isText {
			return nil, false
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil {
			return nil, false
		}
		if _, twice := object[key]; twice {
			return nil, false
		}
		object[key] = compact.String()
	}
	if _, err := d.Token(); err != nil || d.More() {
		return nil, false
	}
	return object, true
}

// short is the beginning of a text, safe for a terminal.
func short(s string) string {
	if len(s) <= maxValue {
		return event.Escape(s)
	}
	end := maxValue
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return event.Escape(s[:end]) + "…"
}
