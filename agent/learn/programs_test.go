package learn

import "testing"

func TestRoutableKnowsProgramsByTheirVersionsToo(t *testing.T) {
	for name, want := range map[string]bool{
		"/usr/bin/python3": true, "/usr/bin/python3.11": true, "/usr/bin/perl5.36.0": true, "/usr/bin/perl5.36-x86_64-linux-gnu": true, "/usr/bin/ruby3.1": true,
		"/usr/bin/vim.basic": true, "/usr/bin/bash": true,
		"/usr/bin/sed": false, "/usr/bin/pythonic": false, "/opt/agent/git.helper": false, "/usr/bin/x86_64-linux-gnu-gcc-12": false,
	} {
		if got := Routable(name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}
