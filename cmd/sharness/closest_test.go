package main

import "testing"

func TestClosestNamesTheNearestFirst(t *testing.T) {
	names := []string{"exec-direct", "exec-memfd", "net-host", "exec-memfd/cloexec"}
	for word, want := range map[string]string{"exec-memdf": "exec-memfd", "direct": "exec-direct", "nethost": "net-host"} {
		if got := closest(word, names); len(got) != maxClosest || got[0] != want {
			t.Errorf("%s: got %q, want %s first", word, got, want)
		}
	}
	for _, c := range []struct {
		a, b string
		n    int
	}{{"", "abc", 3}, {"kitten", "sitting", 3}, {"same", "same", 0}, {"ab", "ba", 2}} {
		if got := distance(c.a, c.b); got != c.n {
			t.Errorf("%q, %q: got %d, want %d", c.a, c.b, got, c.n)
		}
	}
}
