package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sharness/sharness/internal/sidedoor/probe"
)

// markdown writes the page for docs/evidence.
func (r *Report) markdown(w io.Writer) error {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	p("# Evidence: Linux %s, %s\n\n", cell(r.Kernel), cell(r.Distribution))
	p("Written by `%s`; not edited. [How to read it](README.md).\n\n", cell(r.Command))
	p("| | |\n|---|---|\n")
	p("| date | %s |\n", r.Date.Format("2006-01-02 15:04 MST"))
	p("| kernel | %s %s, %s; Landlock ABI %d, cgroups %s |\n", cell(r.Kernel), cell(r.Machine), cell(r.Build), r.LandlockABI, cell(r.Cgroups))
	p("| distribution | %s |\n", cell(r.Distribution))
	p("| sharness | %s |\n", cell(r.Version))
	for _, run := range r.Runs {
		if run.Mode == Session || run.Mode == Sandbox {
			c := run.count()
			p("| %s | %s: %d open, %d allowed, %d closed, %d absent, %d impossible here, %d broke; %d of %d denials told; %.1f s |\n",
				cell(run.Name), attempts(len(run.Attempts)), c.open, c.allowed, c.closed, c.absent, c.impossible, c.broke, c.seen, c.wanted, run.Duration)
		}
	}
	but := ""
	if n := len(r.permitted()); n > 0 {
		but = fmt.Sprintf(", but for %s that may get through (below, with the reason)", attempts(n))
	}
	result := "every door closed" + but + ", every denial with an errno told, nothing arrived at the bait, nothing left behind"
	if !r.Closed {
		result = fmt.Sprintf("**not proven**: %d problems, below", len(r.Problems))
	}
	p("| result | %s |\n\n", result)
	if !r.Closed {
		p("## Problems\n\n")
		for _, problem := range r.Problems {
			p("- %s\n", cell(problem))
		}
		p("\n")
	}
	r.doorTable(p)
	r.permittedTable(p)
	r.missionTable(p)
	r.matrixTables(p)
	r.layerTable(p)
	r.controlLists(p)
	_, err := io.WriteString(w, b.String())
	return err
}

// cell keeps a text inside of a table's cell.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "`", "'", "<", "&lt;").Replace(s)
}

type printer func(format string, args ...any)

type counts struct{ open, allowed, closed, absent, impossible, broke, wanted, seen int }

func (r *RunReport) count() (c counts) {
	for _, a := range r.Attempts {
		switch a.Verdict {
		case probe.Open:
			if a.permitted() {
				c.allowed++
			} else {
				c.open++
			}
		case probe.Closed:
			c.closed++
		case probe.Absent:
			c.absent++
		case probe.Impossible:
			c.impossible++
		default:
			c.broke++
		}
		if a.Wanted {
			c.wanted++
			if a.Seen {
				c.seen++
			}
		}
	}
	return c
}

// of are the attempts on a door.
func (r *RunReport) of(door string) (out []Attempt) {
	for _, a := range r.Attempts {
		if a.Door == door {
			out = append(out, a)
		}
	}
	return out
}

// attacked are the runs that attack, without those of the ablation.
func (r *Report) attacked() (out []*RunReport) {
	for _, run := range r.Runs {
		if run.Mode == Session || run.Mode == Sandbox {
			out = append(out, run)
		}
	}
	return out
}

func (r *Report) doorTable(p printer) {
	runs := r.attacked()
	p("## Doors\n\n| door | through without sharness |")
	for _, run := range runs {
		p(" %s |", cell(run.Name))
	}
	p(" errnos | refused by | denials told |\n|---|---|%s---|---|---|\n", strings.Repeat("---|", len(runs)))
	for _, d := range r.Header.Doors {
		var all []Attempt
		verdicts := ""
		positive := "-"
		for _, run := range runs {
			as := run.of(d.ID)
			if len(as) == 0 {
				verdicts += " - |"
				continue
			}
			s := summarize(as, d, run)
			verdicts += " " + string(s.verdict) + " |"
			if run.Mode == Session && (positive == "-" || run.Name == "dynamic") {
				positive = fmt.Sprintf("%d of %d", s.positive, s.attempts)
			}
			all = append(all, as...)
		}
		if len(all) == 0 {
			continue
		}
		s := summarize(all, d, nil)
		p("| [%s](../side-doors/%s.md) | %s |%s %s | %s | %s |\n", d.ID, d.ID, positive, verdicts, s.errnos(), s.layers(), s.events())
	}
	p("\n")
}

// permittedTable says which attempts got through that may, and why, each once.
func (r *Report) permittedTable(p printer) {
	var why []string
	ids := map[string][]string{}
	for _, a := range r.permitted() {
		if ids[a.Allowed] == nil {
			why = append(why, a.Allowed)
		}
		if !slices.Contains(ids[a.Allowed], a.ID) {
			ids[a.Allowed] = append(ids[a.Allowed], a.ID)
		}
	}
	if len(why) == 0 {
		return
	}
	p("## Attempts that may get through\n\n| attempts | why |\n|---|---|\n")
	for _, w := range why {
		p("| %s | %s |\n", cell(strings.Join(ids[w], ", ")), cell(w))
	}
	p("\n")
}

// mission are the statements of the design that stood as not measured, and the attempts that measure them.
var mission = []struct {
	door, design string
	attempts     []string // ids, or doors as a whole
}{
	{"exec a shell or interpreter directly", "Landlock EXECUTE allowlist", []string{"exec-direct"}},
	{"write a binary into the workspace and run it", "the workspace has no EXECUTE right", []string{"exec-workspace"}},
	{"execute from memory (memfd_create and fexecve)", "Landlock, or vm.memfd_noexec=2 and seccomp", []string{"exec-memfd"}},
	{"signal the bash-server", "Landlock signal scoping", []string{"sig/peerpidfd-server", "sig/peercred-server"}},
	{"signal any process outside", "Landlock signal scoping", []string{"sig"}},
	{"ptrace a process outside", "ptrace across domains is denied", []string{"ptrace"}},
	{"an allowed interpreter does file or network work in-process", "the domain's own file and port policy", []string{"exec-interp"}},
	{"change the orchestrator's configuration, /etc/hosts", "no write right, manifest hash", []string{"file-config"}},
	{"replace a pinned binary", "pinned in the manifest", []string{"exec-swap"}},
	{"root undoes the locks", "the orchestrator is not root", []string{"setid", "ns"}},
}

// missionTable answers them.
func (r *Report) missionTable(p printer) {
	p("## What the design had left to be measured\n\n| side door | the design's answer | measured | closed alone by |\n|---|---|---|---|\n")
	for _, m := range mission {
		var c counts
		errnos := map[string]bool{}
		for _, run := range r.attacked() {
			for _, a := range run.Attempts {
				if run.Mode != Session || !slices.Contains(m.attempts, a.ID) && !slices.Contains(m.attempts, a.Door) {
					continue
				}
				one := (&RunReport{Attempts: []Attempt{a}}).count()
				c.open, c.allowed, c.closed, c.absent, c.impossible, c.broke = c.open+one.open, c.allowed+one.allowed, c.closed+one.closed, c.absent+one.absent, c.impossible+one.impossible, c.broke+one.broke
				if a.Errno != "" {
					errnos[a.Errno] = true
				}
			}
		}
		if c == (counts{}) {
			p("| %s | %s | not in this run | - |\n", m.door, m.design)
			continue
		}
		by := []string{}
		for _, id := range m.attempts {
			door, _, _ := strings.Cut(id, "/")
			if r.Matrix != nil {
				by = append(by, r.Matrix.layersOf(door)...)
			}
		}
		slices.Sort(by)
		names := make([]string, 0, len(errnos))
		for e := range errnos {
			names = append(names, e)
		}
		slices.Sort(names)
		p("| %s | %s | %d open, %d allowed, %d closed, %d absent of %d; %s | %s |\n", m.door, m.design, c.open, c.allowed, c.closed, c.absent,
			c.open+c.allowed+c.closed+c.absent+c.impossible+c.broke, orDash(strings.Join(names, " ")), orDash(strings.Join(slices.Compact(by), ", ")))
	}
	p("\n")
}

func (r *Report) matrixTables(p printer) {
	m := r.Matrix
	if m == nil {
		return
	}
	p("## Door × layer\n\nWhat each layer closes alone: all of the attempts that are open without any of these layers, or a part. **!**: something opens when that layer alone is\n")
	p("missing. The pid namespace stays in every run, and an own uid at %s.\n\n| door | open without any |", "sig, pid1, kernel, ns and file-proc")
	for _, l := range m.Layers {
		p(" %s |", l)
	}
	p("\n|---|---|%s\n", strings.Repeat("---|", len(m.Layers)))
	for _, row := range m.Doors {
		p("| %s | %d |", row.Door, row.Attempts)
		for _, l := range m.Layers {
			p(" %s |", strings.Replace(row.cell(l), "!", " **!**", 1))
		}
		p("\n")
	}
	p("\n### Doors of which something hangs on one layer\n\n| door | layer | attempts that open without it | such as |\n|---|---|---|---|\n")
	for _, row := range m.Doors {
		for _, l := range row.Hangs(m.Layers) {
			p("| %s | %s | %d | `%s` |\n", row.Door, l, row.Opened[l], row.Example[l])
		}
	}
	p("\n")
}

func (r *Report) layerTable(p printer) {
	p("## Layers of this host\n\n| layer | |\n|---|---|\n")
	for _, l := range r.Layers {
		state := "holds"
		if !l.Holds {
			state = "missing: " + cell(l.Why)
		}
		p("| %s | %s |\n", l.Name, state)
	}
	p("\n")
}

// controlLists name the attempts that are not shown to work by one without sharness, with the reason.
func (r *Report) controlLists(p printer) {
	p("## Attempts without a positive control\n\nEvery other attempt of the tables above got through when the same program made it as an ordinary user without sharness, on the same host.\n\n")
	p("| door | attempts | why |\n|---|---|---|\n")
	best := map[string]Attempt{} // by id: positive in one build is enough
	var order []string
	for _, run := range r.attacked() {
		if run.Mode != Session {
			continue
		}
		for _, a := range run.Attempts {
			if _, seen := best[a.ID]; !seen {
				order = append(order, a.ID)
				best[a.ID] = a
			} else if a.ControlVerdict == probe.Open {
				best[a.ID] = a
			}
		}
	}
	type group struct{ door, why string }
	members := map[group][]string{}
	var groups []group
	for _, id := range order {
		a := best[id]
		if a.ControlVerdict == probe.Open || a.ControlNote == "" {
			continue
		}
		why, _, _ := strings.Cut(a.ControlNote, ": ")
		if why == "impossible on this host" {
			_, said, _ := strings.Cut(a.ControlNote, ": ")
			if i := strings.LastIndex(said, ": "); i >= 0 {
				said = said[i+2:]
			}
			why += ": " + said
		}
		if i := strings.Index(why, " ("); i >= 0 {
			why = why[:i]
		}
		g := group{a.Door, why}
		if members[g] == nil {
			groups = append(groups, g)
		}
		_, variant, _ := strings.Cut(id, "/")
		members[g] = append(members[g], variant)
	}
	for _, g := range groups {
		p("| %s | %s | %s |\n", g.door, cell(strings.Join(members[g], ", ")), cell(g.why))
	}
}
