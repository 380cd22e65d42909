package manifest

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestEveryProfileMakesAManifest(t *testing.T) {
	for _, name := range Profiles() {
		p, err := Profile(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := p.Manifest.Clone()
		want.Version, want.Name, want.Profile, want.Command = Version, "x", name, []string{"/usr/bin/x"}
		want.Exec = []Exec{{"/usr/bin/x", hashA, RoleProgram}}
		want.Libraries = []File{{"/usr/lib/x.so", hashA}}
		if want.State != nil {
			want.State.Path = "/var/lib/sharness/x"
		}
		d, err := p.Document("x.yaml", want)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if changes := Diff(d.Manifest(), want); len(changes) > 0 {
			t.Errorf("%s: the document says something else: %v", name, changes)
		}
		// The reasons a profile gives for its choices belong into the manifest that a person will review. Only
		// those about the profile's own keys go with these.
		kept := string(d.Bytes())
		for line := range strings.Lines(string(p.source.without(fragmentKeys))) {
			if s := strings.TrimSpace(line); strings.HasPrefix(s, "#") && !strings.Contains(kept, s) {
				t.Errorf("%s: the comment %q is lost", name, s)
			}
		}
		for _, key := range fragmentKeys {
			if strings.Contains(kept, "\n"+key+":") {
				t.Errorf("%s: %s went into the manifest:\n%s", name, key, kept)
			}
		}
	}
}

func TestProfileRefuses(t *testing.T) {
	if _, err := Profile("none"); err == nil || !strings.HasPrefix(err.Error(), `profile "none": there is none of that name, only `) {
		t.Errorf("unknown: got %v", err)
	}
	for text, want := range map[string]string{
		"exec: [{path: /a, sha256: " + hashA + ", role: program}]": "p:1:7: exec: found a key that the host fills in, expected a profile without it",
		"native: [/usr/bin/x]":                                 `p:1:10: native[0]: found "/usr/bin/x", expected a pattern relative to the folder of the command`,
		"reed: [/usr]":                                         `p:1:1: found the unknown key "reed", expected one of native, embedded, version, name,`,
		"embedded: [{soname: '', path: x, env: X}]":            "p:1:21: embedded[0].soname: found nothing, expected the name of a library",
		"embedded: [{soname: x, path: '{{cpu}}', env: X}]":     `p:1:30: embedded[0].path: found "{{cpu}}", expected one of {{arch}}`,
		"embedded: [{soname: x, path: '../{{arch}}', env: X}]": `p:1:30: embedded[0].path: found "../`,
		"embedded: [{soname: x, path: x, env: X=}]":            `p:1:38: embedded[0].env: found "X=", expected the name of a variable`,
	} {
		if _, err := ParseFragment("p", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

func TestSchemaKnowsEveryKey(t *testing.T) {
	var s map[string]any
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	var walk func(t reflect.Type, s map[string]any, key string)
	walk = func(typ reflect.Type, s map[string]any, key string) {
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() == reflect.Slice {
			items, ok := s["items"].(map[string]any)
			if !ok {
				t.Fatalf("%s: no items", key)
			}
			walk(typ.Elem(), items, key+"[]")
			return
		}
		properties, ok := s["properties"].(map[string]any)
		if !ok {
			return
		}
		if s["additionalProperties"] != false {
			t.Errorf("%s: takes unknown keys", key)
		}
		fields := fieldsOf(typ)
		if len(properties) != len(fields) {
			t.Errorf("%s: has %d keys, the type %d", key, len(properties), len(fields))
		}
		for _, f := range fields {
			sub, ok := properties[f.name].(map[string]any)
			if !ok {
				t.Errorf("%s.%s: missing", key, f.name)
				continue
			}
			walk(f.typ, sub, join(key, f.name))
		}
	}
	walk(reflect.TypeFor[Manifest](), s, "")
}

func TestExpand(t *testing.T) {
	values := map[string]string{"state": "/s", "uid": "{{state}}"}
	for in, want := range map[string]string{
		"":                      "",
		"{{state}}/a/{{state}}": "/s/a//s",
		"{{uid}}":               "{{state}}", // a value is not expanded again
		`{"a":{"b":1}}`:         `{"a":{"b":1}}`,
		"}} {":                  "}} {",
	} {
		if got, err := Expand(in, values); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"{{home}}":  `found "{{home}}", expected one of {{state}}, {{uid}}`,
		"{{ uid }}": `found "{{ uid }}", expected one of {{state}}, {{uid}}`,
		"a{{uid":    `found "{{uid", expected }} after the name`,
	} {
		if got, err := Expand(in, values); err == nil || err.Error() != want {
			t.Errorf("%s: got %q, %v, want %s", in, got, err, want)
		}
	}
}
