package attempt

import (
	"strings"
	"testing"

	"github.com/sharness/sharness/internal/sidedoor"
)

func TestEveryAttemptNamesADoorAndItself(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range All() {
		if _, ok := sidedoor.ByID(a.Door); !ok {
			t.Errorf("%s: no door %q in the table", a.ID, a.Door)
		}
		if !strings.HasPrefix(a.ID, a.Door+"/") {
			t.Errorf("%s: does not begin with its door %q", a.ID, a.Door)
		}
		if seen[a.ID] {
			t.Errorf("%s: twice in the table", a.ID)
		}
		seen[a.ID] = true
		if a.What == "" || a.Control == "" || a.How == nil {
			t.Errorf("%s: a field is missing", a.ID)
		}
	}
}

// elsewhere are doors that no probe can judge from inside; their pages name the test that attacks them.
var elsewhere = map[string]bool{"exec-applet": true, "net-sni": true, "net-tenant": true, "tty-answer": true}

func TestEveryDoorOfTheOrchestratorIsAttacked(t *testing.T) {
	attacked := map[string]bool{}
	for _, a := range All() {
		attacked[a.Door] = true
	}
	for _, d := range sidedoor.Doors() {
		if d.Orchestrator && !attacked[d.ID] && !elsewhere[d.ID] {
			t.Errorf("%s: no attempt", d.ID)
		}
		if attacked[d.ID] && elsewhere[d.ID] {
			t.Errorf("%s: attacked here and said to be attacked elsewhere", d.ID)
		}
	}
}
