package launcher

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sharness/sharness/internal/kerneltest"
)

func TestTakenWorkspaceSaysByWhomAndLookingTakesNothing(t *testing.T) {
	kerneltest.RequireRoot(t)
	unlock, err := lockHost(func() error { return nil }) // no gc, and no start that could take the lock's folder away
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	dir := t.TempDir()
	one := func(id string) *Session {
		ws, err := openWorkspace(dir)
		if err != nil {
			t.Fatal(err)
		}
		s := &Session{ID: id, Workspace: ws}
		t.Cleanup(s.Close)
		return s
	}
	first, second := one("first-1"), one("second-2")
	if err := second.checkFree(); err != nil {
		t.Errorf("nobody works here: got %v", err)
	}
	if err := first.takeLock(); err != nil {
		t.Fatal(err)
	}
	if err := first.sign(); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("another session works here (first-1, pid %d); ", os.Getpid())
	for what, err := range map[string]error{"looked": second.checkFree(), "taken": second.takeLock()} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", what, err, want)
		}
	}
	first.Close()
	if err := second.checkFree(); err != nil {
		t.Errorf("after its end: got %v", err)
	}
	if err := second.takeLock(); err != nil {
		t.Errorf("after its end: got %v", err)
	}
}
