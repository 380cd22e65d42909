package learn

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sharness/sharness/manifest"
)

// Fact is what this host says about one image after the run.
type Fact struct {
	Path   string // resolved; of a script that was named by a link, where it leads
	SHA256 string
	// Exec and Libraries are what an executed image needs to start, itself among them.
	Exec      []manifest.Exec
	Libraries []manifest.File
	Read      []string          // folders that have to be visible beside it
	Refused   string            // why it must not be pinned
	Special   string            // set-uid, set-gid or with capabilities: pinned only if somebody wants it
	Unknown   string            // why its content cannot be told: the result is incomplete
	Leads     map[string]string // where the names by which it was executed lead; of those that lead anywhere
}

// Key is by which an image's Fact is found.
type Key struct {
	Path string
	File File
	Exec bool // it was executed, and so may need more than itself
}

// Key of an image.
func (i *Image) Key() Key {
	k := Key{Path: i.Path, Exec: i.Execs > 0}
	if i.File != nil {
		k.File = *i.File
	}
	return k
}

// Input is what a proposal is made from.
type Input struct {
	Seen  *Observation
	Facts map[Key]Fact
	// Start is the manifest with what the command needs to start, and nothing that only a run could tell.
	Start *manifest.Manifest
	// Former is the manifest in force, or nil.
	Former *manifest.Manifest
	Merge  bool     // keep what Former allows
	Prune  bool     // with Merge: leave out what no run used
	Accept []string // paths that are pinned although they would be refused
	// Attempts are those of Seen of which this host has something, made fit: a write is of the folder that is there.
	Attempts []Attempt
	Peaks    manifest.LearnedPeaks
	Reached  []manifest.Endpoint // beyond what is listed, because somebody opened the network for this run
	Network  bool                // somebody did
}

// Proposal is a manifest for a person to accept.
type Proposal struct {
	Manifest *manifest.Manifest // learned.complete says whether enforce would take it; the rest of learned is for the caller
	Notes    map[string]string  // how an entry of exec, libraries or route was seen, by path
	Refused  []Refusal
	Asked    []string // what was asked for and not had, with what would allow it
	Missing  []string // why it is incomplete
	Unused   []string // of Former, what no run used
	Rows     []Row
}

// Refusal is an image that was left out.
type Refusal struct {
	Path, Reason string
	Acceptable   bool // it could be pinned, if somebody wants it
}

// Propose folds what was seen into a manifest.
func Propose(in Input) (*Proposal, error) {
	f := &fold{in: in, p: &Proposal{Manifest: in.Start.Clone(), Notes: map[string]string{}}, routed: map[string]Image{},
		starts: paths(in.Start), used: map[string]bool{}}
	f.p.Missing = in.Seen.Losses.Missing()
	for _, i := range in.Seen.Images {
		f.image(i)
	}
	f.routes()
	if err := f.former(); err != nil {
		return nil, err
	}
	f.endpoints()
	f.limits()
	f.header()
	f.p.Asked = asked(in.Attempts, in.Network)
	slices.SortFunc(f.p.Refused, func(a, b Refusal) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Reason, b.Reason)) })
	f.p.Refused = slices.Compact(f.p.Refused)
	slices.Sort(f.p.Missing)
	f.p.Missing = slices.Compact(f.p.Missing)
	f.rows()
	return f.p, f.p.Manifest.Validate()
}

type fold struct {
	in     Input
	p      *Proposal
	routed map[string]Image // what is to be routed, by the name it was executed by
	starts map[string]bool  // what the command needs to start
	used   map[string]bool  // what was seen or is needed, by path

	keeping bool // entries of the manifest in force, whose hashes give way
}

func paths(m *manifest.Manifest) map[string]bool {
	all := map[string]bool{}
	for _, e := range m.Exec {
		all[e.Path] = true
	}
	for _, l := range m.Libraries {
		all[l.Path] = true
	}
	return all
}

func (f *fold) refuse(i *Image, acceptable bool, format string, args ...any) bool {
	if acceptable && slices.Contains(f.in.Accept, i.Path) {
		return false
	}
	f.p.Refused = append(f.p.Refused, Refusal{i.Path, fmt.Sprintf(format, args...), acceptable})
	return true
}

// image takes one image into the proposal, or says why not.
func (f *fold) image(i Image) {
	switch {
	case i.Beneath != "":
		// It will be started in a sandbox.
	case i.Routed:
		f.wasRouted(&i)
	case i.Strange != "":
		f.refuse(&i, false, "%s", i.Strange)
	case i.Denied:
		f.refuse(&i, false, "lies where the agent or a command can write: it was not let run while learning either")
	case i.File != nil && i.File.Links == 0:
		f.refuse(&i, false, "was deleted, or lies in memory alone: nothing is there to be pinned")
	case i.Execs > 0 && i.Script == "" && Loader(i.Path):
		f.refuse(&i, false, "is the dynamic loader, which was executed by itself to start another file")
	case i.Execs == 0 && len(i.By) > 0 && !slices.ContainsFunc(i.By, func(by string) bool { return !Loader(by) }):
		f.refuse(&i, false, "was started by the dynamic loader %s, which was executed by itself", i.By[0])
	case i.Execs > 0 && f.reroute(&i):
	default:
		f.pin(&i)
	}
}

// client is the folder of the client in every view: a name there is no route.
const client = "/run/sharness/bin/"

// wasRouted notes which route served an image, by its names, because the file is the client. A name that none serves was routed
// for this run alone, so far.
func (f *fold) wasRouted(i *Image) {
	for _, asked := range i.Asked {
		served := Routes(f.in.Start.Route, asked)
		for _, r := range served {
			f.p.Notes[r] = note(i, i.Path)
		}
		if len(served) == 0 && !strings.HasPrefix(asked, client) {
			f.routed[i.Path] = *i
		}
	}
}

// Routes are those of routes that serve a path.
func Routes(routes []string, asked string) []string {
	return slices.DeleteFunc(slices.Clone(routes), func(r string) bool { return !sameName(r, asked) })
}

// sameName: /bin and /usr/bin are one folder.
func sameName(a, b string) bool { return a == b || a == "/usr"+b || "/usr"+a == b }

// reroute takes what is to be routed out of the images that are pinned.
func (f *fold) reroute(i *Image) bool {
	// A script belongs to its interpreter, which the agent may itself be.
	if i.Own || i.Script == "" && !Routable(i.Path) && !slices.ContainsFunc(i.Asked, Routable) {
		return false
	}
	f.routed[i.Path] = *i
	return true
}

// pin adds an image with what it needs.
func (f *fold) pin(i *Image) {
	fact, known := f.in.Facts[i.Key()]
	switch {
	case !known:
		f.p.Missing = append(f.p.Missing, fmt.Sprintf("%s: nothing is known about it", i.Path))
		return
	case fact.Unknown != "":
		f.p.Missing = append(f.p.Missing, fmt.Sprintf("%s: %s", i.Path, fact.Unknown))
		return
	case fact.Refused != "":
		f.refuse(i, false, "%s", fact.Refused)
		return
	}
	if !f.starts[fact.Path] && f.refuseSpecial(i, fact) {
		return
	}
	m := f.p.Manifest
	f.used[fact.Path] = true
	if i.Execs == 0 {
		f.library(manifest.File{Path: fact.Path, SHA256: fact.SHA256})
	}
	for _, e := range fact.Exec {
		f.exec(e)
	}
	for _, l := range fact.Libraries {
		f.library(l)
	}
	m.Read = show(m.Read, fact.Read)
	if !f.starts[fact.Path] {
		f.p.Notes[fact.Path] = note(i, fact.Path)
	}
}

// show adds folders that are not shown yet.
func show(trees, dirs []string) []string {
	for _, dir := range dirs {
		if !slices.ContainsFunc(trees, func(tree string) bool { return within(dir, tree) }) {
			trees = append(trees, dir)
		}
	}
	return trees
}

// refuseSpecial refuses what is pinned only if somebody wants it. What the command is, or starts with, somebody does.
func (f *fold) refuseSpecial(i *Image, fact Fact) bool {
	if fact.Special != "" && f.refuse(i, true, "%s", fact.Special) {
		return true
	}
	return i.Execs > 0 && (multi(i.Path) || slices.ContainsFunc(i.Asked, multi)) && f.refuse(i, true, "is many programs in one: pinning it allows all of them")
}

func within(p, tree string) bool { return p == tree || strings.HasPrefix(p, tree+"/") }

// exec adds an entry. What may be executed may be mapped, so one entry is enough.
func (f *fold) exec(e manifest.Exec) {
	m := f.p.Manifest
	f.used[e.Path] = true
	for _, x := range m.Exec {
		if x.Path == e.Path {
			f.same(x.Path, x.SHA256, e.SHA256)
			return
		}
	}
	m.Libraries = slices.DeleteFunc(m.Libraries, func(l manifest.File) bool { return l.Path == e.Path })
	m.Exec = append(m.Exec, e)
}

func (f *fold) library(l manifest.File) {
	m := f.p.Manifest
	f.used[l.Path] = true
	for _, x := range m.Exec {
		if x.Path == l.Path {
			f.same(x.Path, x.SHA256, l.SHA256)
			return
		}
	}
	for _, x := range m.Libraries {
		if x.Path == l.Path {
			f.same(x.Path, x.SHA256, l.SHA256)
			return
		}
	}
	m.Libraries = append(m.Libraries, l)
}

// same: one file, hashed twice.
func (f *fold) same(name, a, b string) {
	if a != b && !f.keeping {
		f.p.Missing = append(f.p.Missing, name+": changed while it was learned")
	}
}

// routes adds what is to be routed, under the absolute names by which it was executed: the bash-server goes by those.
func (f *fold) routes() {
	m := f.p.Manifest
	for _, file := range slices.Sorted(maps.Keys(f.routed)) {
		i := f.routed[file]
		fact, known := f.in.Facts[i.Key()]
		if !known || fact.Path == "" {
			f.p.Missing = append(f.p.Missing, fmt.Sprintf("%s: %s", i.Path, cmp.Or(fact.Unknown, "nothing is known about it")))
			continue
		}
		names := []string{}
		for _, asked := range i.Asked {
			// A name that leads elsewhere, or somewhere of the moment, is no name for it.
			if fact.Leads[asked] == fact.Path && path.IsAbs(asked) && path.Clean(asked) == asked {
				names = append(names, asked)
			}
		}
		if len(names) == 0 {
			names = []string{fact.Path}
		}
		for _, name := range names {
			if len(Routes(m.Route, name)) == 0 {
				m.Route = append(m.Route, name)
			}
			f.p.Notes[name] = note(&i, fact.Path)
		}
		// In a sandbox it is itself, so it has to be there.
		if s := &m.Sandbox; len(show(m.WithDefaults().Sandbox.Read, fact.Read)) > len(m.WithDefaults().Sandbox.Read) {
			s.Read = show(m.WithDefaults().Sandbox.Read, fact.Read)
		}
		// It cannot be both; the command's own interpreter never comes here.
		m.Exec = slices.DeleteFunc(m.Exec, func(e manifest.Exec) bool { return e.Path == fact.Path })
	}
}
