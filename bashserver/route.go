package bashserver

import (
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/sharness/sharness/bashserver/wire"
)

// program is what a request turns out to mean.
type program struct {
	path   string
	argv   []string
	routed bool // a path of Routes, not the client's own name
	json   bool
	tty    bool // on a terminal, though the client has none
	verb   verb
	job    uint64 // of verbLog and verbKill
}

// verb is what the client's own options ask for, beside running a command and waiting for it.
type verb int

const (
	verbRun        verb = iota
	verbBackground      // run it as a job
	verbJobs
	verbLog
	verbKill
)

const usage = "usage: sharness-bash [--json] [--background | --tty] -c CMD | [--json] --jobs | --job-log ID | --kill ID"

// refusal is an answer for the client: the command does not run.
type refusal struct {
	status uint32
	text   string
}

func (r *refusal) Error() string { return r.text }

// denial is a refusal of what no client of ours asks for: a side door.
type denial struct{ *refusal }

func (d denial) Unwrap() error { return d.refusal }

// Exit statuses of refusals. An agent's hook blocks on 2 alone, so a command that should have run and did not is 2;
// a program that may not be executed at all is what execve's EACCES is to a shell.
const (
	statusNoJob     = 1 // of what is asked about jobs
	statusNotRun    = 2
	statusNoProgram = 126
)

var errNotRouted = errors.New("not routed to the bash-server")

// program finds out what was executed. The path given to execve comes first. It is no route when it was a symlink (then
// /proc/self/exe, which has them resolved, says which route was meant), or a script whose interpreter is a route: the
// kernel then passes the script's name as AT_EXECFN and the interpreter as argv[0].
func (c *Config) program(q wire.Request) (program, error) {
	execfn := q.Execfn
	if !path.IsAbs(execfn) {
		execfn = path.Join(q.Cwd, execfn)
	}
	for _, name := range []string{execfn, q.Exe, q.Argv[0]} {
		if !path.IsAbs(name) {
			continue
		}
		name = path.Clean(name)
		if name == c.ClientPath {
			return c.shell(q, execfn)
		}
		if r, ok := c.route(name); ok {
			return program{path: r, argv: q.Argv, routed: true}, nil
		}
	}
	return program{}, errNotRouted
}

// route finds name among the routes.
func (c *Config) route(name string) (string, bool) {
	for _, r := range c.Routes {
		if sameProgram(r, name) {
			return r, true
		}
	}
	return "", false
}

// sameProgram says whether two paths are of one file: /bin and /usr/bin are one directory on every distribution that
// matters.
func sameProgram(a, b string) bool {
	short := func(p string) string {
		if s := strings.TrimPrefix(p, "/usr"); strings.HasPrefix(s, "/bin/") || strings.HasPrefix(s, "/sbin/") {
			return s
		}
		return p
	}
	return short(a) == short(b)
}

// shell is the client called by its own name, or by a link to it: a directory of such links (bash, git, node) may
// come first in PATH, so a link with the name of exactly one route means that route.
func (c *Config) shell(q wire.Request, execfn string) (program, error) {
	if base := path.Base(execfn); base != path.Base(c.ClientPath) {
		var found []string
		for _, r := range c.Routes {
			if path.Base(r) == base && !slices.ContainsFunc(found, func(f string) bool { return sameProgram(f, r) }) {
				found = append(found, r)
			}
		}
		if len(found) == 1 {
			return program{path: found[0], argv: q.Argv, routed: true}, nil
		}
	}
	p := program{path: c.ShellPath, argv: slices.Clone(q.Argv)}
	if err := p.options(); err != nil {
		return program{json: p.json}, err
	}
	// The shell puts its own name before every message: bash, unless the caller chose another.
	dash := ""
	if strings.HasPrefix(p.argv[0], "-") {
		dash = "-"
	}
	if path.Base(strings.TrimPrefix(p.argv[0], "-")) == path.Base(c.ClientPath) {
		p.argv[0] = dash + path.Base(c.ShellPath)
	}
	return p, nil
}

// options takes our own options off; bash has none of these names.
func (p *program) options() error {
	own := false
	for p.verb < verbJobs && len(p.argv) > 1 {
		switch p.argv[1] {
		case "--json":
			p.json = true
		case "--tty":
			p.tty = true
		case "--background":
			p.verb = verbBackground
		case "--jobs":
			p.verb = verbJobs
		case "--job-log":
			p.verb = verbLog
		case "--kill":
			p.verb = verbKill
		default:
			if p.tty && p.verb != verbRun {
				return &refusal{statusNotRun, usage}
			}
			if p.verb == verbBackground && !slices.ContainsFunc(p.argv[1:], isWord) {
				return &refusal{statusNotRun, "--background " + strings.Join(p.argv[1:], " ") + ": no command is there to be run; " + usage}
			}
			return nil
		}
		own = true
		p.argv = slices.Delete(p.argv, 1, 2)
	}
	var err error
	switch {
	case p.tty && p.verb != verbRun: // nobody is there to use it
	case p.verb == verbJobs && len(p.argv) == 1:
		return nil
	case p.verb > verbJobs && len(p.argv) == 2:
		if p.job, err = strconv.ParseUint(p.argv[1], 10, 64); err == nil {
			return nil
		}
	case !own:
		return nil
	}
	return &refusal{statusNotRun, usage}
}

// isWord tells a command or a file from the options of a shell. Without any a shell reads its input, which a job has not.
func isWord(arg string) bool { return !strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "+") }

// isShell tells calls that end from programs that serve as long as their client lives.
func isShell(p string) bool {
	return slices.Contains([]string{"sh", "bash", "dash", "zsh", "ash", "ksh", "mksh", "fish"}, path.Base(p))
}

// inside says whether directory dir lies in root, both clean. It is a courtesy: the stage resolves for real.
func inside(root, dir string) bool {
	return dir == root || root == "/" || strings.HasPrefix(dir, root+"/")
}
