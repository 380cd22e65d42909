// Package resolve decides, from a manifest and what the host can do, which layer closes which side door, and whether a
// session may start.
//
// It is pure: the same manifest, features and list of allowed doors give the same Decision on every machine, so that
// the decision for a kernel can be tested without booting it. No layer disappears silently: one that does not hold is
// a Gap, and a door that is left without one stops the start unless it was allowed by name. What it does not decide is
// whether a layer that should hold really does: the self-probe and `sharness prove` attack it.
package resolve

import (
	"fmt"
	"slices"

	"github.com/sharness/sharness/internal/sidedoor"
	"github.com/sharness/sharness/launcher/host"
	"github.com/sharness/sharness/manifest"
)

// Layer is one wall on this host.
type Layer struct {
	Name  sidedoor.Layer `json:"name"`
	Holds bool           `json:"holds"`
	Need
}

// Need says why something is missing and how to get it.
type Need struct {
	Why string `json:"why,omitempty"`
	Fix string `json:"fix,omitempty"`
}

// Door is one side door on this host.
type Door struct {
	ID      string           `json:"id"`
	Group   sidedoor.Group   `json:"group"`
	Title   string           `json:"title"`
	Closed  bool             `json:"closed"`
	All     bool             `json:"all,omitempty"`     // every layer of the row is needed
	By      []sidedoor.Layer `json:"by"`                // layers that hold against this door
	Lacks   []Layer          `json:"lacks,omitempty"`   // layers of its row that do not
	Allowed string           `json:"allowed,omitempty"` // open and meant to be: by design, by the manifest, by --allow-open
	Rest    string           `json:"rest,omitempty"`    // what stays open even when it is closed
}

// Requirement is something that a session needs whatever its doors are.
type Requirement struct {
	Name string `json:"name"`
	Need
}

// Decision is what this host will do with a manifest.
type Decision struct {
	Landlock Landlock      `json:"landlock"`
	Layers   []Layer       `json:"layers"`
	Doors    []Door        `json:"doors"`
	Lacks    []Requirement `json:"lacks"` // not empty: nothing can start here
}

// Reasons why an open door does not stop the start.
const (
	AllowedByDesign   = "by design"
	AllowedByManifest = "manifest"
	AllowedByFlag     = "--allow-open"
)

// Resolve computes door × layer. m may be nil: then no door is opened by the manifest. The only error is a name in
// allow that is no door; that nothing may start is for Decision.Err to say.
func Resolve(m *manifest.Manifest, f *host.Features, allow []string) (*Decision, error) {
	for _, id := range allow {
		if _, ok := sidedoor.ByID(id); !ok {
			return nil, fmt.Errorf("--allow-open %s: no such door", id)
		}
	}
	memfd := m != nil && m.Memfd
	d := &Decision{Landlock: chooseLandlock(f), Lacks: requirements(f)}
	walls := walls(f)
	for _, name := range layerOrder {
		need := walls[name]
		d.Layers = append(d.Layers, Layer{Name: name, Holds: need == nil, Need: deref(need)})
	}
	for _, row := range sidedoor.Doors() {
		d.Doors = append(d.Doors, resolveDoor(row, walls, d.Landlock, memfd, allow))
	}
	return d, nil
}

func resolveDoor(row sidedoor.Door, walls map[sidedoor.Layer]*Need, ll Landlock, memfd bool, allow []string) Door {
	door := Door{ID: row.ID, Group: row.Group, Title: row.Title, All: row.All, By: []sidedoor.Layer{}, Rest: rest(row, ll)}
	for _, name := range row.Layers {
		need := walls[name]
		if need == nil {
			need = special(row.ID, name, ll, memfd)
		}
		if need == nil {
			door.By = append(door.By, name)
			continue
		}
		door.Lacks = append(door.Lacks, Layer{Name: name, Need: *need})
	}
	door.Closed = len(door.By) > 0 && (!row.All || len(door.Lacks) == 0)
	if door.Closed {
		return door
	}
	switch {
	case len(row.Layers) == 0:
		door.Allowed = AllowedByDesign
	case openedByMemfd(door, memfd):
		door.Allowed = AllowedByManifest
	case slices.Contains(allow, row.ID):
		door.Allowed = AllowedByFlag
	}
	return door
}

// openedByMemfd reports whether memfd: true is what opens the door, which it does on every kernel: the loader takes a
// memfd. A kernel without memfd_noexec would execute one too, and of that the manifest says nothing: what the same
// words open shall not depend on the host.
func openedByMemfd(door Door, memfd bool) bool {
	if !memfd || door.ID != "exec-ldso" {
		return false
	}
	for _, l := range door.Lacks {
		if l.Why != whyMemfd {
			return false
		}
	}
	return true
}

// Gaps are the layers that do not hold here; a layer that holds in part is not among them (see Landlock.Lacks).
func (d *Decision) Gaps() []Layer {
	var out []Layer
	for _, l := range d.Layers {
		if !l.Holds {
			out = append(out, l)
		}
	}
	return out
}

// Open are the doors that stop the start.
func (d *Decision) Open() []Door {
	var out []Door
	for _, door := range d.Doors {
		if !door.Closed && door.Allowed == "" {
			out = append(out, door)
		}
	}
	return out
}

// Holds reports whether the layer holds on this host.
func (d *Decision) Holds(name sidedoor.Layer) bool {
	for _, l := range d.Layers {
		if l.Name == name {
			return l.Holds
		}
	}
	return false
}

func deref(n *Need) Need {
	if n == nil {
		return Need{}
	}
	return *n
}
