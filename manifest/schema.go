package manifest

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// Schema returns a JSON Schema (draft 2020-12) of the document, made from the types, for editors. It knows keys, types
// and spellings; what Validate finds beyond that (duplicates, contradictions) it cannot say.
func Schema() []byte {
	s := schemaOf(reflect.TypeFor[Manifest](), "")
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "sharness manifest"
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic("manifest: schema: " + err.Error())
	}
	return append(out, '\n')
}

type object = map[string]any

// spelling is what Validate demands of the text under a key, by the path of the key without list positions.
var spelling = map[string]object{
	"version":                 {"const": Version},
	"name":                    {"type": "string", "pattern": nameText.String()},
	"profile":                 {"type": "string", "pattern": nameText.String()},
	"command":                 {"type": "array", "minItems": 1, "items": object{"type": "string"}, "prefixItems": []object{absolute}},
	"route[]":                 absolute,
	"read[]":                  absolute,
	"shell":                   absolute,
	"state.path":              absolute,
	"sandbox.read[]":          absolute,
	"workspace.path":          {"type": "string", "pattern": `^(\.|/.*)$`},
	"recvmsg":                 {"enum": []Recvmsg{RecvmsgAllow, RecvmsgDeny}},
	"workspace.orchestrator":  {"enum": []Access{AccessRead, AccessWrite}},
	"workspace.protect":       {"enum": []Protect{ProtectDefault, ProtectNone}},
	"connect[].port":          {"type": "integer", "minimum": 1, "maximum": 65535},
	"connect[].tls":           {"enum": []TLS{TLSSNI, TLSNone}},
	"connect[].for":           {"type": "string", "pattern": forWords.String()},
	"sandbox.network":         {"enum": []Network{NetworkNone, NetworkSession}},
	"sandbox.background.keep": {"enum": []Keep{KeepNone, KeepJobs}},
	"sandbox.cpu_weight":      weight,
	"session.cpu_weight":      weight,
	"sandbox.background.jobs": {"type": "integer", "minimum": 1, "maximum": maxJobs},
	"secrets.rules":           {"enum": []Rules{RulesDefault, RulesAll, RulesNone}},
	"secrets.escapes":         {"enum": []Escapes{EscapesPass, EscapesNeutralise}},
	"secrets.binary":          {"enum": []Binary{BinaryPass, BinaryRefuse}},
	"env.pass[]":              {"type": "string", "pattern": envName.String()},
	"secrets.env[]":           {"type": "string", "pattern": envName.String()},
	"exec[].role":             {"enum": []Role{RoleProgram, RoleScript, RoleInterpreter, RoleLoader}},
}

var (
	absolute = object{"type": "string", "pattern": "^/."}
	weight   = object{"type": "integer", "minimum": 1, "maximum": maxWeight}
	hash     = object{"type": "string", "pattern": hashText.String()}
)

func schemaOf(t reflect.Type, key string) object {
	if s, ok := spelling[key]; ok {
		return s
	}
	switch {
	case strings.HasSuffix(key, "[].sha256"):
		return hash
	case strings.HasSuffix(key, "[].path") && !strings.HasPrefix(key, "state."):
		return absolute
	case t == reflect.TypeFor[Size]():
		return object{"type": "string", "pattern": sizeText.String()}
	case t == reflect.TypeFor[Percent]():
		return object{"type": "string", "pattern": percentText.String()}
	case t == reflect.TypeFor[Timeout]():
		return object{"type": "string", "pattern": `^(none|([0-9.]+(h|m|s|ms))+)$`}
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), key)
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem(), key+"[]")}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": object{"type": "string"}, "propertyNames": object{"pattern": envName.String()}}
	case reflect.Struct:
		return structSchema(t, key)
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Uint16:
		return object{"type": "integer", "minimum": 1}
	}
	return object{"type": "string"}
}

func structSchema(t reflect.Type, key string) object {
	properties, required := object{}, []string{}
	for _, f := range fieldsOf(t) {
		properties[f.name] = schemaOf(f.typ, join(key, f.name))
		// workspace and sandbox are always written, but every key of theirs has a default, so they may be left out.
		if !f.optional && f.typ.Kind() != reflect.Struct {
			required = append(required, f.name)
		}
	}
	s := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}
