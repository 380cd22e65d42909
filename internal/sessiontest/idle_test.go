package sessiontest

import (
	"testing"
	"time"
)

// A supervisor that had nothing to do for a while gives memory back, and needs all the same what its loader wrote: the first command
// of a session comes as late as it likes, and has ids and their accounts looked up.
func TestFirstCommandMayComeLate(t *testing.T) {
	s := newSite(t, nil)
	s.serve().stop() // the manifest has its id from here on
	x := s.serve()
	defer x.stop()
	time.Sleep(12 * time.Second) // internal/lean waits for 10
	if r := x.run(".", "echo late"); r.Stdout != "late\n" {
		t.Errorf("got %+v\n%s", r, x.stderr)
	}
}
