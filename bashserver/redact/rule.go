package redact

import (
	"bytes"
	"math"
	"regexp"
	"strings"
	"sync"
)

// rule is one row of rules_gen.go. What costs memory is made when the first text comes that may meet it.
type rule struct {
	id      string
	regex   string   // as the source has it
	gate    string   // without what may be missing at its front: where a search begins
	group   int      // that is the secret; 0: the first that is not empty, or the whole match
	entropy float64  // in bits a character, more is demanded of the secret
	begin   []string // what gate can begin with, three to eight bytes, folded
	backMin int      // begin lies so many bytes behind the beginning
	backMax int
	near    bool // begin is of a keyword that stands in front, on the same line
	allow   []allowlist

	once    sync.Once
	machine *machine
	find    *regexp.Regexp // gate at the beginning of a text
	whole   *machine       // of regex, if an allowlist wants to see all of a match
}

// allowlist says what is no secret after all.
type allowlist struct {
	target string // of regex: "" the secret, "match" all of the match, "line" its line
	all    bool   // regex and words both, not one of them
	regex  string
	words  []string // in the secret, in lower case

	once    sync.Once
	machine *machine            // of regex, anywhere in a text
	trie    map[string][]string // words by their first three bytes
}

// ready compiles a rule. Its patterns have been compiled when the table was made, and by a test.
func (r *rule) ready() *machine {
	r.once.Do(func() {
		r.machine, r.find = must(r.gate), regexp.MustCompile(`\A(?:`+r.gate+`)`)
		for i := range r.allow {
			if r.allow[i].target != "" {
				r.whole = must(r.regex)
			}
		}
	})
	return r.machine
}

// secret finds the secret of a match that is text[at:end], as the machine has said; to and from are offsets in text, which
// holds what is known in front of it, too, and the byte that decided.
func (r *rule) secret(text []byte, at, end int) (from, to int, ok bool) {
	text = readable(text)
	g := []int{0, end - at}
	if r.machine.groups {
		if g = r.find.FindSubmatchIndex(text[at:]); g == nil {
			return 0, 0, false // it has more than bytes to say of characters above 0x7f
		}
	}
	from, to = pick(g, r.group)
	secret := text[at+from : at+to]
	if r.entropy > 0 && entropy(secret) <= r.entropy || everywhere.allows(secret, nil, nil) {
		return 0, 0, false
	}
	// What costs a search of its own comes last.
	for i := range r.allow {
		if r.allow[i].target == "" && r.allow[i].allows(secret, nil, nil) {
			return 0, 0, false
		}
	}
	if r.whole != nil {
		match, line := r.wholeMatch(text, at, at+from, at+g[1]), lineOf(text, at+from)
		for i := range r.allow {
			if r.allow[i].target != "" && r.allow[i].allows(secret, match, line) {
				return 0, 0, false
			}
		}
	}
	return at + from, at + to, true
}

func pick(g []int, group int) (from, to int) {
	if group > 0 {
		return g[2*group], g[2*group+1]
	}
	for i := 2; i+1 < len(g); i += 2 {
		if g[i] >= 0 && g[i] < g[i+1] {
			return g[i], g[i+1]
		}
	}
	return g[0], g[1]
}

// lead is how far in front of gate a match can begin: a name of 50 characters, as the rules have it.
const lead = 50

// wholeMatch is text[at:end] with what gate leaves away in front: the leftmost match that has the secret in it.
func (r *rule) wholeMatch(text []byte, at, secret, end int) []byte {
	for i := max(0, at-lead); i < at; i++ {
		front := uint8(atBegin)
		if i > 0 {
			front = prevOf(text[i-1])
		}
		if n := r.whole.match(front, text[i:]); n > secret-i {
			return text[i : i+n]
		}
	}
	return text[at:end]
}

func lineOf(text []byte, at int) []byte {
	from := bytes.LastIndexByte(text[:at], '\n') + 1
	if n := bytes.IndexByte(text[at:], '\n'); n >= 0 {
		return text[from : at+n]
	}
	return text[from:]
}

// readable is text as the machine reads it.
func readable(text []byte) []byte {
	if bytes.IndexByte(text, 0) < 0 && bytes.IndexByte(text, 0x1b) < 0 {
		return text
	}
	out := bytes.Clone(text)
	for i, b := range out {
		if b == 0 || b == 0x1b {
			out[i] = '\n'
		}
	}
	return out
}

// entropy is Shannon's, of the bytes.
func entropy(b []byte) float64 {
	var count [256]int
	for _, c := range b {
		count[c]++
	}
	sum := 0.0
	for _, n := range count {
		if n > 0 {
			p := float64(n) / float64(len(b))
			sum -= p * math.Log2(p)
		}
	}
	return sum
}

func (a *allowlist) allows(secret, match, line []byte) bool {
	a.once.Do(func() {
		if a.regex != "" {
			a.machine = must(`(?s:.*?)(?:` + a.regex + `)`)
		}
		a.trie = map[string][]string{}
		for _, w := range a.words {
			a.trie[w[:3]] = append(a.trie[w[:3]], w)
		}
	})
	target := secret
	switch a.target {
	case "match":
		target = match
	case "line":
		target = line
	}
	re := a.machine != nil && a.machine.in(target)
	if a.all {
		return (re || a.machine == nil) && (len(a.words) == 0 || a.hasWord(secret))
	}
	return re || a.hasWord(secret)
}

func (a *allowlist) hasWord(secret []byte) bool {
	if len(a.words) == 0 {
		return false
	}
	s := strings.ToLower(string(secret))
	for i := 0; i+3 <= len(s); i++ {
		for _, w := range a.trie[s[i:i+3]] {
			if strings.HasPrefix(s[i:], w) {
				return true
			}
		}
	}
	return false
}
