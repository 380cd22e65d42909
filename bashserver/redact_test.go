package bashserver

import (
	"bytes"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
)

// redactWhole is the reference: all occurrences, those that overlap as one mark.
func redactWhole(secrets []Secret, text string) (parts []string) {
	covered := make([]int, len(text)) // number of the mark that covers a byte
	type at struct{ from, to int }
	var all []at
	for _, s := range secrets {
		for i := 0; i+len(s.Value) <= len(text); i++ {
			if text[i:i+len(s.Value)] == s.Value {
				all = append(all, at{i, i + len(s.Value)})
			}
		}
	}
	slices.SortFunc(all, func(a, b at) int { return a.from - b.from })
	n, end := 0, 0
	for _, o := range all {
		if o.from >= end {
			n++
		}
		for i := o.from; i < o.to; i++ {
			covered[i] = n
		}
		end = max(end, o.to)
	}
	plain := ""
	for i := range text {
		switch {
		case covered[i] == 0:
			plain += text[i : i+1]
		case i == 0 || covered[i-1] != covered[i]:
			parts = append(parts, plain)
			plain = ""
		}
	}
	return append(parts, plain)
}

func redactChunks(secrets []Secret, chunks ...string) string {
	var out appender
	f := newFilter(&out, newMatcher(secrets))
	for _, c := range chunks {
		f.Write([]byte(c))
	}
	f.Close()
	return string(out)
}

func TestSecretIsRedactedWhereverTheChunksAreCut(t *testing.T) {
	secrets := []Secret{{"A", "s3cret-s3cret"}, {"B", "cret"}}
	text := "x s3cret-s3cret y cret s3cret-s3cre"
	want := "x [redacted:A] y [redacted:B] s3[redacted:B]-s3cre"
	if got := redactChunks(secrets, text); got != want {
		t.Errorf("whole: got %q, want %q", got, want)
	}
	for i := range text {
		for j := i; j <= len(text); j++ {
			if got := redactChunks(secrets, text[:i], text[i:j], text[j:]); got != want {
				t.Fatalf("cut at %d and %d: got %q", i, j, got)
			}
		}
	}
}

func TestOnlyTheBeginningOfASecretIsHeldBack(t *testing.T) {
	var out appender
	f := newFilter(&out, newMatcher([]Secret{{"A", "abcab"}}))
	for _, tc := range []struct{ in, out string }{
		{"xx", "xx"}, {"xab", "xxx"}, {"q", "xxxabq"}, {"abc", "xxxabq"}, {"abc", "xxxabq[redacted:A]"}, {"a", "xxxabq[redacted:A]"},
	} {
		if f.Write([]byte(tc.in)); string(out) != tc.out {
			t.Fatalf("after %q: got %q, want %q", tc.in, out, tc.out)
		}
	}
	if f.Close(); string(out) != "xxxabq[redacted:A]ca" {
		t.Errorf("at the end: %q", out)
	}
}

func TestOverlappingSecretsLeaveNoByte(t *testing.T) {
	for _, tc := range []struct {
		secrets []Secret
		in, out string
		count   uint64
	}{
		{[]Secret{{"A", "abcd"}, {"B", "bcde"}}, "abcde", "[redacted:A]", 2},
		{[]Secret{{"A", "abcd"}, {"C", "abcdefgh"}}, "abcdefgh abcdefg", "[redacted:C] [redacted:A]efg", 3},
		{[]Secret{{"A", "bcde"}, {"C", "abcdefgh"}, {"D", "ghij"}}, "abcdefghij", "[redacted:C]", 3},
		{[]Secret{{"A", "aaaa"}}, strings.Repeat("a", 100) + "b", "[redacted:A]b", 97},
		{[]Secret{{"A", "abcd"}}, "abcdabcd", "[redacted:A][redacted:A]", 2},
		{[]Secret{{"A", "AAAA"}, {"B", "BBBB"}, {"L", "xAAAAyBBBBz"}}, "xAAAAyBBBBz xAAAAyBBBB", "[redacted:L] x[redacted:A]y[redacted:B]", 5},
	} {
		var out appender
		f := newFilter(&out, newMatcher(tc.secrets))
		for i := range tc.in {
			f.Write([]byte(tc.in[i : i+1]))
		}
		f.Close()
		var sum uint64
		for _, n := range f.Counts {
			sum += n
		}
		if string(out) != tc.out || sum != tc.count {
			t.Errorf("%q: got %q with %d, want %q with %d", tc.in, out, sum, tc.out, tc.count)
		}
	}
}

func TestFilterAgreesWithTheReference(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	word := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "aab"[r.Intn(3)]
		}
		return string(b)
	}
	for range 3000 {
		var secrets []Secret
		for i := range 1 + r.Intn(4) {
			secrets = append(secrets, Secret{fmt.Sprint(i), word(4 + r.Intn(5))})
		}
		text := word(r.Intn(60))
		var chunks []string
		for rest := text; rest != ""; {
			n := 1 + r.Intn(len(rest))
			chunks, rest = append(chunks, rest[:n]), rest[n:]
		}
		got := redactChunks(secrets, chunks...)
		for _, s := range secrets {
			got = strings.ReplaceAll(got, "[redacted:"+s.Name+"]", "|")
		}
		if want := strings.Join(redactWhole(secrets, text), "|"); got != want {
			t.Fatalf("%q in %q: got %q, want %q", secrets, chunks, got, want)
		}
	}
}

func FuzzFilter(f *testing.F) {
	f.Add("abcd", "bcde", []byte("xabcde"), uint(3))
	f.Add("aaaa", "aaaaaaab", []byte("aaaaaaaaab"), uint(1))
	f.Fuzz(func(t *testing.T, a, b string, text []byte, cut uint) {
		if len(a) < minSecret || len(b) < minSecret || len(text) > 4096 {
			return
		}
		secrets := []Secret{{"A", a}, {"B", b}}
		i := int(cut % uint(len(text)+1))
		whole, parts := redactChunks(secrets, string(text)), redactChunks(secrets, string(text[:i]), string(text[i:]))
		if whole != parts {
			t.Fatalf("cut at %d: %q, whole: %q", i, parts, whole)
		}
		if !bytes.Contains(text, []byte("[redacted:")) && !strings.Contains("[redacted:A][redacted:B]", a) && whole == string(text) &&
			(bytes.Contains(text, []byte(a)) || bytes.Contains(text, []byte(b))) {
			t.Fatalf("%q passed whole", text)
		}
	})
}

func BenchmarkFilter(b *testing.B) {
	text := bytes.Repeat([]byte("the quick brown fox jumps over the lazy dog; ghp is no secret, sk-ant neither\n"), 400)
	f := newFilter(discard{}, newMatcher([]Secret{{"A", "ghp_0123456789abcdef"}, {"B", "sk-ant-0123456789"}}))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		f.Write(text)
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// appender is a writer into memory.
type appender []byte

func (a *appender) Write(b []byte) (int, error) {
	*a = append(*a, b...)
	return len(b), nil
}
