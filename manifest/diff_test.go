package manifest

import (
	"strings"
	"testing"
	"time"
)

func TestDiffNamesEntriesByWhatTheyAreAbout(t *testing.T) {
	a := mustParse(t, string(read(t, "full.yaml")))
	b := a.Clone()
	b.Exec[0].SHA256 = hashB
	b.Exec = append(b.Exec[:1], Exec{"/usr/bin/rg", hashA, RoleProgram})
	b.Route = []string{"/bin/bash", "/bin/sh"} // the order has no meaning
	b.Args = []string{"x y", "--model"}        // here it has
	b.Memfd = false
	b.State.Protect = nil
	b.Env.Set["CLAUDE_CONFIG_DIR"] = "/x"
	delete(b.Env.Set, "NO")
	b.Sandbox.Timeout = TimeoutNone
	b.Learned.Runs = 99
	b.Connect[0].Port = 80
	var got []string
	for _, c := range Diff(a, b) {
		got = append(got, c.String())
	}
	want := []string{
		`~ args: ["--model", "x y"] -> ["x y", "--model"]`,
		"- exec: {path: /usr/lib64/ld.so, sha256: " + hashB + ", role: loader}",
		"~ exec[/usr/bin/claude].sha256: " + hashA + " -> " + hashB,
		"+ exec: {path: /usr/bin/rg, sha256: " + hashA + ", role: program}",
		"- memfd: true",
		"- state.protect: .claude/settings.json",
		"- connect: {name: api.anthropic.com, port: 443, tls: sni, for: model}",
		"+ connect: {name: api.anthropic.com, port: 80, tls: sni, for: model}",
		`~ env.set.CLAUDE_CONFIG_DIR: "{{state}}/.claude" -> /x`,
		`- env.set.NO: "yes"`,
		"~ sandbox.timeout: 1h30m -> none",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if same := Diff(a, a.Clone()); len(same) != 0 {
		t.Errorf("a difference to itself: %v", same)
	}
}

func TestMergeAllowsWhatEitherAllows(t *testing.T) {
	a := mustParse(t, small+`route: [/bin/sh]
workspace: {orchestrator: read, protect: none}
limits: {pids: 1024, memory: 1GiB}
sandbox: {pids: 16, timeout: 5m, cpu: 50%, file_size: 1GiB, background: {keep: none, timeout: 1h}, env: {pass: [A]}}
session: {memory: 1GiB, cpu: 100%}
learned: {complete: true, at: 2026-01-01T00:00:00Z, runs: 1, kernel: old}
`)
	b := mustParse(t, small+`route: [/bin/bash, /bin/sh]
libraries: [{path: /lib/c, sha256: `+hashA+`}]
workspace: {orchestrator: write}
sandbox: {pids: 32, timeout: none, read: [/srv], network: session, cpu: 150%, background: {keep: jobs, timeout: 2h}, drop: [B]}
session: {memory: 2GiB}
learned: {complete: false, at: 2026-02-01T00:00:00Z, runs: 2, kernel: new}
`)
	got, err := Merge(a, b)
	if err != nil {
		t.Fatal(err)
	}
	want := mustParse(t, small+`route: [/bin/sh, /bin/bash]
libraries: [{path: /lib/c, sha256: `+hashA+`}]
workspace: {orchestrator: write, protect: default} # either protects
limits: {pids: 1024}                               # 1GiB and the default, which is more
sandbox: {pids: 32, timeout: none, read: [/usr, /opt, /srv], network: session, cpu: 150%, background: {keep: jobs, timeout: 2h}, drop: [B]} # all variables and A are all
session: {memory: 2GiB} # and no bound on processors, since one side has none; sandbox.file_size likewise
learned: {complete: false, at: 2026-02-01T00:00:00Z, runs: 3, kernel: new}
`)
	if g, w := string(Format(got)), string(Format(want)); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

func TestMergeRefusesWhatCannotBoth(t *testing.T) {
	for name, row := range map[string]struct{ b, want string }{
		"hash":     {strings.Replace(small, hashA, hashB, 1), "merge: exec: {path: /usr/bin/claude, sha256: " + hashA + ", role: program} and {path: /usr/bin/claude, sha256: " + hashB + ", role: program} cannot both hold"},
		"name":     {strings.Replace(small, "name: claude", "name: codex", 1), `merge: name: "claude" and "codex" are manifests of different programs`},
		"variable": {small + "env: {set: {A: b}}", `merge: env.set.A: "a" and "b" cannot both hold`},
		"state":    {small + "state: {path: /b}", "merge: state.path: /a and /b cannot both hold"},
		"endpoint": {small + "connect: [{name: a.b, port: 1, tls: none}]", "merge: connect: {name: a.b, port: 1} and {name: a.b, port: 1, tls: none} cannot both hold"},
		"pass set": {small + "env: {pass: [A]}", `env.pass[0]: found "A", which env.set gives a value too, expected it in one of the two`},
	} {
		a := mustParse(t, small+"env: {set: {A: a}}\nstate: {path: /a}\nconnect: [{name: a.b, port: 1}]\n")
		if _, err := Merge(a, mustParse(t, row.b)); err == nil || err.Error() != row.want {
			t.Errorf("%s:\ngot  %v\nwant %s", name, err, row.want)
		}
	}
}

func TestCloneSharesNothing(t *testing.T) {
	a := mustParse(t, string(read(t, "full.yaml")))
	before := string(Format(a))
	b := a.Clone()
	b.Exec[0].Path, b.Env.Set["X"], b.State.Path, b.Learned.At, b.Route[0], b.State.Seed[0].Path = "/x", "x", "/x", time.Time{}, "/x", "x"
	if after := string(Format(a)); after != before {
		t.Errorf("the original changed:\n%s", after)
	}
}
