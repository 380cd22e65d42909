package learn

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Row is one line of the summary.
type Row struct {
	What  string // role, or route, or refused
	Path  string
	Execs uint64
	Maps  uint64
	How   string
}

// rows tells of everything that was executed, and of what was mapped beyond what programs need to start.
func (f *fold) rows() {
	roles := map[string]string{}
	for _, e := range f.p.Manifest.Exec {
		roles[e.Path] = string(e.Role)
	}
	for _, l := range f.p.Manifest.Libraries {
		roles[l.Path] = "library"
	}
	refused := map[string]string{}
	for _, r := range f.p.Refused {
		refused[r.Path] = r.Reason
	}
	for _, i := range f.in.Seen.Images {
		if i.Beneath != "" || i.Execs == 0 && f.starts[i.Path] {
			continue
		}
		name := i.Path
		if fact, ok := f.in.Facts[i.Key()]; ok && fact.Path != "" {
			name = fact.Path
		}
		row := Row{What: roles[name], Path: name, Execs: i.Execs, Maps: i.Maps, How: note(&i, name)}
		_, toRoute := f.routed[i.Path]
		switch {
		case i.Routed && !toRoute:
			row.What = "routed"
		case toRoute && i.Execs > 0:
			row.What = "route"
		case refused[i.Path] != "":
			row.What, row.How = "refused", refused[i.Path]
		case row.What == "":
			row.What = "unknown"
		}
		f.p.Rows = append(f.p.Rows, row)
	}
	slices.SortFunc(f.p.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(order(a.What), order(b.What)), cmp.Compare(a.Path, b.Path))
	})
}

func order(what string) int {
	return slices.Index([]string{"program", "script", "interpreter", "loader", "library", "routed", "route", "refused"}, what)
}

// Table writes the summary for people. Names in it may be anybody's: none acts on a terminal.
func (p *Proposal) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WHAT\tRUN\tMAPPED\tPATH\tHOW")
	for _, r := range p.Rows {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\n", r.What, r.Execs, r.Maps, quote(r.Path), strings.ReplaceAll(r.How, "\t", " "))
	}
	return t.Flush()
}
