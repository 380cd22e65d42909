package learn

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sharness/sharness/manifest"
)

// former brings in what is in force.
func (f *fold) former() error {
	old, m := f.in.Former, f.p.Manifest
	if old == nil {
		return nil
	}
	f.keeping = true
	unused := f.unused(old)
	drop := func(p string) bool {
		if !unused(p) {
			return !f.in.Merge
		}
		f.p.Unused = append(f.p.Unused, p)
		return !f.in.Merge || f.in.Prune
	}
	for _, e := range old.Exec {
		if !drop(e.Path) {
			f.exec(e)
		}
	}
	for _, l := range old.Libraries {
		if !drop(l.Path) {
			f.library(l)
		}
	}
	slices.Sort(f.p.Unused)
	for _, r := range m.Route {
		if slices.ContainsFunc(m.Exec, func(e manifest.Exec) bool { return e.Path == r }) {
			return fmt.Errorf("route %s: is to be routed, and %s pins it under exec; take it out of one of the two", r, m.Name)
		}
	}
	return nil
}

// unused tells of an entry in force whether no run has used it: neither this one, nor, where runs are joined, one before,
// and nothing that was used needs it.
func (f *fold) unused(old *manifest.Manifest) func(string) bool {
	used := maps.Clone(f.used)
	maps.Copy(used, f.starts)
	if f.in.Merge && old.Learned != nil {
		for _, i := range old.Learned.Images {
			used[i.Path] = true
			fact := f.in.Facts[Key{Path: i.Path, Exec: true}]
			for _, e := range fact.Exec {
				used[e.Path] = true
			}
			for _, l := range fact.Libraries {
				used[l.Path] = true
			}
		}
	}
	return func(p string) bool { return !used[p] }
}

// header is what varies from run to run.
func (f *fold) header() {
	l := &manifest.Learned{Complete: len(f.p.Missing) == 0, Runs: 1}
	counts := map[string]*manifest.LearnedImage{}
	for _, i := range f.in.Seen.Images {
		if i.Beneath != "" || i.Denied || i.Strange != "" {
			continue
		}
		name := i.Path
		if fact, ok := f.in.Facts[i.Key()]; ok && fact.Path != "" {
			name = fact.Path
		}
		c := counts[name]
		if c == nil {
			c = &manifest.LearnedImage{Path: name, Runs: 1}
			counts[name] = c
		}
		c.Execs += small(i.Execs)
		c.Maps += small(i.Maps)
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		l.Images = append(l.Images, *counts[name])
	}
	f.measured(l)
	if old := f.in.Former; f.in.Merge && old != nil && old.Learned != nil {
		l = manifest.MergeLearned(old.Learned, l)
		l.Complete = len(f.p.Missing) == 0
	}
	f.p.Manifest.Learned = l
}

// small is a count as the manifest can hold it.
func small(n uint64) int { return int(min(n, 1<<30)) }
