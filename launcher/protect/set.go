package protect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"sort"
	"strings"
)

// Bounds of a Set. A workspace that needs more mounts would slow every command; it is refused, not cut short.
const (
	MaxEntries  = 2048
	MaxAbsent   = 8192
	MaxRepos    = 1024
	MaxNotes    = 64
	MaxSockets  = 64
	MaxHooks    = 64
	MaxSetBytes = 8 << 20
)

// Mode is what a self-bind does to an entry.
type Mode string

// ReadOnly makes the entry immutable in the view. Pin leaves it writable: being a mount point is what keeps it, and so
// the path to what is protected below it, from being renamed or removed there.
const (
	ReadOnly Mode = "ro"
	Pin      Mode = "pin"
)

// Kind is what lies at an entry's path.
type Kind string

// A symbolic link is protected itself, beside its target: a link can be a mount point like any other name.
const (
	Dir  Kind = "dir"
	File Kind = "file" // anything that is neither a directory nor a link
	Link Kind = "link"

	// Socket is no entry's. A Mount of it covers a socket with a device that nobody listens behind.
	Socket Kind = "socket"
)

// Entry is one existing path, relative to the workspace.
type Entry struct {
	Rel  string
	Mode Mode
	Kind Kind
}

// Repo is a repository that existed at the start. Rel is its top directory ("" for the workspace itself); GitDir is
// where its configuration lies, "" when that is Outside the workspace and so in no view.
type Repo struct {
	Rel     string
	GitDir  string
	Outside bool
}

// GitDir is a git directory that is protected. Partial: git would take it for none, so that what lies in it is nobody's yet.
type GitDir struct {
	Rel     string
	Partial bool
}

// Set is what Discover found. Existing is ordered so that a parent comes before what lies below it; Absent are
// protected names that do not exist. Sockets are those of processes outside, or left by some, at most MaxSockets. Hooks are
// the relative core.hooksPath of the repositories. Linked are read-only files with a second name, at most MaxLinked. Notes are sentences for people, free of control characters.
type Set struct {
	Existing []Entry
	Absent   []string
	Repos    []Repo
	GitDirs  []GitDir
	Sockets  []string
	Hooks    []string
	Linked   []Linked
	Notes    []string

	folders map[string]identity // those that the search met; not encoded, as only the session's first watcher needs them
}

// Names are bytes, not text: base64 (JSON of []byte) carries them whole.
type entryJSON struct {
	Rel  []byte `json:"rel"`
	Mode Mode   `json:"mode"`
	Kind Kind   `json:"kind"`
}

type repoJSON struct {
	Rel     []byte `json:"rel"`
	GitDir  []byte `json:"gitdir"`
	Outside bool   `json:"outside"`
}

type gitDirJSON struct {
	Rel     []byte `json:"rel"`
	Partial bool   `json:"partial,omitempty"`
}

type linkedJSON struct {
	Rel []byte `json:"rel"`
	Sum string `json:"sum,omitempty"`
}

type setJSON struct {
	Existing []entryJSON  `json:"existing"`
	Absent   [][]byte     `json:"absent"`
	Repos    []repoJSON   `json:"repos"`
	GitDirs  []gitDirJSON `json:"gitdirs,omitempty"`
	Sockets  [][]byte     `json:"sockets"`
	Hooks    [][]byte     `json:"hooks,omitempty"`
	Linked   []linkedJSON `json:"linked,omitempty"`
	Notes    []string     `json:"notes"`
}

// Encode writes the set as one JSON object.
func (s *Set) Encode(w io.Writer) error {
	var j setJSON
	for _, e := range s.Existing {
		j.Existing = append(j.Existing, entryJSON{[]byte(e.Rel), e.Mode, e.Kind})
	}
	for _, a := range s.Absent {
		j.Absent = append(j.Absent, []byte(a))
	}
	for _, r := range s.Repos {
		j.Repos = append(j.Repos, repoJSON{[]byte(r.Rel), []byte(r.GitDir), r.Outside})
	}
	for _, g := range s.GitDirs {
		j.GitDirs = append(j.GitDirs, gitDirJSON{[]byte(g.Rel), g.Partial})
	}
	for _, rel := range s.Sockets {
		j.Sockets = append(j.Sockets, []byte(rel))
	}
	for _, h := range s.Hooks {
		j.Hooks = append(j.Hooks, []byte(h))
	}
	for _, f := range s.Linked {
		j.Linked = append(j.Linked, linkedJSON{[]byte(f.Rel), f.Sum})
	}
	j.Notes = s.Notes
	return json.NewEncoder(w).Encode(j)
}

// Decode reads what Encode wrote. It trusts nothing: the writer runs with the user's ids and has read the user's tree.
func Decode(r io.Reader) (*Set, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxSetBytes+1))
	if err != nil {
		return nil, fmt.Errorf("protected paths: read: %w", err)
	}
	if len(b) > MaxSetBytes {
		return nil, fmt.Errorf("protected paths: longer than %d bytes", MaxSetBytes)
	}
	var j setJSON
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&j); err != nil {
		return nil, fmt.Errorf("protected paths: decode: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("protected paths: decode: something follows the object")
	}
	s := &Set{Notes: j.Notes}
	for _, e := range j.Existing {
		s.Existing = append(s.Existing, Entry{string(e.Rel), e.Mode, e.Kind})
	}
	for _, a := range j.Absent {
		s.Absent = append(s.Absent, string(a))
	}
	for _, r := range j.Repos {
		s.Repos = append(s.Repos, Repo{string(r.Rel), string(r.GitDir), r.Outside})
	}
	for _, g := range j.GitDirs {
		s.GitDirs = append(s.GitDirs, GitDir{string(g.Rel), g.Partial})
	}
	for _, rel := range j.Sockets {
		s.Sockets = append(s.Sockets, string(rel))
	}
	for _, h := range j.Hooks {
		s.Hooks = append(s.Hooks, string(h))
	}
	for _, f := range j.Linked {
		s.Linked = append(s.Linked, Linked{string(f.Rel), f.Sum})
	}
	return s, s.check()
}

// fits says whether Decode would read the set, and where most of it lies if it is too long for that.
func (s *Set) fits() error {
	var n counter
	if err := s.Encode(&n); err != nil || n <= MaxSetBytes {
		return err
	}
	rels := slices.Clone(s.Absent)
	for _, e := range s.Existing {
		rels = append(rels, e.Rel)
	}
	dir, below := mostIn(rels)
	return fmt.Errorf("protect: the paths that must be protected take %d MiB, and the bound is %d; %d of the %d lie in %+.300q: "+
		"start in a smaller workspace, shorten that path, or move the folder out of the workspace", n>>20, MaxSetBytes>>20, below, len(rels), "./"+dir)
}

type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// mostIn is the deepest folder that holds more than half of what the folder above it holds, and how much that is.
func mostIn(rels []string) (dir string, n int) {
	for {
		in := map[string][]string{}
		most := ""
		for _, rel := range rels {
			if name, _, is := strings.Cut(strings.TrimPrefix(rel[len(dir):], "/"), "/"); is {
				in[name] = append(in[name], rel)
				if len(in[name]) > len(in[most]) {
					most = name
				}
			}
		}
		if 2*len(in[most]) <= len(rels) {
			return dir, len(rels)
		}
		dir, rels = path.Join(dir, most), in[most]
	}
}

func (s *Set) check() error {
	if len(s.Existing) > MaxEntries || len(s.Absent) > MaxAbsent || len(s.Repos) > MaxRepos || len(s.Notes) > MaxNotes {
		return fmt.Errorf("protected paths: %d to mount, %d absent, %d repositories: more than the bounds %d, %d, %d; "+
			"start in a smaller workspace", len(s.Existing), len(s.Absent), len(s.Repos), MaxEntries, MaxAbsent, MaxRepos)
	}
	for i, e := range s.Existing {
		if err := checkRel(e.Rel); err != nil {
			return err
		}
		if e.Mode != ReadOnly && e.Mode != Pin {
			return fmt.Errorf("protected paths: %q: unknown mode %q", e.Rel, e.Mode)
		}
		if e.Kind != Dir && e.Kind != File && e.Kind != Link {
			return fmt.Errorf("protected paths: %q: unknown kind %q", e.Rel, e.Kind)
		}
		if i > 0 && s.Existing[i-1].Rel >= e.Rel {
			return fmt.Errorf("protected paths: %q: out of order", e.Rel)
		}
	}
	if len(s.GitDirs) > MaxEntries {
		return fmt.Errorf("protected paths: more than %d git directories; start in a smaller workspace", MaxEntries)
	}
	for _, g := range s.GitDirs {
		if err := checkRel(g.Rel); g.Rel != "" && err != nil {
			return err
		}
	}
	if len(s.Sockets) > MaxSockets {
		return fmt.Errorf("protected paths: more than %d sockets", MaxSockets)
	}
	if len(s.Hooks) > MaxHooks {
		return fmt.Errorf("protected paths: more than %d folders of hooks", MaxHooks)
	}
	for _, h := range s.Hooks {
		if h == "" || h == "." || path.IsAbs(h) || path.Clean(h) != h || strings.Contains(h, "\x00") || len(h) > 4095 {
			return fmt.Errorf("protected paths: %.80q is not a relative folder of hooks", h)
		}
	}
	if len(s.Linked) > MaxLinked {
		return fmt.Errorf("protected paths: more than %d files with a second name", MaxLinked)
	}
	for _, f := range s.Linked {
		if err := checkRel(f.Rel); err != nil {
			return err
		}
	}
	for _, a := range slices.Concat(s.Absent, s.Sockets) {
		if err := checkRel(a); err != nil {
			return err
		}
	}
	for _, r := range s.Repos {
		for _, rel := range []string{r.Rel, r.GitDir} {
			if err := checkRel(rel); rel != "" && err != nil {
				return err
			}
		}
	}
	for _, n := range s.Notes {
		if len(n) > 1024 || strings.ContainsFunc(n, func(r rune) bool { return r < ' ' || r > '~' }) {
			return errors.New("protected paths: a note is too long or not printable")
		}
	}
	return nil
}

// checkRel accepts a clean path strictly below the root.
func checkRel(rel string) error {
	if rel == "" || len(rel) > 4095 || strings.Contains(rel, "\x00") || path.IsAbs(rel) || path.Clean(rel) != rel ||
		rel == "." || rel == ".." || strings.HasPrefix(rel, "../") {
		return fmt.Errorf("protected paths: %.80q is not a clean path below the workspace", rel)
	}
	return nil
}

// collect turns what a builder gathered into an ordered set. Lexical order puts a directory before what is below it.
// What lies below a read-only directory needs no mount and no watch of its own.
func collect(entries map[string]Entry, absent map[string]bool) ([]Entry, []string) {
	covered := func(rel string) bool {
		for dir := parent(rel); dir != ""; dir = parent(dir) {
			if e, ok := entries[dir]; ok && e.Mode == ReadOnly && e.Kind == Dir {
				return true
			}
		}
		return false
	}
	var existing []Entry
	for rel, e := range entries {
		if !covered(rel) {
			existing = append(existing, e)
		}
	}
	sort.Slice(existing, func(i, j int) bool { return existing[i].Rel < existing[j].Rel })
	var names []string
	for rel := range absent {
		if _, ok := entries[rel]; !ok && !covered(rel) {
			names = append(names, rel)
		}
	}
	sort.Strings(names)
	return existing, names
}
