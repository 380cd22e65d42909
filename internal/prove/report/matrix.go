package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sharness/sharness/internal/sidedoor/probe"
)

// Matrix is door × layer as it was measured: with each layer alone, and without each.
type Matrix struct {
	Layers []string    `json:"layers"`
	Doors  []MatrixRow `json:"doors"`
}

// MatrixRow is one door. Attempts counts those that are open when every layer that can be taken away is: only these can
// show what a layer does.
type MatrixRow struct {
	Door     string            `json:"door"`
	Attempts int               `json:"attempts"`
	Alone    map[string]int    `json:"alone"`             // layer: how many of them it closes by itself
	Opened   map[string]int    `json:"opened,omitempty"`  // layer: how many attempts open when it alone is missing
	Example  map[string]string `json:"example,omitempty"` // layer: one of these
}

// Hangs are the layers on which something of the door hangs alone.
func (r MatrixRow) Hangs(layers []string) (out []string) {
	for _, l := range layers {
		if r.Opened[l] > 0 {
			out = append(out, l)
		}
	}
	return out
}

// verdicts are those of all attempts in one configuration, by run variant and id: the same attempt of another build counts
// for itself.
func (r *Report) verdicts(config string) map[string]Attempt {
	found := map[string]Attempt{}
	for _, run := range r.Runs {
		if run.Mode != Ablation || run.Config != config || run.Refused != "" || run.Failed != "" {
			continue
		}
		_, variant, _ := strings.Cut(run.Name, "(")
		variant = strings.TrimSuffix(strings.TrimSuffix(variant, ")"), ", own uid")
		for _, a := range run.Attempts {
			found[variant+" "+a.ID] = a
		}
	}
	return found
}

// matrix is nil when nothing was taken away.
func (r *Report) matrix() *Matrix {
	none := r.verdicts("none")
	if len(none) == 0 {
		return nil
	}
	m := &Matrix{Layers: r.Removable}
	rows := map[string]*MatrixRow{}
	for _, d := range r.Header.Doors {
		rows[d.ID] = &MatrixRow{Door: d.ID, Alone: map[string]int{}, Opened: map[string]int{}, Example: map[string]string{}}
	}
	tried := map[string]bool{}
	for _, a := range none {
		tried[a.Door] = true
		if row := rows[a.Door]; row != nil && a.Verdict == probe.Open {
			row.Attempts++
		}
	}
	for _, l := range m.Layers {
		only, without := r.verdicts("only "+l), r.verdicts("without "+l)
		for key, a := range none {
			row := rows[a.Door]
			if row == nil {
				continue
			}
			if alone, ok := only[key]; ok && a.Verdict == probe.Open && (alone.Verdict == probe.Closed || alone.Verdict == probe.Absent) {
				row.Alone[l]++
			}
		}
		for _, a := range without {
			if row := rows[a.Door]; row != nil && a.Verdict == probe.Open {
				row.Opened[l]++
				if row.Example[l] == "" || a.ID < row.Example[l] {
					row.Example[l] = a.ID
				}
			}
		}
	}
	for _, d := range r.Header.Doors {
		if tried[d.ID] {
			m.Doors = append(m.Doors, *rows[d.ID])
		}
	}
	return m
}

// cell says what a layer does at a door: "all" or a part of the attempts that it closes alone, with "!" when something
// opens without it.
func (r MatrixRow) cell(layer string) string {
	text := ""
	switch n := r.Alone[layer]; {
	case n == 0:
	case n == r.Attempts:
		text = "all"
	default:
		text = fmt.Sprintf("%d/%d", n, r.Attempts)
	}
	if r.Opened[layer] > 0 {
		text += "!"
	}
	return text
}

func (m *Matrix) print(w io.Writer) {
	fmt.Fprintf(w, "DOOR × LAYER: what each layer closes alone (all, or a part of the attempts that are open without any), and ! where\nsomething opens when that layer alone is missing\n%-15s", "")
	for _, l := range m.Layers {
		fmt.Fprintf(w, " %-8s", l)
	}
	fmt.Fprintln(w)
	for _, r := range m.Doors {
		line := fmt.Sprintf("%-15s", r.Door)
		for _, l := range m.Layers {
			line += fmt.Sprintf(" %-8s", orDash(r.cell(l)))
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
	for _, r := range m.Doors {
		for _, l := range r.Hangs(m.Layers) {
			fmt.Fprintf(w, "  %s hangs on %s alone: %d attempts, as %s\n", r.Door, l, r.Opened[l], r.Example[l])
		}
	}
	fmt.Fprintln(w)
}

// layersOf are the layers that close every measured attempt of a door by themselves.
func (m *Matrix) layersOf(door string) (out []string) {
	i := slices.IndexFunc(m.Doors, func(r MatrixRow) bool { return r.Door == door })
	if i < 0 {
		return nil
	}
	for _, l := range m.Layers {
		if n := m.Doors[i].Alone[l]; n > 0 && n == m.Doors[i].Attempts {
			out = append(out, l)
		}
	}
	return out
}
