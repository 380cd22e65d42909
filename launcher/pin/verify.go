package pin

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sharness/sharness/manifest"
)

// Problem is one way in which this host is not what a manifest says.
type Problem struct {
	Path     string
	Text     string // what is wrong, one line
	Old, New string // the pinned and the present hash, if that is the matter
	Accept   string // the one command that accepts it, if accepting can be right
	Warning  bool   // to be known; no reason to refuse
}

func (p Problem) String() string {
	s := p.Path + ": " + p.Text
	if p.New != "" {
		s += fmt.Sprintf(": pinned %s, now %s", p.Old, p.New)
	}
	return s
}

// VerifyOptions say what Verify cannot know from the manifest.
type VerifyOptions struct {
	File       string   // the manifest's file, for the commands in Problem.Accept
	WritableBy []string // trees the session can write: the workspace; the state folder is added from the manifest
	Path       string   // the user's PATH, for scripts that start through env
	Privileged bool     // accept set-uid and set-gid files and files with capabilities
}

// Verify reads everything that m pins and compares: hashes, owners, and whether what is pinned is all that the programs
// need to start. No problem means that a session would start with exactly these files.
func Verify(m *manifest.Manifest, o VerifyOptions) []Problem {
	v := &verifier{m: m, o: o, listed: map[string]bool{}}
	if m.State != nil {
		v.o.WritableBy = append(slices.Clone(o.WritableBy), m.State.Path)
	}
	for _, e := range m.Exec {
		v.listed[e.Path] = true
		v.file(manifest.File{Path: e.Path, SHA256: e.SHA256})
	}
	for _, f := range m.Libraries {
		v.listed[f.Path] = true
		v.file(f)
	}
	for _, f := range m.Integrity {
		v.hash(f, HashIntegrity)
	}
	v.command()
	v.routes()
	v.closure()
	return v.problems
}

type verifier struct {
	m        *manifest.Manifest
	o        VerifyOptions
	listed   map[string]bool
	problems []Problem
}

func (v *verifier) add(path, accept, format string, args ...any) {
	v.problems = append(v.problems, Problem{Path: path, Accept: accept, Text: fmt.Sprintf(format, args...)})
}

// accept is a command line that a person can paste. A flag of the verb's own takes the path.
func (v *verifier) accept(verb, path string, flag ...string) string {
	words := append([]string{"sudo sharness manifest", verb, "-m", Quote(v.o.File)}, flag...)
	return strings.Join(append(words, Quote(path)), " ")
}

// Quote writes s so that a shell reads it as one word.
func Quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+@%:,=", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func (v *verifier) file(f manifest.File) {
	if !v.hash(f, Hash) {
		return
	}
	if err := CheckOwner(f.Path, v.o.WritableBy...); err != nil {
		v.problems = append(v.problems, problem(f.Path, err))
	}
}

// problem takes the path off the front of an error that begins with it.
func problem(path string, err error) Problem {
	return Problem{Path: path, Text: strings.TrimPrefix(err.Error(), path+": ")}
}

// hash reports a file that is gone or changed, and whether it could be read.
func (v *verifier) hash(f manifest.File, by func(string) (string, error)) bool {
	sum, err := by(f.Path)
	if err != nil {
		var cause *fs.PathError
		if errors.As(err, &cause) {
			err = cause.Err
		}
		next := ""
		if errors.Is(err, fs.ErrNotExist) {
			next = "; put it back, or take it out of the manifest"
		}
		v.add(f.Path, "", "cannot be read as it was pinned: %v%s", err, next)
		return false
	}
	if sum != f.SHA256 {
		v.problems = append(v.problems, Problem{Path: f.Path, Text: "changed", Old: f.SHA256, New: sum, Accept: v.accept("pin", f.Path)})
	}
	return true
}

func (v *verifier) command() {
	if len(v.m.Command) == 0 {
		return
	}
	real, err := filepath.EvalSymlinks(v.m.Command[0])
	if errors.Is(err, fs.ErrNotExist) && v.listed[v.m.Command[0]] {
		return // said already
	}
	if err != nil {
		v.problems = append(v.problems, problem(v.m.Command[0], err))
		return
	}
	if !slices.ContainsFunc(v.m.Exec, func(e manifest.Exec) bool { return e.Path == real }) {
		v.add(v.m.Command[0], v.accept("allow", v.m.Command[0], "--exec"), "is %s now, which exec does not list", real)
	}
}

// routes: a path cannot be both the client and the program. The manifest refuses equal spellings; links show here.
func (v *verifier) routes() {
	for _, route := range v.m.Route {
		real, err := filepath.EvalSymlinks(route)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the view makes it
		}
		if err != nil {
			v.problems = append(v.problems, problem(route, err))
			continue
		}
		if v.listed[real] {
			v.add(route, "", "is routed to the bash-server, and pinned as %s: the session would start the client for both", real)
		}
	}
}

// closure follows every pinned program again and reports what it needs and the manifest lacks.
func (v *verifier) closure() {
	missing := map[string]bool{}
	warned := map[string]bool{}
	followed := map[string]bool{}
	defer func() { v.libraries(followed, missing) }()
	for _, e := range v.m.Exec {
		w := newWalk(Options{Path: v.o.Path, Privileged: v.o.Privileged})
		if _, err := w.image(e.Path, e.Role, 0); err != nil {
			if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), e.Path) {
				v.problems = append(v.problems, problem(e.Path, err))
			}
			continue
		}
		for _, text := range w.warnings {
			if path, rest, _ := strings.Cut(text, " "); !warned[text] {
				warned[text] = true
				v.problems = append(v.problems, Problem{Path: path, Text: rest, Warning: true})
			}
		}
		maps.Copy(followed, w.libraries)
		need := slices.Sorted(func(yield func(string) bool) {
			for path := range w.exec {
				if !yield(path) {
					return
				}
			}
			for path := range w.libraries {
				if !w.late[path] && !yield(path) {
					return
				}
			}
		})
		for _, path := range need {
			if !v.listed[path] && !missing[path] {
				missing[path] = true
				v.add(path, v.accept("pin", e.Path), "needed by %s and not pinned", e.Path)
			}
		}
	}
}

// libraries follows those that no program lists, as the first program would load them: what a library needs is needed
// all the same. One that finds its own only through another is a warning: who loads it, and after what, is not known.
func (v *verifier) libraries(followed, missing map[string]bool) {
	o := Options{Path: v.o.Path, Privileged: v.o.Privileged}
	var p *started
	for _, e := range v.m.Exec {
		if e.Role == manifest.RoleScript || e.Role == manifest.RoleLoader {
			continue
		}
		var err error
		if p, err = o.started(e.Path); err == nil {
			break
		}
	}
	for _, f := range v.m.Libraries {
		if p == nil || followed[f.Path] {
			continue
		}
		if _, err := os.Lstat(f.Path); err != nil {
			continue // said already
		}
		more, err := p.follow(f.Path)
		if err != nil {
			text := problem(f.Path, err)
			text.Warning = true
			v.problems = append(v.problems, text)
		}
		for _, path := range more {
			if !v.listed[path] && !missing[path] {
				missing[path] = true
				v.add(path, v.accept("allow", f.Path, "--library"), "needed by %s and not pinned", f.Path)
			}
		}
	}
}
