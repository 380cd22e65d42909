package sidedoor

import "testing"

func TestEveryDoorHasALayerOrSaysWhatStaysOpen(t *testing.T) {
	for _, d := range Doors() {
		if len(d.Layers) == 0 && d.Open == "" {
			t.Errorf("%s: no layer and no word on what stays open", d.ID)
		}
		if d.Title == "" || d.Group == "" {
			t.Errorf("%s: no title or group", d.ID)
		}
	}
}

func TestDoorIDsAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range Doors() {
		if seen[d.ID] {
			t.Errorf("%s: twice in the table", d.ID)
		}
		seen[d.ID] = true
	}
}

func TestDoorsIsACopy(t *testing.T) {
	Doors()[0].ID = "changed"
	if _, ok := ByID("changed"); ok {
		t.Error("a caller changed the table")
	}
}
