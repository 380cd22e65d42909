package redact

import "testing"

func TestStringLeavesAwayWhatACutMayHaveMadeOfASecret(t *testing.T) {
	set := NewSet([]Secret{{"KEY", "hunter2hunter2"}}, RulesDefault)
	const token = "ghp_0123456789abcdefABCDEF0123456789abcd"
	for _, tt := range []struct {
		name, in string
		cut      bool
		want     string
	}{
		{"whole", "/a/hunter2hunter2/b", false, "/a/[redacted:KEY]/b"},
		{"token", "--header=" + token, false, "--header=[redacted:github-pat]"},
		{"beginning of a value that was cut", "/a/hunter2hun", true, "/a/"},
		{"beginning that was not cut", "/a/hunter2hun", false, "/a/hunter2hun"},
		{"token that was cut", "--header=" + token[:20], true, "--header="},
		{"cut elsewhere", "/usr/bin/x", true, "/usr/bin/x"},
		{"nothing", "", true, ""},
	} {
		if got := set.String(tt.in, tt.cut); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
