package manifest

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// bare is text that means itself in every place a scalar may stand, block or flow.
var bare = regexp.MustCompile(`^[A-Za-z0-9_/.][A-Za-z0-9_/.@+%=~-]*$`)

// scalar writes s so that it is read back as the text s: bare if YAML takes it for text, else in double quotes.
func scalar(s string) string {
	if n := (yaml.Node{Kind: yaml.ScalarNode, Value: s}); bare.MatchString(s) && n.ShortTag() == "!!str" && !boolLike[strings.ToLower(s)] {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"', r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case visible(r):
			b.WriteRune(r)
		case r <= 0xff:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// boolLike are words that older YAML readers take for truth values.
var boolLike = map[string]bool{"y": true, "n": true, "yes": true, "no": true, "on": true, "off": true}

// literal writes text of several lines as a block, indented by pad, if a block can hold it.
func literal(v reflect.Value, pad string) (string, bool) {
	if v.Kind() != reflect.String {
		return "", false
	}
	s := v.String()
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	head := "|"
	if !strings.HasSuffix(s, "\n") {
		head = "|-"
	}
	// A block that begins or ends with space or an empty line needs indicators that few can read: quotes are plainer.
	if first, last := lines[0], lines[len(lines)-1]; len(lines) < 2 || strings.TrimSpace(first) == "" || first[0] == ' ' || first[0] == '\t' || strings.TrimSpace(last) == "" {
		return "", false
	}
	for i, line := range lines {
		for _, r := range line {
			if !visible(r) && r != '\t' {
				return "", false
			}
		}
		if line != "" {
			lines[i] = pad + line
		}
	}
	return head + "\n" + strings.Join(lines, "\n"), true
}
