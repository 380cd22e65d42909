package manifest

import (
	"strings"
	"testing"
)

const (
	hashA = "3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855a"
	hashB = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// small is the shortest manifest there is; rows of the tables put text behind it.
const small = `version: 1
name: claude
command: [/usr/bin/claude]
exec:
  - {path: /usr/bin/claude, sha256: ` + hashA + `, role: program}
`

func TestParseRefuses(t *testing.T) {
	// Rows that begin with a line break are put behind small (whose last line is 5); the others stand for themselves.
	for name, row := range map[string]struct{ text, want string }{
		"empty":             {"", "m.yaml:1:1: found nothing, expected a manifest"},
		"only a comment":    {"# none", "m.yaml:1:1: found nothing, expected a manifest"},
		"a list":            {"- a", "m.yaml:1:1: found a list, expected a mapping"},
		"no version":        {"name: x", "m.yaml:1:1: version: found nothing, expected 1"},
		"another version":   {strings.Replace(small, "version: 1", "version: 2", 1), "m.yaml:1:10: version: found 2, expected 1"},
		"version as text":   {strings.Replace(small, "version: 1", "version: '1'", 1), `m.yaml:1:10: version: found "1", expected a whole number above 0`},
		"no exec":           {"version: 1\nname: x\ncommand: [/x]\n", "m.yaml:1:1: exec: found nothing, expected at least the program itself"},
		"no command":        {"version: 1\nname: x\n", "m.yaml:1:1: command: found nothing, expected a list that begins with the absolute path of a program"},
		"upper-case name":   {strings.Replace(small, "name: claude", "name: Claude", 1), `m.yaml:2:7: name: found "Claude", expected 1 to 48 of a-z, 0-9, '.', '_' and '-', not beginning with '.' or '-'`},
		"slash in name":     {strings.Replace(small, "name: claude", "name: ../x", 1), `m.yaml:2:7: name: found "../x", expected 1 to 48 of a-z, 0-9, '.', '_' and '-', not beginning with '.' or '-'`},
		"relative command":  {strings.Replace(small, "[/usr/bin/claude]", "[claude]", 1), `m.yaml:3:11: command[0]: found "claude", a relative path, expected an absolute path`},
		"bad role":          {strings.Replace(small, "role: program", "role: prog", 1), `m.yaml:5:109: exec[0].role: found "prog", expected program, script, interpreter or loader`},
		"short hash":        {strings.Replace(small, hashA, "abc", 1), `m.yaml:5:37: exec[0].sha256: found "abc", expected 64 lower-case hexadecimal digits`},
		"upper-case hash":   {strings.Replace(small, hashA, strings.ToUpper(hashB), 1), `m.yaml:5:37: exec[0].sha256: found "` + strings.ToUpper(hashB) + `", expected 64 lower-case hexadecimal digits`},
		"hash as a number":  {strings.Replace(small, hashA, "12", 1), `m.yaml:5:37: exec[0].sha256: found the number "12", expected text (put it in quotes if it is meant)`},
		"unknown key":       {"\nreads: [/usr]", `m.yaml:7:1: found the unknown key "reads", expected one of version, name, command, args, profile, exec, libraries, route, read, memfd, recvmsg, state, workspace, connect, env, shell, limits, sandbox, session, secrets, integrity, learned`},
		"unknown inner key": {"\nlimits: {procs: 3}", `m.yaml:7:10: limits: found the unknown key "procs", expected one of pids, memory, tmp`},
		"key twice":         {"\nname: b", "m.yaml:7:1: name: found the key a second time, expected it once (first on line 2)"},
		"inner key twice":   {"\nlimits: {pids: 3, pids: 4}", "m.yaml:7:19: limits.pids: found the key a second time, expected it once (first on line 7)"},
		"path twice":        {"\nlibraries:\n  - {path: /usr/bin/claude, sha256: " + hashA + "}", `m.yaml:8:12: libraries[0].path: found "/usr/bin/claude" a second time, expected it once (first as exec[0])`},
		"null":              {"\nroute:", "m.yaml:7:7: route: found nothing, expected a list"},
		"word for a list":   {"\nread: /usr", `m.yaml:7:7: read: found "/usr", expected a list`},
		"list for a word":   {"\nshell: [/bin/sh]", "m.yaml:7:8: shell: found a list, expected text"},
		"number for a word": {"\nenv: {set: {A: 1}}", `m.yaml:7:16: env.set.A: found the number "1", expected text (put it in quotes if it is meant)`},
		"yes":               {"\nmemfd: yes", `m.yaml:7:8: memfd: found "yes", expected true or false`},
		"key not a word":    {"\nenv: {set: {1: a}}", `m.yaml:7:13: env.set: found the number "1" as a key, expected a word`},
		"key a list":        {"\nenv: {set: {[a]: a}}", "m.yaml:7:13: env.set: found a list as a key, expected a word"},
		"size without unit": {"\nlimits: {memory: 4096}", `m.yaml:7:18: limits.memory: found the number "4096", expected a whole number above 0 with a unit: B, KiB, MiB, GiB or TiB`},
		"decimal unit":      {"\nlimits: {memory: 4GB}", `m.yaml:7:18: limits.memory: found "4GB", expected a whole number above 0 with a unit: B, KiB, MiB, GiB or TiB`},
		"size past 63 bits": {"\nlimits: {memory: 9999999TiB}", `m.yaml:7:18: limits.memory: found "9999999TiB", expected a whole number above 0 with a unit: B, KiB, MiB, GiB or TiB`},
		"size 0":            {"\nlimits: {memory: 0GiB}", `m.yaml:7:18: limits.memory: found "0GiB", expected a whole number above 0 with a unit: B, KiB, MiB, GiB or TiB`},
		"pids 0":            {"\nlimits: {pids: 0}", "m.yaml:7:16: limits.pids: found 0, expected a whole number above 0"},
		"pids of nothing":   {"\nsandbox: {pids: 2}", "m.yaml:7:17: sandbox.pids: found 2, expected a whole number from 3 to 4194304"},
		"memory of nothing": {"\nsession: {memory: 1MiB}", `m.yaml:7:19: session.memory: found 1MiB, expected at least 2MiB`},
		"octal pids":        {"\nlimits: {pids: 0o17}", `m.yaml:7:16: limits.pids: found the number "0o17", expected a whole number above 0`},
		"too many pids":     {"\nlimits: {pids: 5000000}", "m.yaml:7:16: limits.pids: found 5000000, expected a whole number from 1 to 4194304"},
		"seconds":           {"\nsandbox: {timeout: 600}", `m.yaml:7:20: sandbox.timeout: found the number "600", expected a time with a unit, such as 90s, 10m or 2h, or none`},
		"negative timeout":  {"\nsandbox: {timeout: -1s}", `m.yaml:7:20: sandbox.timeout: found "-1s", expected a time with a unit, such as 90s, 10m or 2h, or none`},
		"percent bare":      {"\nsandbox: {cpu: 150}", `m.yaml:7:16: sandbox.cpu: found the number "150", expected a whole number above 0 and %, such as 50% or 200% (two processors)`},
		"weight":            {"\nsession: {cpu_weight: 10001}", `m.yaml:7:23: session.cpu_weight: found 10001, expected a whole number from 1 to 10000`},
		"keep":              {"\nsandbox: {background: {keep: some}}", `m.yaml:7:30: sandbox.background.keep: found "some", expected none or jobs`},
		"log":               {"\nsandbox: {background: {log: 1GiB}}", `m.yaml:7:29: sandbox.background.log: found 1GiB, expected at most 4MiB`},
		"network allow":     {"\nsandbox:\n  network: {allow: [a.b]}", "m.yaml:8:12: sandbox.network: found a mapping (an allow list for commands is not offered in this release), expected none or session"},
		"network word":      {"\nsandbox: {network: host}", `m.yaml:7:20: sandbox.network: found "host", expected none or session`},
		"anchor":            {"\nread: &a [/usr]", "m.yaml:7:7: read: found the anchor &a, expected a value without one"},
		"alias":             {"\nread: &a [/usr]\nroute: *a", "m.yaml:7:7: read: found the anchor &a, expected a value without one"},
		"unknown alias":     {"\nroute: *a", "m.yaml:7:9: not YAML: unknown anchor 'a' referenced"},
		"merge key":         {"\nlimits: {<<: {pids: 3}}", "m.yaml:7:10: limits: found the merge key <<, expected the keys themselves"},
		"tag":               {"\nshell: !!str /bin/sh", "m.yaml:7:8: shell: found the tag !!str, expected a value without one"},
		"second document":   {"\n---\nname: b", "m.yaml:7:1: found a second document, expected one"},
		"empty document":    {"\n---\n", "m.yaml:7:1: found a second document, expected one"},
		"not yaml":          {"\nread: [/usr", "m.yaml:7:7: not YAML: found a list that is not closed, or lacks a comma, expected ',' between its values and ']' behind the last"},
		"open mapping":      {"\nlimits: {pids: 3\n\nshell: /bin/sh", "m.yaml:7:9: not YAML: found a mapping that is not closed, or lacks a comma, expected ',' between its keys and '}' behind the last"},
		"open quote":        {"\nshell: \"/bin/sh\nread: [/usr]", "m.yaml:7:8: not YAML: found a quote that nothing closes, expected the same quote at the end of the text"},
		"closed too often":  {"\nread: [/usr]]\nshell: /bin/sh", `m.yaml:7:13: not YAML: found "]", expected a key, as far to the right as those above it`},
		"key too far left":  {"\nlimits:\n  pids: 3\n memory: 4GiB", `m.yaml:9:2: not YAML: found "memory: 4GiB", expected a key, as far to the right as those above it`},
		"key too far right": {"\nlimits:\n  pids: 3\n   memory: 4GiB", `m.yaml:9:4: not YAML: found a second ':' in one value, expected each key on a line of its own, as far to the right as its neighbours, or the value in quotes`},
		"key in a list":     {"\nroute:\n  - /bin/sh\n  shell: /bin/sh", `m.yaml:9:3: not YAML: found "shell: /bin/sh", expected '-' as the values of the list above have it, or a key further to the left`},
		"no colon":          {"\nroute:\n- /bin/sh\nshell\n- /bin/sh", `m.yaml:9:1: not YAML: found "shell", expected a key with ':' behind it`},
		"quote in quotes":   {"\nshell: 'it's'", `m.yaml:7:12: not YAML: found "s'", expected a key, as far to the right as those above it`},
		"value twice":       {"\nshell: a: b", `m.yaml:7:9: not YAML: found a second ':' in one value, expected each key on a line of its own, as far to the right as its neighbours, or the value in quotes`},
		"percent":           {"\nshell: %x", `m.yaml:7:8: not YAML: found "%", expected a value that begins with another character, or one in quotes`},
		"no value":          {"\nread: [/usr,, /opt]", `m.yaml:7:13: not YAML: found ", /opt]", expected a value`},
		"below a comment":   {"# mine\n\nversion: 1\nname: claude\nshell: 'it's'\nread: [/usr]\n", `m.yaml:5:12: not YAML: found "s'", expected a key, as far to the right as those above it`},
		"tab":               {"\nlimits:\n\tpids: 3", "m.yaml:8:1: not YAML: found a tab, expected spaces"},
		"carriage return":   {"\r\n", "m.yaml:6:1: found a carriage return, expected printable text (inside double quotes write it as an escape: a backslash, u and four hex digits)"},
		"bidi mark":         {"\nread: [\"/usr\u202e\"]", "m.yaml:7:13: found the invisible character U+202E, expected printable text (inside double quotes write it as an escape: a backslash, u and four hex digits)"},
		"not utf-8":         {"\nread: [\"/\xff\"]", "m.yaml:7:10: found byte 0xff, which is not UTF-8, expected printable text (inside double quotes write it as an escape: a backslash, u and four hex digits)"},
		"unclean path":      {"\nread: [/usr/../etc]", `m.yaml:7:8: read[0]: found "/usr/../etc", expected the path without detours, "/etc"`},
		"slash at the end":  {"\nread: [/usr/]", `m.yaml:7:8: read[0]: found "/usr/", expected the path without detours, "/usr"`},
		"root as a tree":    {"\nread: [/]", "m.yaml:7:8: read[0]: found the root of the file system, expected a path below it"},
		"proc as a tree":    {"\nread: [/proc/1]", `m.yaml:7:8: read[0]: found "/proc/1", expected a path outside /proc, of which every view has its own`},
		"escape in a path":  {"\nread: [\"/a\\eb\"]", `m.yaml:7:8: read[0]: found "/a\x1bb", expected a path of visible characters`},
		"relative route":    {"\nroute: [sh]", `m.yaml:7:9: route[0]: found "sh", a relative path, expected an absolute path`},
		"routed image":      {"\nroute: [/usr/bin/claude]", `m.yaml:7:9: route[0]: found "/usr/bin/claude", which exec lists too, expected each path in one of the two`},
		"route twice":       {"\nroute: [/bin/sh, /bin/sh]", `m.yaml:7:18: route[1]: found "/bin/sh" a second time, expected it once`},
		"state no path":     {"\nstate: {protect: [a]}", "m.yaml:7:8: state.path: found nothing, expected an absolute path"},
		"protect outside":   {"\nstate: {path: /s, protect: [../a]}", `m.yaml:7:29: state.protect[0]: found "../a", expected a path inside the folder`},
		"protect absolute":  {"\nstate: {path: /s, protect: [/a]}", `m.yaml:7:29: state.protect[0]: found "/a", an absolute path, expected a path relative to the folder`},
		"folder content":    {"\nstate: {path: /s, seed: [{path: a/, content: x}]}", "m.yaml:7:46: state.seed[0].content: found content for a folder, expected none, or a path without '/' at its end"},
		"hide too deep":     {"\nstate: {path: /s}\nsandbox: {share: [a], hide: [a/b/c]}", `m.yaml:8:30: sandbox.hide[0]: found "a/b/c", more than one folder below its share, expected a share or a name right in one; share a folder that is nearer to it`},
		"hide not shared":   {"\nstate: {path: /s}\nsandbox: {share: [a], hide: [b]}", `m.yaml:8:30: sandbox.hide[0]: found "b", which sandbox.share does not show, expected a path below one of sandbox.share`},
		"share, no state":   {"\nsandbox: {share: [a]}", "m.yaml:7:18: sandbox.share: found a share without a state folder, expected state beside it"},
		"relative work":     {"\nworkspace: {path: src}", `m.yaml:7:19: workspace.path: found "src", a relative path, expected an absolute path`},
		"access":            {"\nworkspace: {orchestrator: rw}", `m.yaml:7:27: workspace.orchestrator: found "rw", expected read or write`},
		"protect word":      {"\nworkspace: {protect: all}", `m.yaml:7:22: workspace.protect: found "all", expected default or none`},
		"public address":    {"\nconnect: [{name: 1.1.1.1, port: 443}]", `m.yaml:7:18: connect[0].name: found "1.1.1.1" (the relay maps a name in the view's hosts file and checks it in TLS; an address has none), expected a DNS name in lower case, or a loopback address`},
		"address-like":      {"\nconnect: [{name: 0x7f.1, port: 443}]", `m.yaml:7:18: connect[0].name: found "0x7f.1" (the relay maps a name in the view's hosts file and checks it in TLS; an address has none), expected a DNS name in lower case, or a loopback address`},
		"mapped loopback":   {"\nconnect: [{name: '::ffff:127.0.0.1', port: 443}]", `m.yaml:7:18: connect[0].name: found "::ffff:127.0.0.1", expected the address as 127.0.0.1`},
		"wildcard":          {"\nconnect: [{name: '*.a.b', port: 443}]", `m.yaml:7:18: connect[0].name: found "*.a.b" (each endpoint is one listener with one upstream), expected one name without *`},
		"localhost":         {"\nconnect: [{name: localhost, port: 80}]", `m.yaml:7:18: connect[0].name: found "localhost" (inside, it is the view's own loopback), expected 127.0.0.1`},
		"dot at the end":    {"\nconnect: [{name: a.b., port: 443}]", `m.yaml:7:18: connect[0].name: found "a.b.", expected the name without the dot at its end`},
		"a url":             {"\nconnect: [{name: 'https://a.b', port: 443}]", `m.yaml:7:18: connect[0].name: found "https://a.b", expected a DNS name in lower case, or a loopback address`},
		"no port":           {"\nconnect: [{name: a.b}]", "m.yaml:7:11: connect[0].port: found nothing, expected a number from 1 to 65535"},
		"port too large":    {"\nconnect: [{name: a.b, port: 65536}]", "m.yaml:7:29: connect[0].port: found 65536, expected a number from 1 to 65535"},
		"sni of an address": {"\nconnect: [{name: 127.0.0.1, port: 1, tls: sni}]", "m.yaml:7:43: connect[0].tls: found sni for a literal address, which no ClientHello names, expected none"},
		"endpoint twice":    {"\nconnect: [{name: a.b, port: 1}, {name: a.b, port: 1}]", `m.yaml:7:40: connect[1].name: found "a.b:1" a second time, expected it once (first as connect[0])`},
		"env name":          {"\nenv: {pass: [A-B]}", `m.yaml:7:14: env.pass[0]: found "A-B", expected the name of an environment variable`},
		"env prefix":        {"\nenv: {pass: ['A*']}", `m.yaml:7:14: env.pass[0]: found "A*", expected the name of an environment variable`},
		"preload passed":    {"\nenv: {pass: [LD_PRELOAD]}", `m.yaml:7:14: env.pass[0]: found "LD_PRELOAD", which makes programs load code, expected its value under env.set`},
		"env both":          {"\nenv: {pass: [A], set: {A: x}}", `m.yaml:7:14: env.pass[0]: found "A", which env.set gives a value too, expected it in one of the two`},
		"placeholder":       {"\nenv: {set: {A: '{{home}}'}}", `m.yaml:7:16: env.set.A: found "{{home}}", expected one of {{uid}}, {{workspace}}`},
		"open placeholder":  {"\nenv: {set: {A: '{{uid'}}", `m.yaml:7:16: env.set.A: found "{{uid", expected }} after the name`},
		"NUL":               {"\nargs: [\"a\\0\"]", `m.yaml:7:8: args[0]: found "a\x00", expected UTF-8 text without a NUL`},
		"rules":             {"\nsecrets: {rules: strict}", `m.yaml:7:18: secrets.rules: found "strict", expected default or all or none`},
		"time":              {"\nlearned: {complete: true, at: yesterday}", `m.yaml:7:31: learned.at: found "yesterday", expected a time such as 2026-01-31T18:00:00Z`},
	} {
		t.Run(name, func(t *testing.T) {
			text := row.text
			if text == "\r\n" || strings.HasPrefix(text, "\n") {
				text = small + text
			}
			_, err := Parse("m.yaml", []byte(text))
			if err == nil || err.Error() != row.want {
				t.Errorf("got  %v\nwant %s", err, row.want)
			}
		})
	}
}

func TestParseRefusesMoreThanAMebibyte(t *testing.T) {
	text := small + strings.Repeat("#\n", MaxBytes/2)
	_, err := Parse("m.yaml", []byte(text))
	if want := "m.yaml:1:1: found 1048750 bytes, expected at most 1048576"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestParseTakesTheSmallestManifest(t *testing.T) {
	m, err := Parse("m.yaml", []byte(small))
	if err != nil {
		t.Fatal(err)
	}
	if m.Name != "claude" || len(m.Exec) != 1 || m.Exec[0].Role != RoleProgram {
		t.Errorf("got %+v", m)
	}
}
