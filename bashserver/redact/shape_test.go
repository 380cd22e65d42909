package redact

import (
	"math/rand"
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"
)

// sample writes something that a pattern matches. Tokens are made here, while the test runs: none stands in the source.
func sample(r *rand.Rand, re *syntax.Regexp, b *strings.Builder) {
	switch re.Op {
	case syntax.OpLiteral:
		b.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		var in []rune
		for c := rune(' '); c < 0x7f; c++ {
			for i := 0; i < len(re.Rune); i += 2 {
				if c >= re.Rune[i] && c <= re.Rune[i+1] {
					in = append(in, c)
				}
			}
		}
		if len(in) == 0 {
			in = []rune{re.Rune[0]}
		}
		b.WriteRune(in[r.Intn(len(in))])
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte("abcxyz0189"[r.Intn(10)])
	case syntax.OpCapture:
		sample(r, re.Sub[0], b)
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			sample(r, sub, b)
		}
	case syntax.OpAlternate:
		sample(r, re.Sub[r.Intn(len(re.Sub))], b)
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		low, high := re.Min, re.Max
		switch re.Op {
		case syntax.OpStar:
			low, high = 0, 2
		case syntax.OpPlus:
			low, high = 1, 12
		case syntax.OpQuest:
			low, high = 0, 1
		}
		if high < 0 {
			high = low + 20
		}
		for range low + r.Intn(min(high-low, 20)+1) {
			sample(r, re.Sub[0], b)
		}
	}
}

// token is a line that a rule finds, with the secret in it, by the pattern of the source alone.
type token struct {
	text     string
	from, to int
}

func (k token) secret() string { return k.text[k.from:k.to] }

func tokenOf(t *testing.T, r *rand.Rand, rule *rule) token {
	t.Helper()
	re, err := syntax.Parse(rule.regex, syntax.Perl)
	if err != nil {
		t.Fatal(err)
	}
	whole := regexp.MustCompile(rule.regex)
	for range 3000 {
		var b strings.Builder
		b.WriteString("here: ")
		if rule.near {
			b.WriteString(rule.begin[len(rule.begin)-1] + "ebook, or graph it is ") // facebook, sourcegraph
		}
		sample(r, re, &b)
		text := b.String() + "\nnext line\n"
		g := whole.FindStringSubmatchIndex(text)
		if g == nil || strings.Contains(text[g[0]:g[1]], "\n\n") {
			continue
		}
		from, to := pick(g, rule.group)
		if rule.near && from < 20 {
			continue
		}
		secret := []byte(text[from:to])
		if entropy(secret) <= rule.entropy || everywhere.allows(secret, nil, nil) {
			continue
		}
		good := true
		for i := range rule.allow {
			good = good && !rule.allow[i].allows(secret, []byte(text[g[0]:g[1]]), lineOf([]byte(text), from))
		}
		if good {
			return token{text, from, to}
		}
	}
	t.Fatalf("%s: no example of %s can be made", rule.id, rule.regex)
	return token{}
}

func TestEveryRuleFindsWhatItsPatternMatches(t *testing.T) {
	if len(rules) < 200 {
		t.Fatalf("%d rules", len(rules))
	}
	r := rand.New(rand.NewSource(1))
	s := NewSet(nil, RulesAll)
	for i := range rules {
		for range 20 {
			k := tokenOf(t, r, &rules[i])
			if got := through(s, k.text); strings.Contains(got, k.secret()) || !strings.Contains(got, "[redacted:") {
				t.Errorf("%s: %q in\n%q passed:\n%q", rules[i].id, k.secret(), k.text, got)
				break
			}
		}
	}
}

// leaked is how many bytes of the secret stand in front of the mark, beyond what the whole text gives; -1 if anything
// else differs.
func leaked(got, whole string, k token) int {
	if got == whole {
		return 0
	}
	mark := strings.Index(whole, "[redacted:")
	for n := 1; n < k.to-mark; n++ {
		if got == k.text[:mark+n]+whole[mark:] {
			return n
		}
	}
	return -1
}

func TestTokensAreRedactedWhereverTheChunksAreCut(t *testing.T) {
	r := rand.New(rand.NewSource(2))
	s := NewSet(nil, RulesAll)
	for i := range rules {
		k := tokenOf(t, r, &rules[i])
		whole := through(s, k.text)
		for cut := range k.text {
			got := through(s, k.text[:cut], k.text[cut:])
			if n := leaked(got, whole, k); n < 0 || n >= held {
				t.Errorf("%s: cut at %d: %q gives\n%q, whole\n%q", rules[i].id, cut, k.text, got, whole)
				break
			}
		}
		if got := through(s, strings.Split(k.text, "")...); leaked(got, whole, k) < 0 || leaked(got, whole, k) >= held {
			t.Errorf("%s: byte by byte: %q gives\n%q, whole\n%q", rules[i].id, k.text, got, whole)
		}
	}
}

// pem is a made-up key of n lines.
func pem(r *rand.Rand, n int) (whole, body string) {
	var b strings.Builder
	for range n {
		for range 64 {
			b.WriteByte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"[r.Intn(64)])
		}
		b.WriteByte('\n')
	}
	return "-----BEGIN RSA " + "PRIVATE KEY-----\n" + b.String() + "-----END RSA " + "PRIVATE KEY-----\n", b.String()
}

// What begins in vain must neither hide what comes after it, nor cost memory or time without bound.
func TestBeginningsWithoutAnEndHideNothing(t *testing.T) {
	r := rand.New(rand.NewSource(5))
	s := NewSet(nil, RulesAll)
	key, body := pem(r, 50)
	filler := strings.Repeat("a line of text that says nothing\n", 15<<10/33)
	begin := "-----BEGIN RSA " + "PRIVATE KEY-" // without the rest, which an end has, too
	for name, text := range map[string]string{
		"one, far in front":     begin + "----\n" + filler + key,
		"several in front":      begin + "----\n" + filler + begin + "----\n" + filler[:200] + begin + "----\n" + key,
		"many, without a line":  strings.Repeat(begin, 500) + key,
		"other kinds":           strings.Repeat("glpat-api_key = \"eyJ curl ", 100) + "\n" + key,
		"just in front":         begin + "---" + key,
		"a match without a key": "-----BEGIN RSA " + "PRIVATE KEY-----\n" + filler + "KEY-----\n" + key,
	} {
		for _, size := range []int{1000, 4096, 32 << 10} {
			var chunks []string
			for rest := text; rest != ""; {
				n := min(size, len(rest))
				chunks, rest = append(chunks, rest[:n]), rest[n:]
			}
			got := through(s, chunks...)
			for line := range strings.Lines(body) {
				if strings.Contains(got, strings.TrimSpace(line)) {
					t.Errorf("%s, in chunks of %d: a line of the key passed", name, size)
					break
				}
			}
		}
	}
	f := s.Filter(discard{})
	for range 1 << 20 / len(begin) {
		f.Write([]byte(begin))
		f.Write([]byte("glpat-"))
		if len(f.buf) > 2*window || len(f.runs) > 1000 || len(f.spans) > 100 {
			t.Fatalf("%d bytes, %d matches and %d spans are kept", len(f.buf), len(f.runs), len(f.spans))
		}
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

func TestOneSetServesManyStreamsAtOnce(t *testing.T) {
	r := rand.New(rand.NewSource(6))
	s := NewSet([]Secret{{"A", "hunter22!"}}, RulesAll)
	var texts []string
	for i := range rules {
		texts = append(texts, tokenOf(t, r, &rules[i]).text+"hunter22!")
	}
	whole := strings.Join(texts, "")
	want := through(s, whole)
	got := make(chan string)
	for n := range 8 {
		go func() {
			var chunks []string
			for rest := whole; rest != ""; {
				k := min(len(rest), 100+n*1000)
				chunks, rest = append(chunks, rest[:k]), rest[k:]
			}
			got <- through(s, chunks...)
		}()
	}
	for range 8 {
		if out := <-got; strings.Contains(out, "hunter22!") || strings.Count(out, "[redacted:") < len(texts) || len(out) > len(want)+3*len(texts) {
			t.Errorf("%d bytes with %d marks, want %d with %d", len(out), strings.Count(out, "[redacted:"), len(want), strings.Count(want, "[redacted:"))
		}
	}
}
