package redact

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"
)

// appender is a writer into memory.
type appender []byte

func (a *appender) Write(b []byte) (int, error) {
	*a = append(*a, b...)
	return len(b), nil
}

// through is what comes out of a filter that time does not pass for.
func through(s *Set, chunks ...string) string {
	var out appender
	f := s.Filter(&out)
	at := time.Unix(0, 0)
	f.now = func() time.Time { return at }
	for _, c := range chunks {
		f.Write([]byte(c))
	}
	f.Close()
	return string(out)
}

// redactWhole is the reference for plain values: all occurrences, those that overlap as one mark.
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

var bothWays = []Rules{RulesNone, RulesAll}

func TestSecretIsRedactedWhereverTheChunksAreCut(t *testing.T) {
	text := "x s3cret-s3cret y cret s3cret-s3cre"
	want := "x [redacted:A] y [redacted:B] s3[redacted:B]-s3cre"
	for _, which := range bothWays {
		s := NewSet([]Secret{{"A", "s3cret-s3cret"}, {"B", "cret"}}, which)
		if got := through(s, text); got != want {
			t.Errorf("whole: got %q, want %q", got, want)
		}
		for i := range text {
			for j := i; j <= len(text); j++ {
				if got := through(s, text[:i], text[i:j], text[j:]); got != want {
					t.Fatalf("cut at %d and %d: got %q", i, j, got)
				}
			}
		}
	}
}

func TestOnlyTheBeginningOfASecretIsHeldBack(t *testing.T) {
	var out appender
	f := NewSet([]Secret{{"A", "abcab"}}, RulesNone).Filter(&out)
	f.now = func() time.Time { return time.Unix(0, 0) }
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

// A prompt that ends like a secret begins must come out; a secret that is printed slowly must not.
func TestFourBytesOfAValueWaitForEverAndFewerDoNot(t *testing.T) {
	for _, which := range bothWays {
		var out appender
		f := NewSet([]Secret{{"A", "hunter22"}}, which).Filter(&out)
		at := time.Unix(0, 0)
		f.now = func() time.Time { return at }
		tick := func(want string) {
			t.Helper()
			for range 3 {
				at = at.Add(Patience)
				f.Idle()
			}
			if string(out) != want {
				t.Errorf("got %q, want %q", out, want)
			}
			if w := f.Wait(); w != 0 {
				t.Errorf("with %q out it wants to wake up in %v", out, w)
			}
		}
		f.Write([]byte("are you hun"))
		if string(out) != "are you " || f.Wait() != Patience {
			t.Errorf("at once: %q, and wait %v", out, f.Wait())
		}
		tick("are you hun")
		f.Write([]byte("t"))
		tick("are you hun")
		f.Write([]byte("er2"))
		tick("are you hun")
		f.Write([]byte("2?"))
		tick("are you hun[redacted:A]?")
		f.Write([]byte(" hunt"))
		tick("are you hun[redacted:A]? ")
		f.Close()
		tick("are you hun[redacted:A]? hunt")
	}
}

func TestBytesThatKeepComingAreNotHeldForLonger(t *testing.T) {
	var out appender
	f := NewSet(nil, RulesDefault).Filter(&out)
	at := time.Unix(0, 0)
	f.now = func() time.Time { return at }
	for i := range 100 {
		f.Write([]byte("a"))
		at = at.Add(Patience / 10)
		if w := f.Wait(); w > 0 && w <= Patience/100 {
			f.Idle()
		}
		if len(out) < i-12 {
			t.Fatalf("of %d bytes %d are out", i+1, len(out))
		}
	}
}

func TestOverlappingSecretsLeaveNoByte(t *testing.T) {
	for _, tc := range []struct {
		secrets []Secret
		in, out string
		count   uint64
	}{
		{[]Secret{{"A", "abcd"}, {"B", "bcde"}}, "abcde", "[redacted:A]", 1},
		{[]Secret{{"A", "abcd"}, {"C", "abcdefgh"}}, "abcdefgh abcdefg", "[redacted:C] [redacted:A]efg", 2},
		{[]Secret{{"A", "bcde"}, {"C", "abcdefgh"}, {"D", "ghij"}}, "abcdefghij", "[redacted:C]", 1},
		{[]Secret{{"A", "aaaa"}}, strings.Repeat("a", 100) + "b", "[redacted:A]b", 1},
		{[]Secret{{"A", "abcd"}}, "abcdabcd", "[redacted:A][redacted:A]", 2},
		{[]Secret{{"A", "AAAA"}, {"B", "BBBB"}, {"L", "xAAAAyBBBBz"}}, "xAAAAyBBBBz xAAAAyBBBB", "[redacted:L] x[redacted:A]y[redacted:B]", 3},
	} {
		var out appender
		f := NewSet(tc.secrets, RulesAll).Filter(&out)
		for i := range tc.in {
			f.Write([]byte(tc.in[i : i+1]))
		}
		f.Close()
		var sum uint64
		for _, c := range f.Counts() {
			sum += c.N
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
			b[i] = "xxy"[r.Intn(3)]
		}
		return string(b)
	}
	for round := range 3000 {
		var secrets []Secret
		for i := range 1 + r.Intn(4) {
			secrets = append(secrets, Secret{fmt.Sprint(i), word(4 + r.Intn(5))})
		}
		text := word(r.Intn(200))
		var chunks []string
		for rest := text; rest != ""; {
			n := 1 + r.Intn(len(rest))
			chunks, rest = append(chunks, rest[:n]), rest[n:]
		}
		got := through(NewSet(secrets, bothWays[round%2]), chunks...)
		for _, s := range secrets {
			got = strings.ReplaceAll(got, "[redacted:"+s.Name+"]", "|")
		}
		if want := strings.Join(redactWhole(secrets, text), "|"); got != want {
			t.Fatalf("%q in %q: got %q, want %q", secrets, chunks, got, want)
		}
	}
}
