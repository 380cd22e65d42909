package manifest

import (
	"regexp"
	"slices"
	"strings"
)

var (
	envName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	envPrefix = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*\*$`)
)

// loads are variables that make a program run other code before its own (doors exec-env and inherit-env). They are not
// passed on from whoever calls sharness; one that is meant has its value written under set, for all to see.
var loads = []string{
	"LD_*", "GCONV_PATH", "GLIBC_TUNABLES", "LOCPATH", "BASH_ENV", "ENV", "BASH_FUNC_*", "PROMPT_COMMAND", "SHELLOPTS", "BASHOPTS", "PS4",
	"NODE_OPTIONS", "NODE_PATH", "BUN_*", "DENO_*", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE",
	"PERL5LIB", "PERL5OPT", "RUBYLIB", "RUBYOPT", "JAVA_TOOL_OPTIONS", "GIT_*",
}

// Matches reports whether one of the patterns, each a name or a prefix with '*' at its end, takes in name.
func Matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if prefix, ok := strings.CutSuffix(p, "*"); ok {
			return strings.HasPrefix(name, prefix)
		}
		return p == name
	})
}

func (c *checker) envNames(key string, list []string, prefixes bool) {
	for i, name := range list {
		switch {
		case envName.MatchString(name), prefixes && envPrefix.MatchString(name):
		case prefixes:
			c.fail(at(key, i), found(quote(name), "the name of an environment variable, or a prefix with * at its end"))
		default:
			c.fail(at(key, i), found(quote(name), "the name of an environment variable"))
		}
		c.once(key, list, i)
	}
}

// env checks the environment of the orchestrator, or of commands, where a prefix may be passed: what they run is bounded
// by their sandbox anyway.
func (c *checker) env(key string, e Env, command bool) {
	c.envNames(key+".pass", e.Pass, command)
	for i, name := range e.Pass {
		if !command && Matches(loads, name) {
			c.fail(at(key+".pass", i), found(quote(name)+", which makes programs load code", "its value under "+key+".set"))
		}
		if _, both := e.Set[name]; both {
			c.fail(at(key+".pass", i), found(quote(name)+", which "+key+".set gives a value too", "it in one of the two"))
		}
	}
	for _, name := range sortedKeys(e.Set) {
		here, value := key+".set."+name, e.Set[name]
		if !envName.MatchString(name) {
			c.fail(here, found(quote(name), "the name of an environment variable"))
		}
		c.text(here, value)
		known := map[string]string{"workspace": "", "uid": ""}
		if c.state {
			known["state"] = ""
		}
		if _, err := Expand(value, known); err != nil {
			c.fail(here, err.Error())
		}
	}
}
