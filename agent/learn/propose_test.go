package learn

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharness/sharness/manifest"
)

const agentPath = "/opt/agent/agent"

// sum is a hash that tells files apart.
func sum(path string) string {
	return fmt.Sprintf("%064x", len(path)*1000+int((" " + path)[len(path)]))
}

// start is a manifest with what the agent needs to start.
func start() *manifest.Manifest {
	return &manifest.Manifest{Version: 1, Name: "agent", Command: []string{agentPath},
		Exec:      []manifest.Exec{{Path: agentPath, SHA256: sum(agentPath), Role: manifest.RoleProgram}, {Path: "/usr/lib/ld.so", SHA256: sum("/usr/lib/ld.so"), Role: manifest.RoleLoader}},
		Libraries: []manifest.File{{Path: "/usr/lib/libc.so", SHA256: sum("/usr/lib/libc.so")}},
		Route:     []string{"/bin/sh"}, Read: []string{"/usr"}, Sandbox: manifest.Sandbox{Pids: 64}}
}

func file(ino uint64) *File { return &File{Ino: ino, Size: 10, Sec: 1, Links: 1, Mode: 0o100755} }

// the images of the tests.
func program(path string, asked ...string) Image {
	return Image{Path: path, Asked: append(asked, path), By: []string{agentPath}, Execs: 1, File: file(uint64(len(path)))}
}

func mapping(path string) Image {
	return Image{Path: path, By: []string{agentPath}, Maps: 1, File: file(uint64(len(path)))}
}

// facts say of each image that it is what it was, and of executed ones that they need themselves and libc.
func facts(images []Image, edit func(*Image, *Fact)) map[Key]Fact {
	all := map[Key]Fact{}
	for _, i := range images {
		f := Fact{Path: i.Path, SHA256: sum(i.Path), Leads: map[string]string{}}
		for _, a := range i.Asked {
			f.Leads[a] = i.Path
		}
		if i.Execs > 0 {
			role := manifest.RoleProgram
			if i.Script != "" {
				role = manifest.RoleScript
			}
			f.Exec = []manifest.Exec{{Path: i.Path, SHA256: sum(i.Path), Role: role}}
			f.Libraries = []manifest.File{{Path: "/usr/lib/libc.so", SHA256: sum("/usr/lib/libc.so")}}
		}
		if edit != nil {
			edit(&i, &f)
		}
		all[i.Key()] = f
	}
	return all
}

func propose(t *testing.T, in Input) *Proposal {
	t.Helper()
	if in.Start == nil {
		in.Start = start()
	}
	p, err := Propose(in)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func seen(images ...Image) *Observation { return &Observation{Images: images} }

// added is what a proposal says beyond the start, one entry a word: role path.
func added(p *Proposal, from *manifest.Manifest) []string {
	var all []string
	for _, c := range manifest.Diff(from, p.Manifest) {
		all = append(all, string(c.Kind)+" "+c.Key+" "+c.Old+c.New)
	}
	return all
}

func TestFold(t *testing.T) {
	own := program(agentPath)
	own.Own = true
	for name, c := range map[string]struct {
		image  Image
		fact   func(*Image, *Fact)
		accept []string
		want   []string // words of the one thing that comes of it
		gone   bool     // nothing comes of it
		reason string   // refused
		lacks  string   // incomplete
	}{
		"own program":                {image: own, gone: true},
		"another program":            {image: program("/usr/bin/ls"), want: []string{"added exec", "/usr/bin/ls", "role: program"}},
		"late library":               {image: mapping("/usr/lib/late.so"), want: []string{"added libraries", "/usr/lib/late.so"}},
		"library that is known":      {image: mapping("/usr/lib/libc.so"), gone: true},
		"shell":                      {image: program("/usr/bin/dash", "/usr/bin/sh"), want: []string{"added route", "/usr/bin/dash"}},
		"shell by the route's name":  {image: program("/usr/bin/dash", "/bin/sh"), want: []string{"added route", "/usr/bin/dash"}},
		"interpreter with a version": {image: program("/usr/bin/python3.11"), want: []string{"added route", "/usr/bin/python3.11"}},
		"own interpreter":            {image: func() Image { i := program("/usr/bin/python3.11"); i.Own = true; return i }(), want: []string{"added exec", "python3.11"}},
		"script of a stranger": {image: Image{Path: "/usr/bin/zgrep", Script: "/usr/bin/dash", Asked: []string{"/usr/bin/zgrep"}, Execs: 1},
			want: []string{"added route", "/usr/bin/zgrep"}},
		"script of its own interpreter": {image: Image{Path: "/usr/bin/tool", Script: agentPath, Own: true, Asked: []string{"/usr/bin/tool"}, Execs: 1},
			want: []string{"added exec", "/usr/bin/tool", "role: script"}},
		"routed already":         {image: Image{Path: "/usr/bin/dash", Routed: true, Asked: []string{"/usr/bin/sh"}, Execs: 1}, gone: true},
		"beneath a shell":        {image: func() Image { i := program("/usr/bin/ls"); i.Beneath = "/usr/bin/zsh"; return i }(), gone: true},
		"in memory":              {image: func() Image { i := program("/memfd:x"); i.Strange = "lies in memory alone"; return i }(), reason: "lies in memory alone"},
		"deleted":                {image: func() Image { i := program("/usr/bin/gone"); i.File.Links = 0; return i }(), reason: "was deleted"},
		"denied":                 {image: Image{Path: "/ws/tool", Denied: true}, reason: "can write"},
		"loader by itself":       {image: program("/usr/lib/ld-linux-x86-64.so.2"), reason: "dynamic loader"},
		"what a loader mapped":   {image: Image{Path: "/usr/bin/ls", By: []string{"/usr/lib/ld-linux-x86-64.so.2"}, Maps: 1, File: file(3)}, reason: "started by the dynamic loader"},
		"many in one":            {image: program("/usr/bin/busybox"), reason: "many programs in one"},
		"many in one by a link":  {image: program("/usr/lib/multi", "/usr/bin/coreutils"), reason: "many programs in one"},
		"many in one, accepted":  {image: program("/usr/bin/busybox"), accept: []string{"/usr/bin/busybox"}, want: []string{"added exec", "/usr/bin/busybox"}},
		"set-uid":                {image: program("/usr/bin/su"), fact: func(_ *Image, f *Fact) { f.Special = "set-uid or set-gid" }, reason: "set-uid"},
		"owner":                  {image: program("/usr/bin/x"), fact: func(_ *Image, f *Fact) { f.Refused = "mode 0777 lets others write" }, reason: "lets others write"},
		"replaced":               {image: program("/usr/bin/x"), fact: func(_ *Image, f *Fact) { f.Unknown = "is not the file that ran" }, lacks: "is not the file that ran"},
		"other content of known": {image: program(agentPath), fact: func(_ *Image, f *Fact) { f.Exec[0].SHA256 = sum("/other") }, lacks: "changed while it was learned"},
	} {
		t.Run(name, func(t *testing.T) {
			images := []Image{c.image}
			p := propose(t, Input{Seen: seen(images...), Facts: facts(images, c.fact), Accept: c.accept})
			got := strings.Join(added(p, start()), "\n")
			if c.gone != (got == "" && len(p.Refused) == 0 && len(p.Missing) == 0) && (c.gone || c.want != nil) {
				t.Errorf("got %q, refused %v, missing %v", got, p.Refused, p.Missing)
			}
			for _, w := range c.want {
				if !strings.Contains(got, w) || strings.Count(got, "\n") != 0 {
					t.Errorf("got %q, want the one line with %q", got, w)
				}
			}
			if c.reason != "" && (len(p.Refused) != 1 || !strings.Contains(p.Refused[0].Reason, c.reason) || got != "") {
				t.Errorf("refused %+v, added %q; want %q and nothing", p.Refused, got, c.reason)
			}
			if c.lacks != "" && (p.Manifest.Learned.Complete || !strings.Contains(strings.Join(p.Missing, " "), c.lacks)) {
				t.Errorf("complete %v, missing %q, want %q", p.Manifest.Learned.Complete, p.Missing, c.lacks)
			}
			if c.lacks == "" && !p.Manifest.Learned.Complete {
				t.Errorf("incomplete: %q", p.Missing)
			}
		})
	}
}

// TestRoutesOfTheRunBecomeRoutesOfTheManifest: while it is learned every shell is the client already. Those that were used are
// proposed, by the names that lead to them.
func TestRoutesOfTheRunBecomeRoutesOfTheManifest(t *testing.T) {
	routed := func(path string, asked ...string) Image {
		i := program(path, asked...)
		i.Asked, i.Routed = asked, true
		return i
	}
	images := []Image{routed("/usr/bin/dash", "/bin/sh"), routed("/usr/bin/python3.11", "/usr/bin/python3", "/tmp/*"),
		routed("/usr/bin/zsh", "/bin/zsh"), routed("/run/sharness/bin/sharness-bash", "/run/sharness/bin/sharness-bash")}
	p := propose(t, Input{Seen: seen(images...), Facts: facts(images, func(i *Image, f *Fact) { delete(f.Leads, "/tmp/*"); f.Exec, f.Libraries = nil, nil })})
	if got, want := p.Manifest.Route, []string{"/bin/sh", "/usr/bin/python3", "/bin/zsh"}; !slices.Equal(got, want) {
		t.Errorf("route: got %q, want %q", got, want)
	}
	if len(p.Manifest.Exec) != len(start().Exec) || !p.Manifest.Learned.Complete || len(p.Refused) > 0 {
		t.Errorf("exec %v, missing %q, refused %v: want nothing but routes", p.Manifest.Exec, p.Missing, p.Refused)
	}
	var rows []string
	for _, r := range p.Rows {
		rows = append(rows, r.What+" "+r.Path)
	}
	if want := []string{"routed /run/sharness/bin/sharness-bash", "routed /usr/bin/dash", "route /usr/bin/python3.11", "route /usr/bin/zsh"}; !slices.Equal(rows, want) {
		t.Errorf("rows: got %q, want %q", rows, want)
	}
}

func TestWhatLiesElsewhereIsShown(t *testing.T) {
	images := []Image{program("/srv/agent/helper"), program("/srv/agent/rg")}
	p := propose(t, Input{Seen: seen(images...), Facts: facts(images, func(_ *Image, f *Fact) { f.Read = []string{"/srv/agent"} })})
	want := start()
	want.Read = append(want.Read, "/srv/agent")
	if got := p.Manifest; !slices.Equal(got.Read, want.Read) || !slices.Equal(got.Sandbox.Read, []string{"/usr", "/opt", "/srv/agent"}) {
		t.Errorf("got read %q, sandbox.read %q: want the pinned one's folder shown to the agent, the routed one's to commands", got.Read, got.Sandbox.Read)
	}
	p = propose(t, Input{Seen: seen(images[:1]...), Facts: facts(images, nil)})
	if len(p.Manifest.Sandbox.Read) != 0 {
		t.Errorf("got sandbox.read %q, want it left to its default", p.Manifest.Sandbox.Read)
	}
}

func TestAnyLossMakesTheProposalIncomplete(t *testing.T) {
	for name, l := range map[string]Losses{"lost": {Lost: 1}, "malformed": {Malformed: 1}, "orphans": {Orphans: 1}, "full": {Full: 1}, "late": {Late: true}} {
		p := propose(t, Input{Seen: &Observation{Losses: l}})
		if p.Manifest.Learned.Complete || len(p.Missing) != 1 {
			t.Errorf("%s: complete %v, missing %q", name, p.Manifest.Learned.Complete, p.Missing)
		}
	}
	if p := propose(t, Input{Seen: seen()}); !p.Manifest.Learned.Complete {
		t.Errorf("a run without loss: missing %q", p.Missing)
	}
}

// former is a manifest in force after one run that used rg, and to which somebody added vim.
func former() *manifest.Manifest {
	m := start()
	for _, p := range []string{"/usr/bin/fzf", "/usr/bin/vim"} {
		m.Exec = append(m.Exec, manifest.Exec{Path: p, SHA256: sum(p), Role: manifest.RoleProgram})
	}
	m.Learned = &manifest.Learned{Complete: true, Runs: 1, Images: []manifest.LearnedImage{{Path: "/usr/bin/fzf", Runs: 1, Execs: 3}}}
	return m
}

func TestMergeKeepsAndPruneLeavesOut(t *testing.T) {
	images := []Image{program("/usr/bin/ls")}
	for name, c := range map[string]struct {
		merge, prune bool
		want         []string // under exec, beside what the agent starts with
		unused       []string
		runs         int
	}{
		"anew":            {want: []string{"/usr/bin/ls"}, unused: []string{"/usr/bin/fzf", "/usr/bin/vim"}, runs: 1},
		"merge":           {merge: true, want: []string{"/usr/bin/ls", "/usr/bin/fzf", "/usr/bin/vim"}, unused: []string{"/usr/bin/vim"}, runs: 2},
		"merge and prune": {merge: true, prune: true, want: []string{"/usr/bin/ls", "/usr/bin/fzf"}, unused: []string{"/usr/bin/vim"}, runs: 2},
	} {
		p := propose(t, Input{Seen: seen(images...), Facts: facts(images, nil), Former: former(), Merge: c.merge, Prune: c.prune})
		var got []string
		for _, e := range p.Manifest.Exec[len(start().Exec):] {
			got = append(got, e.Path)
		}
		if !slices.Equal(got, c.want) || !slices.Equal(p.Unused, c.unused) || p.Manifest.Learned.Runs != c.runs {
			t.Errorf("%s: got %q, unused %q, %d runs; want %q, %q, %d", name, got, p.Unused, p.Manifest.Learned.Runs, c.want, c.unused, c.runs)
		}
	}
}

func TestMergeTakesTheNewContent(t *testing.T) {
	images := []Image{program("/usr/bin/fzf")}
	p := propose(t, Input{Seen: seen(images...), Facts: facts(images, func(_ *Image, f *Fact) { f.Exec[0].SHA256 = sum("/new") }), Former: former(), Merge: true})
	for _, e := range p.Manifest.Exec {
		if e.Path == "/usr/bin/fzf" && e.SHA256 != sum("/new") {
			t.Errorf("got %s, want the hash of what ran", e.SHA256)
		}
	}
	if !p.Manifest.Learned.Complete {
		t.Errorf("incomplete: %q", p.Missing)
	}
}

func TestOrderOfEventsDoesNotMatter(t *testing.T) {
	images := []Image{program("/usr/bin/ls"), program("/usr/bin/dash", "/bin/dash"), mapping("/usr/lib/late.so"), program("/usr/bin/id")}
	var first []byte
	for range images {
		images = append(images[1:], images[0])
		o := seen(slices.Clone(images)...)
		o.Sort()
		p := propose(t, Input{Seen: o, Facts: facts(images, nil)})
		text := append(manifest.Format(p.Manifest), fmt.Sprint(p.Notes, p.Rows)...)
		if first == nil {
			first = text
		}
		if !bytes.Equal(first, text) {
			t.Fatalf("got\n%s\nthen\n%s", first, text)
		}
	}
}

func TestRemarksChangeNothingThatIsSaid(t *testing.T) {
	images := []Image{program("/usr/bin/ls"), program("/usr/bin/x y", "/usr/bin/a\n- b: \"c\" # d"), program("/usr/bin/zsh"), mapping("/usr/lib/late.so")}
	p := propose(t, Input{Seen: seen(images...), Facts: facts(images, nil)})
	want := manifest.Format(p.Manifest)
	text := Annotate(want, p.Notes, p.Manifest.Route, p.Asked)
	m, err := manifest.Parse("x", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if got := manifest.Format(m); !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, line := range []string{"role: program} # learned: run by " + agentPath + "\n", "# learned: /usr/bin/zsh: run by " + agentPath + "\n", "# learned: mapped by " + agentPath} {
		if !strings.Contains(string(text), line) {
			t.Errorf("lacks %q:\n%s", line, text)
		}
	}
	if again := Annotate(text, p.Notes, p.Manifest.Route, p.Asked); !bytes.Equal(again, text) {
		t.Errorf("a second time:\n%s", again)
	}
	if kept := Annotate(text, nil, p.Manifest.Route, p.Asked); !bytes.Equal(kept, text) {
		t.Errorf("remarks of an earlier run went:\n%s", kept)
	}
}

func TestWhatWasAskedForIsToldAndNotAllowed(t *testing.T) {
	for name, c := range map[string]struct {
		a    Attempt
		want string
	}{
		"file":     {Attempt{"read", "/srv/x", []string{agentPath}}, "could add: read: [/srv/x] # wanted by " + agentPath},
		"key":      {Attempt{"read", "/home/u/.ssh/id", nil}, "asked for: to read /home/u/.ssh/id: keys lie there"},
		"keys":     {Attempt{"read", "/home/u/.aws", nil}, "asked for: to read /home/u/.aws: keys lie there"},
		"home":     {Attempt{WantWide, "/home/u", nil}, "asked for: to read the folder /home/u: it holds more"},
		"program":  {Attempt{"exec", "/srv/tool", nil}, "asked for: to run /srv/tool: it is not shown"},
		"write":    {Attempt{"write", "/srv", nil}, "asked for: to write in /srv: nothing but state and workspace"},
		"name":     {Attempt{WantName, "a.example", nil}, "could add: connect: [{name: a.example, port: 443}] # looked up"},
		"loopback": {Attempt{"connect", "tcp 127.0.0.1:80", nil}, "could add: connect: [{name: 127.0.0.1, port: 80}] # tried"},
		"six":      {Attempt{"connect", "tcp [::1]:80", nil}, `could add: connect: [{name: "::1", port: 80}] # tried`},
		"known":    {Attempt{"connect", "tcp a.example:80", nil}, "could add: connect: [{name: a.example, port: 80}] # tried"},
		"address":  {Attempt{"connect", "tcp 192.0.2.1:80", nil}, "asked for: to reach 192.0.2.1:80: an address can not be listed"},
		"udp":      {Attempt{"connect", "udp 192.0.2.1:53", nil}, "asked for: to reach udp 192.0.2.1:53: nothing but TCP"},
		"socket":   {Attempt{"connect", "unix /run/docker.sock", nil}, "asked for: to reach the socket /run/docker.sock: what serves it is outside"},
		// A name may be anything: it must not end what the line says.
		"odd":     {Attempt{"read", "/srv/a] x: [/y] # b", nil}, `could add: read: ["/srv/a] x: [/y] # b"] # wanted`},
		"network": {Attempt{"connect", "tcp 192.0.2.1:80", nil}, "asked for: to reach 192.0.2.1:80: an address can not be listed, only a name, and no name "},
	} {
		p := propose(t, Input{Seen: seen(), Attempts: []Attempt{c.a}, Network: name == "network"})
		if len(p.Asked) != 1 || !strings.HasPrefix(p.Asked[0], c.want) {
			t.Errorf("%s: got %q, want %q", name, p.Asked, c.want)
			continue
		}
		text := Annotate(manifest.Format(p.Manifest), p.Notes, nil, p.Asked)
		m, err := manifest.Parse("x", text)
		if err != nil || !bytes.Equal(manifest.Format(m), manifest.Format(p.Manifest)) || !strings.Contains(string(text), "\n# learned: "+c.want) {
			t.Errorf("%s: %v: the remark is missing, or says something:\n%s", name, err, text)
		}
		if rest, ok := strings.CutPrefix(p.Asked[0], "could add: "); ok {
			// Taken over as it stands, it is what it says.
			key, _, _ := strings.Cut(rest, ":")
			base := start()
			base.Read = nil
			if _, err := manifest.Parse("x", append(manifest.Format(base), rest+"\n"...)); err != nil {
				t.Errorf("%s: %s does not fit into a manifest: %v", name, key, err)
			}
		}
		if again := Annotate(text, nil, nil, nil); strings.Contains(string(again), c.want) {
			t.Errorf("%s: stays when it is asked for no more", name)
		}
	}
}

func TestLimitsGrowToPowersOfTwoAndNeverShrink(t *testing.T) {
	limits := func(edit func(*manifest.Manifest), peaks manifest.LearnedPeaks) (manifest.Limits, manifest.Sandbox) {
		m := start()
		m.Sandbox = manifest.Sandbox{}
		if edit != nil {
			edit(m)
		}
		p := propose(t, Input{Seen: seen(), Start: m, Peaks: peaks})
		if got := p.Manifest.Learned.Peaks; peaks != (manifest.LearnedPeaks{}) && (got == nil || *got != peaks) {
			t.Errorf("learned.peaks: got %+v, want %+v", got, peaks)
		}
		return p.Manifest.Limits, p.Manifest.Sandbox
	}
	command := func(u manifest.LearnedUse) manifest.LearnedPeaks { return manifest.LearnedPeaks{Command: u} }
	for name, c := range map[string]struct {
		use  manifest.LearnedUse
		want manifest.Sandbox
	}{
		"nothing":       {manifest.LearnedUse{}, manifest.Sandbox{}},
		"within":        {manifest.LearnedUse{Pids: 64, Memory: 4 * manifest.GiB, Time: manifest.Timeout(10 * time.Minute)}, manifest.Sandbox{}},
		"one more":      {manifest.LearnedUse{Pids: 65}, manifest.Sandbox{Pids: 128}},
		"a power":       {manifest.LearnedUse{Pids: 128}, manifest.Sandbox{Pids: 128}},
		"memory":        {manifest.LearnedUse{Memory: 4*manifest.GiB + 1}, manifest.Sandbox{Memory: 8 * manifest.GiB}},
		"time":          {manifest.LearnedUse{Time: manifest.Timeout(10*time.Minute + time.Millisecond)}, manifest.Sandbox{Timeout: manifest.Timeout(1024 * time.Second)}},
		"CPU alone":     {manifest.LearnedUse{CPU: manifest.Timeout(time.Hour)}, manifest.Sandbox{}},
		"of all things": {manifest.LearnedUse{Pids: 1000, Memory: 9 * manifest.GiB, Time: manifest.Timeout(time.Hour)}, manifest.Sandbox{Pids: 1024, Memory: 16 * manifest.GiB, Timeout: manifest.Timeout(4096 * time.Second)}},
	} {
		if _, got := limits(nil, command(c.use)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
	if got, _ := limits(nil, manifest.LearnedPeaks{Orchestrator: manifest.LearnedUse{Pids: 513, Memory: 5 * manifest.GiB}}); got != (manifest.Limits{Pids: 1024, Memory: 8 * manifest.GiB}) {
		t.Errorf("orchestrator: got %+v", got)
	}
	large := func(m *manifest.Manifest) {
		m.Sandbox.Pids, m.Sandbox.Timeout = 5000, manifest.TimeoutNone
	}
	if _, got := limits(large, command(manifest.LearnedUse{Pids: 70, Time: manifest.Timeout(time.Hour)})); got.Pids != 5000 || got.Timeout != manifest.TimeoutNone {
		t.Errorf("got %+v, want what the manifest gives", got)
	}
}

func TestRead(t *testing.T) {
	message := func(m Message) string {
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return string(b) + "\n"
	}
	progress, result := message(Message{Progress: &Progress{Execs: 1}}), message(Message{Observation: &Observation{Execs: 2}})
	for name, c := range map[string]struct {
		text string
		ok   bool
	}{
		"whole":               {progress + progress + result, true},
		"no result":           {progress, false},
		"nothing":             {"", false},
		"two results":         {result + result, false},
		"progress after it":   {result + progress, false},
		"cut":                 {progress + result[:len(result)/2], false},
		"unknown key":         {`{"observation":{"images":null,"trust":true}}`, false},
		"both":                {`{"progress":{},"observation":{}}`, false},
		"neither":             {`{}` + result, false},
		"other text after it": {result + "x", false},
	} {
		told := 0
		o, err := Read(strings.NewReader(c.text), func(Progress) { told++ })
		if (err == nil) != c.ok || c.ok && (o.Execs != 2 || told != 2) {
			t.Errorf("%s: got %+v, %v, progress %d times", name, o, err, told)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(`{"progress":{"execs":1}}` + "\n" + `{"observation":{"images":[{"path":"/x","execs":1,"file":{"ino":1}}]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		o, err := Read(strings.NewReader(text), nil)
		if err != nil {
			return
		}
		// Whatever it says, the fold ends, and what it proposes is a manifest or an error.
		p, err := Propose(Input{Seen: o, Facts: facts(o.Images, nil), Start: start()})
		if err == nil && p.Manifest.Validate() != nil {
			t.Error("proposes what is no manifest")
		}
	})
}
