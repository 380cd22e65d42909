package bashserver

import (
	"maps"
	"slices"
	"strings"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// user is what a command is told it is called; its passwd says the same.
const user = "agent"

// environment is what a command gets of the client's variables.
func (c *Config) environment(client []string, cwd string) []string {
	set := map[string]string{"HOME": c.Home, "SHELL": c.ShellPath, "USER": user, "LOGNAME": user, "TMPDIR": "/tmp", "PWD": cwd}
	maps.Copy(set, c.Env.Set)
	seen := map[string]bool{}
	var env []string
	for _, v := range client {
		name, _, ok := strings.Cut(v, "=")
		if _, ours := set[name]; !ok || ours || seen[name] || !c.passes(name) {
			continue
		}
		seen[name] = true
		env = append(env, v)
	}
	if _, ours := set["PATH"]; !ours && !seen["PATH"] {
		set["PATH"] = defaultPath
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		env = append(env, name+"="+set[name])
	}
	return env
}

// passes says whether a variable of the client reaches a command. What makes the loader or the shell run a file first
// never does, nor the way back to the bash-server, nor a secret.
func (c *Config) passes(name string) bool {
	switch {
	case name == "", name == "BASH_ENV", name == "ENV", name == "SHARNESS_SOCKET", strings.HasPrefix(name, "LD_"):
		return false
	}
	if slices.ContainsFunc(c.Secrets, func(s Secret) bool { return s.Name == name }) {
		return false
	}
	return !listed(c.Env.Drop, name) && (len(c.Env.Pass) == 0 || listed(c.Env.Pass, name))
}

func listed(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		prefix, wild := strings.CutSuffix(p, "*")
		return p == name || wild && strings.HasPrefix(name, prefix)
	})
}
