package manifest

import (
	"strings"
	"testing"
)

// edit applies change to the text and returns the difference as the lines that went and came.
func edit(t *testing.T, text string, change func(m *Manifest)) (string, error) {
	t.Helper()
	d, err := ParseDocument("m.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	m := d.Manifest()
	change(m)
	err = d.Set(m)
	old, now := strings.SplitAfter(text, "\n"), strings.SplitAfter(string(d.Bytes()), "\n")
	for len(old) > 0 && len(now) > 0 && old[0] == now[0] {
		old, now = old[1:], now[1:]
	}
	for len(old) > 0 && len(now) > 0 && old[len(old)-1] == now[len(now)-1] {
		old, now = old[:len(old)-1], now[:len(now)-1]
	}
	return "<" + strings.Join(old, "") + ">" + strings.Join(now, ""), err
}

func TestSetTouchesOnlyWhatChanged(t *testing.T) {
	full := string(read(t, "full.yaml"))
	for name, row := range map[string]struct {
		change func(m *Manifest)
		want   string
	}{
		"nothing": {func(m *Manifest) {}, "<>"},
		"hash in a flow entry, comment behind it": {
			func(m *Manifest) { m.Exec[0].SHA256 = hashB },
			"<  - {path: /usr/bin/claude, sha256: " + hashA + ", role: program} # 2.1\n>  - {path: /usr/bin/claude, sha256: " + hashB + ", role: program} # 2.1\n",
		},
		"hash in a block entry, quoted": {
			func(m *Manifest) { m.Exec[1].SHA256 = hashA },
			"<    sha256: \"" + hashB + "\"\n>    sha256: " + hashA + "\n",
		},
		"hash and a new entry": {
			func(m *Manifest) {
				m.Libraries[0].SHA256 = hashA
				m.Libraries = append(m.Libraries, File{"/usr/lib/a b.so", hashA})
			},
			"<- {path: /usr/lib/libc.so.6, sha256: " + hashB + "}\n>- {path: /usr/lib/libc.so.6, sha256: " + hashA + "}\n- {path: \"/usr/lib/a b.so\", sha256: " + hashA + "}\n",
		},
		"entry before a comment of the next key": {
			func(m *Manifest) { m.Exec = append(m.Exec, Exec{"/usr/bin/rg", hashA, RoleProgram}) },
			"<>  - {path: /usr/bin/rg, sha256: " + hashA + ", role: program}\n",
		},
		"word in a flow list": {
			func(m *Manifest) { m.Route = append(m.Route, "/usr/bin/git") },
			"<route: [/bin/sh, /bin/bash] # hooks\n>route: [/bin/sh, /bin/bash, /usr/bin/git] # hooks\n",
		},
		"word in a block list": {
			func(m *Manifest) { m.Read = append(m.Read, "/opt") },
			"<>  - /opt\n",
		},
		"endpoint": {
			func(m *Manifest) { m.Connect = append(m.Connect, Endpoint{Name: "a.b", Port: 443}) },
			"<>  - {name: a.b, port: 443}\n",
		},
		"entry gone: the key is written anew": {
			func(m *Manifest) { m.Route = m.Route[:1] },
			"<route: [/bin/sh, /bin/bash] # hooks\n>route: [/bin/sh] # these paths are the bash-server's client inside\n",
		},
		"limit changed": {
			func(m *Manifest) { m.Limits.Pids = 7 },
			"<limits: {pids: 512, memory: 4GiB, tmp: 512MiB}\n>limits:\n  pids: 7\n  memory: 4GiB\n  tmp: 512MiB\n",
		},
		"key gone":          {func(m *Manifest) { m.Memfd = false }, "<memfd: true\n>"},
		"item in a mapping": {func(m *Manifest) { m.Integrity = append(m.Integrity, File{"/etc/passwd", hashA}) }, "<integrity: [{path: /etc/hosts, sha256: " + hashB + "}]\n>integrity: # files that must be as they were\n  - {path: /etc/hosts, sha256: " + hashB + "}\n  - {path: /etc/passwd, sha256: " + hashA + "}\n"},
		"library to program": {func(m *Manifest) {
			m.Exec = append(m.Exec, Exec{m.Libraries[0].Path, hashB, RoleProgram})
			m.Libraries = nil
		}, "<# below: mapped only\nlibraries:\n- {path: /usr/lib/libc.so.6, sha256: " + hashB + "}\n>  - {path: /usr/lib/libc.so.6, sha256: " + hashB + ", role: program}\n# below: mapped only\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := edit(t, full, row.change); err != nil || got != row.want {
				t.Errorf("%v\ngot  %s\nwant %s", err, got, row.want)
			}
		})
	}
}

func TestSetAddsAMissingKeyInItsPlace(t *testing.T) {
	got, err := edit(t, small+"# the end", func(m *Manifest) {
		m.Route = []string{"/bin/sh"}
		m.Args = []string{"-v"}
	})
	if err != nil || !strings.Contains(got, "args: [\"-v\"]\nexec:") || !strings.Contains(got, "role: program}\nroute: [/bin/sh]") {
		t.Errorf("%v: %s", err, got)
	}
}

func TestSetRefusesWhatParseWould(t *testing.T) {
	got, err := edit(t, small, func(m *Manifest) { m.Exec[0].SHA256 = "x" })
	if err == nil || err.Error() != `exec[0].sha256: found "x", expected 64 lower-case hexadecimal digits` || got != "<>" {
		t.Errorf("got %v and the edit %s", err, got)
	}
}

func TestSetGivesUpOnAManifestInFlowStyle(t *testing.T) {
	text := "{version: 1, name: x, command: [/x], exec: [{path: /x, sha256: " + hashA + ", role: program}]}"
	if got, err := edit(t, text, func(m *Manifest) { m.Shell = "/bin/sh" }); err == nil || got != "<>" {
		t.Errorf("got %v and the edit %s, want an error and none", err, got)
	}
}
