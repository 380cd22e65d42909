package redact

import "fmt"

// Secret is a value that must not leave. Name goes into the mark that replaces it.
type Secret struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// MinValue is the fewest bytes of a value: less would turn ordinary output into marks.
const MinValue = 4

// Rules says which rules for the shapes of tokens apply.
type Rules string

// RulesDefault are those that know a token by a text of its issuer's. RulesAll adds those that take any long word for a
// secret that stands behind a name such as "key". RulesNone leaves the values.
const (
	RulesDefault Rules = "default"
	RulesAll     Rules = "all"
	RulesNone    Rules = "none"
)

// AllRules are the choices.
var AllRules = []Rules{RulesDefault, RulesAll, RulesNone}

// vague are the rules that RulesDefault leaves out.
var vague = map[string]bool{"generic-api-key": true}

// Set is what is looked for. It is made once and serves any number of streams at a time.
type Set struct {
	names  []string
	values int // so many of names are of values, the rest of rules
	forms  []form
	middle []target // the rules whose grams do not stand at the front

	table                     // of what the names may begin with
	first [256]bool           // bytes with which a value may begin
	more  map[string]struct{} // two and three bytes
}

// target is a form of a value or a rule, and where it begins: back bytes before what was found.
type target struct {
	form *form
	rule *rule
	name int
	back int

	want, mask uint64 // up to eight bytes of text, folded, that have to be there
}

// NewSet makes a set. Every value has MinValue bytes at least.
func NewSet(secrets []Secret, which Rules) *Set {
	s := &Set{more: map[string]struct{}{}}
	found := map[uint32][]target{}
	add := func(begin string, t target) {
		t.want, t.mask = word([]byte(begin))
		g := uint32(t.want & 0xffffff)
		found[g] = append(found[g], t)
	}
	for _, secret := range secrets {
		if len(secret.Value) < MinValue {
			panic(fmt.Sprintf("redact: the value of %s has less than %d bytes", secret.Name, MinValue))
		}
		for _, v := range variants(secret.Value) {
			s.forms = append(s.forms, forms(s.name(secret.Name), v)...)
		}
	}
	s.values = len(s.names)
	for i := range s.forms {
		f := &s.forms[i]
		for _, g := range f.beginnings() {
			add(g[:3], target{form: f, name: f.name})
			if which == RulesNone {
				add(g[1:4], target{form: f, name: f.name, back: 1})
			}
			s.first[g[0]] = true
			s.more[g[:2]] = struct{}{}
			s.more[g[:3]] = struct{}{}
		}
	}
	for i := range rules {
		r := &rules[i]
		if which == RulesNone || which != RulesAll && vague[r.id] {
			continue
		}
		s.names = append(s.names, r.id)
		if r.backMax > 0 {
			s.middle = append(s.middle, target{rule: r, name: len(s.names) - 1})
		}
		for _, b := range r.begin {
			add(b, target{rule: r, name: len(s.names) - 1})
		}
	}
	s.fill(found, which == RulesNone)
	return s
}

// name is the number of a value's name; two values may share one.
func (s *Set) name(n string) int {
	for i, known := range s.names {
		if known == n {
			return i
		}
	}
	s.names = append(s.names, n)
	return len(s.names) - 1
}

// begins says how many of the last bytes of text, three at most, a value may begin with.
func (s *Set) begins(text []byte) int {
	var tail [3]byte
	n := copy(tail[:], text[max(0, len(text)-3):])
	for i := range tail {
		tail[i] |= 0x20
	}
	for i := range n {
		rest := tail[i:n]
		if len(rest) > 1 {
			if _, ok := s.more[string(rest)]; ok {
				return len(rest)
			}
		} else if s.first[rest[0]] {
			return 1
		}
	}
	return 0
}
